"""After a study: its parameter set as a file in the study's folder and as a registered version.

The set is kept as a record first; the file is written anew with the ids of the runs that earned it
whenever those are known, at the study's end or when ``retune record`` is called later.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from flows.environment import Home, tracking_uri
from flows.recording import Recording
from flows.study_folder import StudyFolder
from tasks import publish
from tasks.domain.errors import TuningError
from tasks.domain.parameters import ParameterSet
from tasks.domain.set_registry import registered_name
from tasks.domain.study_product import same_but_dates


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """Where a study's set is: its file, and its version in the registry.

    version is None where it is not registered (yet); error says why, None where nobody tried.
    """

    path: Path
    name: str
    version: str | None = None
    aliases: tuple[str, ...] = ()
    error: str | None = None


def registry_of(place: Home) -> publish.Registry:
    """Return the registry of this process: the tracking store's."""
    return publish.Registry(tracking_uri=tracking_uri(place), lock_dir=place.locks)


def keep_product(folder: StudyFolder, product: ParameterSet) -> ParameterSet:
    """Keep the set as the study made it and return what is kept.

    One that says the same keeps the dates it has: a study that is run again recalls its
    measurements, and their day is not today.
    """
    known = folder.product()
    if known is not None and same_but_dates(known, product):
        return known
    folder.keep_product(product)
    return product


def publish_product(
    product: ParameterSet,
    *,
    folder: StudyFolder,
    place: Home,
    recording: Recording,
    raising: bool = False,
) -> Publication:
    """Write the set with the recorded runs' ids and register it.

    Where nothing is recorded it is written without ids and not registered. What the tracker
    refuses is kept in the result, as recording's errors are, unless ``raising``.

    Raises:
        StorageError: the file cannot be written.
        TuningError: with ``raising``, what the registry says.
    """
    run_ids = tuple(run.run_id for run in recording.runs)
    found = replace(product, provenance=replace(product.provenance, mlflow_run_ids=run_ids))
    path = publish.publish_parameter_set(found, folder.set_file(found.regime))
    name = registered_name(found.model, found.regime)
    if not recording.runs:
        return Publication(path=path, name=name, error=recording.error)
    try:
        version = publish.register_set(path, found, registry=registry_of(place))
    except TuningError as error:
        if raising:
            raise
        sentence = f"{error.code}: {error}; `retune record {folder.path}` registers it later"
        return Publication(path=path, name=name, error=sentence)
    return Publication(path=path, name=name, version=version.version, aliases=version.aliases)
