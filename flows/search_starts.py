"""Finds what the searches of a study start from, and keeps it beside the study's evidence."""

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from flows.study_folder import StudyFolder
from tasks.domain.codec import RecordFormatError, from_text, to_text
from tasks.domain.inflection import Inflection
from tasks.domain.search.start import SearchStart, search_start
from tasks.domain.search_curve import known_inflection, said_curve
from tasks.domain.study_request import Arm, SearchPlan, StudyRequest
from tasks.domain.trial import Trial

RecordT = TypeVar("RecordT")


def kept_start(
    folder: StudyFolder, request: StudyRequest, arm: Arm, plan: SearchPlan
) -> SearchStart:
    """Return what the arm's search starts from: as it was when the search first began.

    What is found is kept and read again by later runs of the study: a curve that another study
    measured meanwhile would change what is asked, and the recalled points would be lost.

    Raises:
        StorageError: if it cannot be kept.
    """
    name = f"report/search-start-{arm.name}.json"
    kept = _read(SearchStart, folder.path / name)
    if kept is not None:
        return kept
    inflection, source = _newest_inflection(folder, request, arm)
    found = search_start(
        request.regime,
        request.slo,
        asked=plan.scenario,
        inflection=inflection,
        inflection_source=source,
    )
    folder.write(name, to_text(found, indent=1))
    return found


def _newest_inflection(
    folder: StudyFolder, request: StudyRequest, arm: Arm
) -> tuple[Inflection | None, str]:
    """Return the inflection point that was measured last and holds for the arm, and where."""
    found = [
        (path.stat().st_mtime, inflection, f"{said_curve(trial)} in {path.parents[2].name}")
        for path, other, trial in _trials_beside(folder)
        if (inflection := known_inflection(request, arm, other=other, trial=trial)) is not None
    ]
    if not found:
        return None, ""
    _, inflection, source = max(found, key=lambda row: (row[0], row[2]))
    return inflection, source


def _trials_beside(folder: StudyFolder) -> Iterator[tuple[Path, StudyRequest, Trial]]:
    """Yield the trials of the home's other studies; what cannot be read is left out."""
    for beside in sorted(folder.path.parent.glob("*/report/request.json")):
        other = _read(StudyRequest, beside)
        if other is None or beside.parents[1] == folder.path:
            continue
        for path in sorted(beside.parents[1].glob("trials/*/trial.json")):
            trial = _read(Trial, path)
            if trial is not None:
                yield path, other, trial


def _read(kind: type[RecordT], path: Path) -> RecordT | None:
    try:
        return from_text(kind, path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, RecordFormatError):
        return None
