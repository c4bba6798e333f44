"""Where a search may start: vLLM's defaults, its performance modes, the guide, the inflection.

Every value comes with the row that it was read from.
"""

from collections.abc import Iterable

from tasks.domain.catalogue.lookup import row
from tasks.domain.catalogue.row import Scenario
from tasks.domain.inflection import Inflection
from tasks.domain.search.protocol import PriorUse
from tasks.domain.search.space import SEQS, TOKENS, Point, SearchSpace, knob

Suggested = tuple[Point, PriorUse]


def suggested_levels(
    defaults: dict[str, int], *, scenario: Scenario | None = None
) -> dict[str, tuple[int, ...]]:
    """Return levels of both knobs for a study that gives none: octaves between the sources.

    From the guide's smallest recommendation (or 16 octave steps of a sixteenth of the default)
    to twice the default, which performance_mode=throughput would set.
    """
    found: dict[str, tuple[int, ...]] = {}
    for name, default in defaults.items():
        numbers = [value for value, _ in _guide_values(name, scenario)]
        low = min([*numbers, max(1, default // 16)])
        levels = {2 * default, *numbers}
        value = default
        while value >= low and value >= 1:
            levels.add(value)
            value //= 2
        found[name] = tuple(sorted(levels))
    return found


def starting_points(
    space: SearchSpace, *, scenario: Scenario | None = None, inflection: Inflection | None = None
) -> tuple[Suggested, ...]:
    """Return points of the reference's cell worth asking before anything else is known.

    Wishes are moved to the nearest value that the space has.
    """
    ref = space.reference
    wishes: list[tuple[int, int, PriorUse]] = []
    if inflection is not None and inflection.choose is not None and inflection.knee is not None:
        use = PriorUse(source="inflection point", sentence=inflection.reason)
        wishes.append((inflection.choose, ref.max_num_batched_tokens, use))
    for value, use in _guide_values(SEQS, scenario):
        wishes.append((value, ref.max_num_batched_tokens, use))
    for value, use in _guide_values(TOKENS, scenario):
        wishes.append((ref.max_num_seqs, value, use))
    mode = row("performance_mode")
    use = PriorUse(source=f"catalogue: {mode.name} ({mode.source})", sentence=mode.meaning)
    wishes.append((2 * ref.max_num_seqs, 2 * ref.max_num_batched_tokens, use))
    found: dict[Point, PriorUse] = {}
    for seqs, tokens, use in wishes:
        found.setdefault(_nearest(space, seqs, tokens), use)
    found.pop(ref, None)
    return tuple(found.items())


def _guide_values(name: str, scenario: Scenario | None) -> Iterable[tuple[int, PriorUse]]:
    found = None if scenario is None else row(name).recommendation(scenario)
    if found is None:
        return
    doubt = f"; but {found.doubt}" if found.doubt else ""
    use = PriorUse(
        source=f"catalogue: {name}, guide's values for {found.scenario.value}",
        sentence=f"{found.reason}{doubt}",
    )
    for value in (found.high, found.low):
        if value is not None:
            yield int(value), use


def _nearest(space: SearchSpace, seqs: int, tokens: int) -> Point:
    cell = space.reference.cell
    inside = [p for p in space.points if p.cell == cell]

    def distance(point: Point) -> float:
        ratios = (knob(point, SEQS) / seqs, knob(point, TOKENS) / tokens)
        return sum(max(r, 1 / r) for r in ratios)

    return min(inside, key=distance)
