"""Where a search may start: vLLM's defaults, its performance modes, the guide, the inflection.

Every value comes with the row that it was read from.
"""

from collections.abc import Iterable
from dataclasses import replace

from tasks.domain.catalogue.lookup import row
from tasks.domain.search.protocol import PriorUse
from tasks.domain.search.space import SEQS, TOKENS, Point, SearchSpace, knob
from tasks.domain.search.start import NO_START, SearchStart

Suggested = tuple[Point, PriorUse]


def suggested_levels(
    defaults: dict[str, int], start: SearchStart = NO_START
) -> dict[str, tuple[int, ...]]:
    """Return levels of both knobs for a study that gives none: octaves between the sources.

    From the guide's smallest recommendation (or 16 octave steps of a sixteenth of the default)
    to twice the default, which performance_mode=throughput would set.
    """
    found: dict[str, tuple[int, ...]] = {}
    for name, default in defaults.items():
        numbers = [value for value, _ in _guide_values(name, start)]
        low = min([*numbers, max(1, default // 16)])
        levels = {2 * default, *numbers}
        value = default
        while value >= low and value >= 1:
            levels.add(value)
            value //= 2
        found[name] = tuple(sorted(levels))
    return found


def starting_points(space: SearchSpace, start: SearchStart = NO_START) -> tuple[Suggested, ...]:
    """Return points of the reference's cell worth asking before anything else is known.

    Wishes are moved to the nearest value that the space has.
    """
    ref = space.reference
    wishes: list[tuple[int, int, PriorUse]] = []
    known = start.inflection
    if known is not None and known.choose is not None and known.knee is not None:
        use = PriorUse(source=f"inflection point: {start.inflection_source}", sentence=known.reason)
        wishes.append((known.choose, ref.max_num_batched_tokens, use))
    for value, use in _guide_values(SEQS, start):
        wishes.append((value, ref.max_num_batched_tokens, use))
    for value, use in _guide_values(TOKENS, start):
        wishes.append((ref.max_num_seqs, value, use))
    mode = row("performance_mode")
    use = PriorUse(source=f"catalogue: {mode.name} ({mode.source})", sentence=mode.meaning)
    wishes.append((2 * ref.max_num_seqs, 2 * ref.max_num_batched_tokens, use))
    found: dict[Point, PriorUse] = {}
    for seqs, tokens, use in wishes:
        point = _nearest(space, seqs, tokens)
        if (knob(point, SEQS), knob(point, TOKENS)) != (seqs, tokens):
            moved = f"{use.sentence}; the nearest point to ({SEQS}={seqs}, {TOKENS}={tokens})"
            use = replace(use, sentence=moved)
        found.setdefault(point, use)
    found.pop(ref, None)
    return tuple(found.items())


def _guide_values(name: str, start: SearchStart) -> Iterable[tuple[int, PriorUse]]:
    found = None if start.scenario is None else row(name).recommendation(start.scenario)
    if found is None:
        return
    doubt = f"; but {found.doubt}" if found.doubt else ""
    for value in (found.high, found.low):
        if value is not None:
            yield (
                int(value),
                PriorUse(
                    source=f"catalogue: {name}, guide's values for {found.scenario.value} "
                    f"({start.scenario_source})",
                    sentence=f"{name}={int(value)}: {found.reason}{doubt}",
                ),
            )


def _nearest(space: SearchSpace, seqs: int, tokens: int) -> Point:
    cell = space.reference.cell
    inside = [p for p in space.points if p.cell == cell]

    def distance(point: Point) -> float:
        ratios = (knob(point, SEQS) / seqs, knob(point, TOKENS) / tokens)
        return sum(max(r, 1 / r) for r in ratios)

    return min(inside, key=distance)
