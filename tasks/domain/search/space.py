"""The points that a search may ask: restart-only cells outside, live knobs inside.

Space = catalogue, narrowed to the installed engine, the plan's feasible region and the study.
What is left out is kept with the reason. Knows names and values, never what they do to latency.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from tasks.domain.catalogue.installed import InstalledEngine
from tasks.domain.catalogue.lookup import absence, find, has_argument
from tasks.domain.catalogue.row import Change
from tasks.domain.errors import InvalidParameterError
from tasks.domain.feasibility import scheduler_problems
from tasks.domain.parameters import ParameterValues

SEQS, TOKENS = "max_num_seqs", "max_num_batched_tokens"
KNOBS = (SEQS, TOKENS)

Infeasible = Callable[[ParameterValues], str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One assignment: ``cell`` needs a restart, the two knobs change live.

    overrides: how many names differ from what the engine does unasked.
    """

    cell: ParameterValues
    max_num_seqs: int
    max_num_batched_tokens: int
    overrides: int = 0

    @property
    def values(self) -> ParameterValues:
        """Return the whole assignment, every knob written out."""
        return self.cell.overriding({SEQS: self.max_num_seqs, TOKENS: self.max_num_batched_tokens})

    @property
    def text(self) -> str:
        """Return the point as a person reads it."""
        cell = "".join(f"{name}={value}, " for name, value in self.cell.items)
        return f"({cell}{SEQS}={self.max_num_seqs}, {TOKENS}={self.max_num_batched_tokens})"


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSpace:
    """Points without a duplicate; ``reference`` is one of them and is measured first.

    dropped: (name, sentence) of what the engine does not take. refused: (point, sentence) of what
    cannot run by the plan or by vLLM's own checks. kv_tokens: the KV pool's size by the plan, None
    where it is not known.
    """

    points: tuple[Point, ...]
    reference: Point
    dropped: tuple[tuple[str, str], ...] = ()
    refused: tuple[tuple[str, str], ...] = ()
    kv_tokens: int | None = None

    def __post_init__(self) -> None:
        """Refuse duplicates and a reference from outside.

        Raises:
            InvalidParameterError: names the point.
        """
        if self.reference not in self.points:
            raise InvalidParameterError(
                f"the reference {self.reference.text} is not among the {len(self.points)} points; "
                "add it: every search measures it first"
            )
        if len(set(self.points)) != len(self.points):
            twice = next(p for p in self.points if self.points.count(p) > 1)
            raise InvalidParameterError(f"point {twice.text} is given twice; give it once")

    @property
    def cells(self) -> tuple[ParameterValues, ...]:
        """Return the cells in order, the reference's first."""
        return tuple(dict.fromkeys((self.reference.cell, *(p.cell for p in self.points))))

    def levels(self, name: str) -> tuple[int, ...]:
        """Return the values of a knob that occur, ascending."""
        return tuple(sorted({knob(point, name) for point in self.points}))

    def coordinates(self, point: Point) -> tuple[int, int, int]:
        """Return (index of the cell, level of max_num_seqs, level of max_num_batched_tokens)."""
        return (
            self.cells.index(point.cell),
            self.levels(SEQS).index(point.max_num_seqs),
            self.levels(TOKENS).index(point.max_num_batched_tokens),
        )


def knob(point: Point, name: str) -> int:
    """Return the value of a live knob."""
    return point.max_num_seqs if name == SEQS else point.max_num_batched_tokens


def build_space(
    *,
    cells: Sequence[ParameterValues],
    levels: Mapping[str, Iterable[int]],
    defaults: Mapping[str, int],
    installed: InstalledEngine,
    max_model_len: int | None = None,
    infeasible: Infeasible | None = None,
    kv_tokens: int | None = None,
) -> SearchSpace:
    """Return the cross product of cells and knob levels without what cannot run.

    defaults: the knobs' values when nobody sets them; they are always among the levels. The first
    cell with the defaults is the reference. ``infeasible`` is the plan: the reason why an
    assignment cannot run, or None.

    Raises:
        InvalidParameterError: where even the reference cannot run.
    """
    dropped: list[tuple[str, str]] = []
    refused: list[tuple[str, str]] = []
    kept_cells = [_known(cell, installed, dropped) for cell in cells]
    points: list[Point] = []
    grids = [sorted({*levels.get(name, ()), defaults[name]}) for name in KNOBS]
    for cell, seqs, tokens in product(dict.fromkeys(kept_cells), *grids):
        changed = (seqs != defaults[SEQS]) + (tokens != defaults[TOKENS]) + len(cell.items)
        point = Point(
            cell=cell, max_num_seqs=seqs, max_num_batched_tokens=tokens, overrides=changed
        )
        reason = _refusal(point, max_model_len, infeasible)
        if reason is None:
            points.append(point)
        else:
            refused.append((point.text, reason))
    wanted = {name: defaults[name] for name in KNOBS}
    reference = next((p for p in points if p.cell == kept_cells[0] and _knobs(p) == wanted), None)
    if reference is None:
        raise InvalidParameterError(
            f"the reference {wanted} cannot run: {refused[0][1] if refused else 'no cell given'}; "
            "lower the values that the study starts from"
        )
    return SearchSpace(
        points=tuple(points),
        reference=reference,
        dropped=tuple(dropped),
        refused=tuple(refused),
        kv_tokens=kv_tokens,
    )


def _knobs(point: Point) -> dict[str, int]:
    return {name: knob(point, name) for name in KNOBS}


def _known(
    cell: ParameterValues, installed: InstalledEngine, dropped: list[tuple[str, str]]
) -> ParameterValues:
    kept = {}
    for name, value in cell.items:
        row = find(name)
        if not has_argument(name, installed):
            dropped.append((name, absence(name, installed)))
        elif row is not None and row.change is Change.LIVE and name in KNOBS:
            dropped.append((name, f"{name} is a live knob; give its levels, not a cell"))
        else:
            kept[name] = value
    return ParameterValues.of(kept)


def _refusal(point: Point, max_model_len: int | None, plan: Infeasible | None) -> str | None:
    chunked = point.cell.get("enable_chunked_prefill")
    problems = scheduler_problems(
        max_num_seqs=point.max_num_seqs,
        max_num_batched_tokens=point.max_num_batched_tokens,
        max_model_len=max_model_len,
        enable_chunked_prefill=chunked if isinstance(chunked, bool) else None,
    )
    if problems:
        return problems[0].sentence
    return None if plan is None else plan(point.values)
