"""Which way to move when there is no model to ask: the limit that fails decides.

Rows of knowledge, read in order; the first that holds moves the knobs. Used where an observation
carries no requests to fit, and to say in words why a point is asked.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tasks.domain.search.observation import Observation
from tasks.domain.search.protocol import PriorUse
from tasks.domain.search.space import Point

NEAR_CAP = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """The direction (-1, 0, +1) of each knob, and what says so."""

    seqs: int
    tokens: int
    prior: PriorUse


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    holds: Callable[[Observation], bool]
    seqs: int
    tokens: int
    source: str
    sentence: str


def _diagnosed(*rules: str) -> Callable[[Observation], bool]:
    return lambda o: any(rule in o.diagnosis for rule in rules)


def _broken(o: Observation, name: str) -> float:
    return 0.0 if o.shares is None else o.shares.broken_frac(name)


def _kv_runs_full(o: Observation) -> bool:
    full = o.kv_peak_frac is not None and o.kv_peak_frac > NEAR_CAP
    return full or _diagnosed("kv-pressure", "kv-nearly-full")(o)


def _waits_at_cap(o: Observation) -> bool:
    waits = o.waiting_mean is not None and o.waiting_mean > 0.5
    return waits and o.running_max is not None and o.running_max >= NEAR_CAP * o.point.max_num_seqs


_ROWS = (
    _Row(
        holds=lambda o: not o.complete, seqs=-1, tokens=-1,
        source="plan: memory and work a step grow with both limits",
        sentence="the point gave no outcome; ask less of the engine",
    ),
    _Row(
        holds=lambda o: _kv_runs_full(o),
        seqs=-1, tokens=0, source="diagnosis: kv-pressure",
        sentence="the KV pool runs full; fewer sequences at once",
    ),
    _Row(
        holds=lambda o: _broken(o, "ttft") > 0 and _broken(o, "tpot") == 0 and _waits_at_cap(o),
        seqs=1, tokens=0, source="diagnosis: queue-at-cap",
        sentence="only TTFT fails and requests wait for a slot; more sequences",
    ),
    _Row(
        holds=lambda o: _diagnosed("queue-at-cap")(o) and _broken(o, "tpot") == 0,
        seqs=1, tokens=0, source="diagnosis: queue-at-cap",
        sentence="requests wait at the cap; more sequences",
    ),
    _Row(
        holds=lambda o: _broken(o, "tpot") > _broken(o, "ttft"),
        seqs=0, tokens=-1,
        source="catalogue: max_num_batched_tokens acts on the ITL of running requests",
        sentence="TPOT fails more than TTFT; a smaller step delays decodes less",
    ),
    _Row(
        holds=lambda o: _broken(o, "ttft") > 0,
        seqs=0, tokens=1, source="catalogue: max_num_batched_tokens acts on TTFT",
        sentence="TTFT fails more than TPOT; a larger step takes more of the queue",
    ),
)  # fmt: skip


def move_from(observation: Observation) -> Move | None:
    """Return the move that the observation asks for, None where nothing fails."""
    for row in _ROWS:
        if row.holds(observation):
            prior = PriorUse(source=row.source, sentence=row.sentence)
            return Move(seqs=row.seqs, tokens=row.tokens, prior=prior)
    return None


def failing_limits(observation: Observation) -> str:
    """Return one clause on which limits fail and for how many requests."""
    shares = observation.shares
    if shares is None:
        return observation.note or f"no outcome ({observation.status.value})"
    parts: Sequence[str] = [f"{name} fails for {100 * f:.0f} %" for name, f in shares.broken]
    return ", ".join(parts) if parts else "no limit applies"


def without_kv_pressure(
    told: Sequence[Observation], candidates: tuple[Point, ...]
) -> tuple[tuple[Point, ...], tuple[PriorUse, ...]]:
    """Return the candidates that run no more sequences than a point whose KV pool ran full."""
    full = [o.point.max_num_seqs for o in told if _kv_runs_full(o)]
    if not full:
        return candidates, ()
    cap = min(full)
    kept = tuple(p for p in candidates if p.max_num_seqs <= cap)
    use = PriorUse(
        source="diagnosis: kv-pressure",
        sentence=f"the KV pool ran full at max_num_seqs={cap}; "
        f"{len(candidates) - len(kept)} points above it are not asked",
    )
    return kept, (use,)
