"""Which way to move by what was seen: the diagnosis and the limit that fails decide.

Rows of knowledge, read in order; the first that holds moves the knobs. Used where an observation
carries no requests to fit, and to choose among points that a forecast cannot tell apart.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tasks.domain.diagnosis_rules import FIRST_READING
from tasks.domain.search.observation import Observation
from tasks.domain.search.protocol import PriorUse
from tasks.domain.search.space import Point
from tasks.domain.steps import TrialStatus

NEAR_CAP = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """The direction (-1, 0, +1) of each knob, and what says so."""

    seqs: int
    tokens: int
    prior: PriorUse

    def leads(self, anchor: Point, point: Point) -> bool:
        """Tell whether a point lies the asked way of the anchor and no other way."""
        moved = (
            (point.max_num_seqs - anchor.max_num_seqs, self.seqs),
            (point.max_num_batched_tokens - anchor.max_num_batched_tokens, self.tokens),
        )
        asked = [delta * way > 0 for delta, way in moved if way]
        kept = all(delta == 0 for delta, way in moved if not way)
        return kept and any(asked) and all(delta * way >= 0 for delta, way in moved)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """A move and when it is made.

    rules: of the diagnosis, one of which must hold; that one is the source, else ``source`` is.
    """

    seqs: int
    tokens: int
    sentence: str
    holds: Callable[[Observation], bool] = lambda o: True
    rules: tuple[str, ...] = ()
    source: str = ""

    def prior(self, o: Observation) -> PriorUse | None:
        """Return what says that the move is to be made, None where it is not."""
        rule = next((rule for rule in self.rules if rule in o.diagnosis), None)
        if (self.rules and rule is None) or not self.holds(o):
            return None
        source = self.source if rule is None else f"diagnosis: {rule} ({_RULE_SOURCES[rule]})"
        return PriorUse(source=source, sentence=self.sentence)


_RULE_SOURCES = {rule.id: rule.source for rule in FIRST_READING}
_GAUGES = "engine: its own gauges"


def _broken(o: Observation, name: str) -> float:
    return 0.0 if o.shares is None else o.shares.broken_frac(name)


def _kv_peaks(o: Observation) -> bool:
    return o.kv_peak_frac is not None and o.kv_peak_frac > NEAR_CAP


def _waits_at_cap(o: Observation) -> bool:
    waits = o.waiting_mean is not None and o.waiting_mean > 0.5
    return waits and o.running_max is not None and o.running_max >= NEAR_CAP * o.point.max_num_seqs


_KV_ROWS = (
    _Row(
        rules=("kv-pressure", "kv-nearly-full"), seqs=-1, tokens=0,
        sentence="the KV pool runs full; fewer sequences at once",
    ),
    _Row(
        holds=_kv_peaks, source=_GAUGES, seqs=-1, tokens=0,
        sentence=f"more than {100 * NEAR_CAP:g} % of the KV pool was in use; fewer sequences",
    ),
)  # fmt: skip
_ROWS = (
    _Row(
        holds=lambda o: not o.complete, seqs=-1, tokens=-1,
        source="plan: memory and work a step grow with both limits",
        sentence="the point gave no outcome; ask less of the engine",
    ),
    *_KV_ROWS,
    _Row(
        rules=("queue-at-cap",), holds=lambda o: _broken(o, "tpot") == 0, seqs=1, tokens=0,
        sentence="requests wait at the cap and TPOT holds; more sequences",
    ),
    _Row(
        holds=lambda o: _broken(o, "ttft") > 0 and _broken(o, "tpot") == 0 and _waits_at_cap(o),
        source=_GAUGES, seqs=1, tokens=0,
        sentence="only TTFT fails and requests wait for a slot; more sequences",
    ),
    _Row(
        rules=("queue-below-cap",), holds=lambda o: _broken(o, "tpot") <= _broken(o, "ttft"),
        seqs=0, tokens=1,
        sentence="requests wait though slots are free and TPOT fails no more than TTFT; "
        "a larger step",
    ),
    _Row(
        rules=("slow-decode",), holds=lambda o: _broken(o, "tpot") > _broken(o, "ttft"),
        seqs=0, tokens=-1,
        sentence="TPOT fails more than TTFT; a smaller step delays decodes less",
    ),
    _Row(
        holds=lambda o: _broken(o, "tpot") > _broken(o, "ttft"),
        seqs=0, tokens=-1,
        source="catalogue: max_num_batched_tokens acts on the ITL of running requests",
        sentence="TPOT fails more than TTFT; a smaller step delays decodes less",
    ),
    _Row(
        rules=("ttft-is-queueing",), holds=lambda o: _broken(o, "ttft") > 0, seqs=1, tokens=1,
        sentence="TTFT fails and is mostly queueing; more sequences or a larger step",
    ),
    _Row(
        rules=("slow-prefill",), holds=lambda o: _broken(o, "ttft") > 0, seqs=0, tokens=1,
        sentence="long prompts miss TTFT; a larger step takes more of them at once",
    ),
    _Row(
        holds=lambda o: _broken(o, "ttft") > 0,
        seqs=0, tokens=1, source="catalogue: max_num_batched_tokens acts on TTFT",
        sentence="TTFT fails more than TPOT; a larger step takes more of the queue",
    ),
)  # fmt: skip


def move_from(observation: Observation) -> Move | None:
    """Return the move that the observation asks for, None where nothing fails.

    What must not be believed asks for nothing: it says no more of the point than of the client.
    """
    if observation.status is TrialStatus.INVALID:
        return None
    for row in _ROWS:
        prior = row.prior(observation)
        if prior is not None:
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
    full = [(o, use) for o in told if (use := _kv_runs_full(o)) is not None]
    if not full:
        return candidates, ()
    least, use = min(full, key=lambda pair: pair[0].point.max_num_seqs)
    cap = least.point.max_num_seqs
    kept = tuple(p for p in candidates if p.max_num_seqs <= cap)
    sentence = (
        f"the KV pool ran full at max_num_seqs={cap}; "
        f"{len(candidates) - len(kept)} points above it are not asked"
    )
    return kept, (replace(use, sentence=sentence),)


def _kv_runs_full(o: Observation) -> PriorUse | None:
    return next((use for row in _KV_ROWS if (use := row.prior(o)) is not None), None)
