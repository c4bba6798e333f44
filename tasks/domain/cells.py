"""Cells of a search: arms that differ in values that need a restart. One a group is confirmed."""

from collections.abc import Mapping, Sequence

from tasks.domain.search_found import SearchReport
from tasks.domain.steps import Failed, TrialStatus
from tasks.domain.study_request import Arm


def cells_not_best(
    arms: Sequence[Arm], searches: Mapping[str, SearchReport], *, min_gain_frac: float
) -> dict[str, Failed]:
    """Return why the arms that are not their group's best cell are not measured again.

    searches: by the arm's name, those that found something to compare. The best cell has the
    highest worth; among those within ``min_gain_frac`` of it the one with the fewest values.
    """
    found: dict[str, Failed] = {}
    for group in dict.fromkeys(arm.cell_of for arm in arms if arm.cell_of):
        members = [arm for arm in arms if arm.cell_of == group]
        worths = {
            arm.name: worth
            for arm in members
            if arm.name in searches and (worth := searches[arm.name].best_worth) is not None
        }
        if not worths:
            continue
        top = max(worths.values())
        near = [a for a in members if worths.get(a.name, -1.0) * (1 + min_gain_frac) >= top]
        best = min(near, key=lambda arm: (len(arm.values.items), -worths[arm.name]))
        for arm in members:
            if arm is not best and arm.name in worths:
                found[arm.name] = Failed(
                    code="CELL_NOT_BEST",
                    message=f"cell {best.name} is worth {worths[best.name]:.3f}, this one "
                    f"{worths[arm.name]:.3f}; only the best cell of {group} is confirmed",
                    status=TrialStatus.PRUNED,
                )
    return found
