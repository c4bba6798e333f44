"""What a study that is still running has found, for the report that a killed run leaves."""

from dataclasses import dataclass, field

from tasks.domain.arm_run import ArmRun
from tasks.domain.arm_search import ArmSearch
from tasks.domain.search_found import SearchReport
from tasks.domain.trial import Trial


@dataclass(slots=True)
class StudySoFar:
    """The searches and the arms' runs that a study has begun; ``run_study`` fills it."""

    _searches: list[ArmSearch] = field(default_factory=list)
    _runs: list[ArmRun] = field(default_factory=list)

    def begun_search(self, search: ArmSearch) -> None:
        """Note a search that begins."""
        self._searches.append(search)

    def begun_run(self, run: ArmRun) -> None:
        """Note an arm's run that begins."""
        self._runs.append(run)

    @property
    def searches(self) -> tuple[SearchReport, ...]:
        """Every search that has begun, with what it has found."""
        return tuple(search.so_far() for search in self._searches)

    @property
    def trials(self) -> tuple[Trial, ...]:
        """Every arm of which something has been measured or has failed."""
        found = (run.notes for run in self._runs)
        return tuple(n.finished() for n in found if n.measurements or n.failure is not None)
