"""What an engine and a measurement are in one line for a person, or as pairs for a record."""

from dataclasses import fields

from tasks.domain.engine_facts import EngineFacts
from tasks.domain.measurement import Measurement


def fact_pairs(facts: EngineFacts) -> tuple[tuple[str, str], ...]:
    """Return what the engine's log told, as text; unknown facts are left out."""
    plain = {
        name: value
        for name, value in ((f.name, getattr(facts, f.name)) for f in fields(facts))
        if isinstance(value, str | int | float)
    }
    warnings = ",".join(sorted({warning.code for warning in facts.warnings}))
    pairs = [(name, str(value)) for name, value in plain.items()]
    return (*pairs, ("warnings", warnings)) if warnings else tuple(pairs)


def measured_line(m: Measurement) -> str:
    """Return one line on a measurement, every figure with its n."""
    flags = ", ".join(flag.code for flag in m.flags)
    return (
        f"benchmark {m.load_point.name}: goodput {m.goodput_req_s:.2f} of {m.offered_req_s:.2f} "
        f"req/s offered, {m.attainment_frac:.0%} inside the SLO (n={m.n_requests}), "
        f"TTFT {m.ttft.p(0.5).text}, {m.output_tok_s:.0f} tokens/s"
        + (f" [{flags}]" if flags else "")
    )
