"""A search as a person reads it: every point with why it was asked, and every prior's source."""

from tasks.domain.parameters import ParameterValues
from tasks.domain.search.protocol import PriorUse
from tasks.domain.search.space import KNOBS
from tasks.domain.search_found import ProbedPoint, SearchReport
from tasks.domain.search_rates import PointRate
from tasks.domain.sustainable_rate import rate_table

_HEAD = "| # | point | status | n | inside SLO | worth | forecast | why |\n" + "|---|" + "---|" * 7


def search_part(report: SearchReport) -> str:
    """Return the Markdown section of one arm's search."""
    lines = [f"## Search of {report.arm}: {_found(report)}"]
    if report.failure is not None:
        lines.append(f"{report.failure.code}: {report.failure.message}")
    if report.probes:
        rows = (_row(i, probe) for i, probe in enumerate(report.probes))
        lines.append("\n".join([_HEAD, *rows]))
    lines.append(
        f"Policy {report.policy}, {len(report.probes)} points, {report.load_s:.0f} s of load on "
        f"one engine in probes of {report.probe_s:.0f} s; "
        f"stopped ({report.stop_code}): {report.stop_reason}."
    )
    lines += [_rate_part(rate) for rate in report.rates]
    lines += _priors(report)
    return "\n\n".join(lines)


def _rate_part(found: PointRate) -> str:
    point = _knobs(found.values)
    if found.rate is None:
        return f"Sustainable rate of {point}: not found: {found.note}"
    req_s = "none" if found.rate.req_s is None else f"{found.rate.req_s:.2f} req/s"
    expected = "nothing" if found.forecast is None else f"x{found.forecast:.3g}"
    return (
        f"Sustainable rate of {point}: {req_s} (forecast {expected}; {found.rate.reason})\n\n"
        f"{rate_table(found.rate)}"
    )


def _knobs(values: ParameterValues) -> str:
    return ", ".join(f"{name}={values.get(name)}" for name in KNOBS)


def _found(report: SearchReport) -> str:
    return _text(report.found) if report.improved else "nothing beat the defaults"


def _row(number: int, probe: ProbedPoint) -> str:
    cells = (
        f"{number}",
        _knobs(probe.values),
        probe.status.value,
        _cell(probe.n, "d"),
        _cell(probe.attainment_frac, ".1%"),
        _cell(probe.worth, ".3f"),
        _cell(probe.forecast, ".3f"),
        probe.reason.replace("|", "/"),
    )
    return "| " + " | ".join(cells) + " |"


def _cell(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _priors(report: SearchReport) -> list[str]:
    """Return every prior with its source and what it was used for: points by number, the stop."""
    uses: dict[PriorUse, list[str]] = {}
    for i, probe in enumerate(report.probes):
        for prior in probe.priors:
            uses.setdefault(prior, []).append(f"{i}")
    for prior in report.priors:
        uses.setdefault(prior, []).append("the stop")
    told = [f"- {p.source}: {p.sentence} (for {', '.join(of)})" for p, of in uses.items()]
    return (
        ["Priors used, and the points that they were used for:\n" + "\n".join(told)] if told else []
    )


def _text(values: ParameterValues) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items) or "vLLM's defaults"
