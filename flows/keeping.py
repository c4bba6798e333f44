"""Keeps what a study has found while it runs, so that a host that is cut off loses no report."""

from collections.abc import Callable
from dataclasses import dataclass, field

from flows.study_folder import StudyFolder
from tasks.domain.codec import to_text
from tasks.domain.search_found import SearchReport
from tasks.domain.steps import Outcome, Step
from tasks.domain.study_report import unfinished_report
from tasks.domain.study_request import StudyRequest
from tasks.domain.study_so_far import StudySoFar
from tasks.domain.trial import Trial


@dataclass(slots=True, kw_only=True)
class Keeper:
    """Writes a study's report, searches and trials before each step that follows a find."""

    request: StudyRequest
    folder: StudyFolder
    so_far: StudySoFar
    _kept: str = field(default="")

    def before_each(self, carry_out: Callable[[Step], Outcome]) -> Callable[[Step], Outcome]:
        """Return ``carry_out`` with the keeping before it.

        Raises, when called:
            StorageError: what was found cannot be written.
        """

        def keep_and_carry_out(step: Step) -> Outcome:
            self._keep()
            return carry_out(step)

        return keep_and_carry_out

    def _keep(self) -> None:
        searches, trials = self.so_far.searches, self.so_far.trials
        if not trials and not any(search.probes for search in searches):
            return
        report = unfinished_report(self.request, searches, trials)
        if report == self._kept:
            return
        self._kept = report
        self.folder.write("report/report.md", report)
        keep_found(self.folder, searches, trials)


def keep_found(
    folder: StudyFolder, searches: tuple[SearchReport, ...], trials: tuple[Trial, ...]
) -> None:
    """Write each search's report and each arm's trial.

    Raises:
        StorageError: one cannot be written.
    """
    for search in searches:
        folder.write(f"report/search-{search.arm}.json", to_text(search, indent=1))
    for trial in trials:
        folder.write(f"trials/{trial.arm.name}/trial.json", to_text(trial, indent=1))
