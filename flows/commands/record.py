"""``retune record``: copy runs' evidence to MLflow, now or again, and register their sets."""

from dataclasses import dataclass
from pathlib import Path

from flows.environment import Home, home
from flows.output import print_json, print_lines
from flows.publishing import Publication, publish_product
from flows.recording import Recording, record_folder
from flows.study_folder import StudyFolder, run_folders
from tasks.domain.errors import TuningError


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One run's folder in the store. publication: None for a run that leaves no set."""

    recording: Recording
    publication: Publication | None


def record_command(folder: Path, *, as_json: bool) -> int:
    """Record a run's folder, or every run below a home, and say where the runs stand.

    Of several runs, one that cannot be recorded does not keep the others; the exit code is then 2.
    """
    place, folders = home(), run_folders(folder.absolute())
    found: list[dict[str, object]] = []
    failed = False
    for one in folders:
        try:
            recorded = record_one(one, place)
        except TuningError as error:
            if len(folders) == 1:
                raise
            failed = True
            found.append({"folder": str(one.path), "error": f"{error.code}: {error}"})
            if not as_json:
                print_lines([f"{one.path}: not recorded: {error.code}: {error}"])
            continue
        found.append(_document(one, recorded))
        if not as_json:
            _print(one, recorded)
    if as_json:
        print_json({"runs": found})
    return 2 if failed else 0


def record_one(folder: StudyFolder, place: Home) -> Recorded:
    """Record one run's folder and register the set that it left, if it left one.

    Raises:
        TuningError: what keeps it from the store; nothing is lost.
    """
    recording = record_folder(folder, place)
    product = folder.product()
    if product is None:
        return Recorded(recording=recording, publication=None)
    publication = publish_product(
        product, folder=folder, place=place, recording=recording, raising=True
    )
    return Recorded(recording=recording, publication=publication)


def _document(folder: StudyFolder, recorded: Recorded) -> dict[str, object]:
    recording, publication = recorded.recording, recorded.publication
    registered = None
    if publication is not None:
        registered = {
            "file": str(publication.path),
            "name": publication.name,
            "version": publication.version,
            "aliases": list(publication.aliases),
        }
    return {
        "folder": str(folder.path),
        "tracking_uri": recording.tracking_uri,
        "experiment": recording.experiment,
        "runs": list(recording.runs),
        "parameter_set": registered,
    }


def _print(folder: StudyFolder, recorded: Recorded) -> None:
    recording, publication = recorded.recording, recorded.publication
    print_lines([f"{folder.path.name}: {recording.experiment} at {recording.tracking_uri}"])
    print_lines(f"{run.key}: run {run.run_id}" for run in recording.runs)
    if publication is not None:
        aliases = ", ".join(publication.aliases) or "no alias"
        print_lines([f"set {publication.name}: version {publication.version} ({aliases})"])
