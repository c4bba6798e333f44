"""One night: every regime's set in force held against fresh traffic."""

import datetime as dt
import uuid
from dataclasses import dataclass, replace
from pathlib import Path

from flows.environment import Home
from flows.host import find_host
from flows.materials import Materials, attached_otherwise
from flows.preparation import prepare_model, prepare_night
from flows.progress import Reporter
from flows.recall import KnownOutcomes, shared_outcomes
from flows.recording import Recording, record_runs_of
from flows.set_fitting import fitted_set
from flows.study_folder import StudyFolder
from flows.study_run import Wrap, no_wrap, with_engine
from tasks import deploy, drift
from tasks.domain.codec import to_text
from tasks.domain.errors import ConfigError
from tasks.domain.night_runs import night_runs
from tasks.domain.nightly import NightVerdict, revalidate
from tasks.domain.site_files import NightlyFiles
from tasks.domain.study import drive


@dataclass(frozen=True, slots=True, kw_only=True)
class NightReport:
    """One regime's night: its verdict, its evidence and where it was recorded."""

    verdict: NightVerdict
    folder: Path
    recording: Recording


def conduct_night(
    files: NightlyFiles,
    place: Home,
    *,
    regime: str | None = None,
    url: str | None = None,
    reporter: Reporter,
    wrap: Wrap = no_wrap,
    tags: tuple[tuple[str, str], ...] = (),
) -> tuple[NightReport, ...]:
    """Re-validate every regime, or the one named; ``url`` measures on a running engine.

    Raises:
        ConfigError: the regime is not in the file.
        DeviceLockedError, StorageError: as a study does.
    """
    chosen = [part for part in files.regimes if regime in (None, part.regime.value)]
    if not chosen:
        known = ", ".join(part.regime.value for part in files.regimes)
        raise ConfigError(f"{files.path}: regimes: no {regime!r} there; it holds {known}")
    attached = None if url is None else deploy.attach_engine(url)
    host = find_host(place, attached=attached)
    prepared = prepare_model(files.model, place, reporter)
    reports = []
    for named in chosen:
        fitted = fitted_set(named.parameter_set, host.installed.version, reporter)
        part = replace(named, parameter_set=fitted)
        materials = prepare_night(files, part, place=place, host=host, prepared=prepared)
        materials = replace(materials, attached=attached)
        others = attached_otherwise(materials)
        if others:
            raise ConfigError(
                f"{url} serves other values than {fitted.name}: {'; '.join(others)}; attach the "
                "engine that serves the set, or leave --url away",
                code="ATTACHED_OTHERWISE",
            )
        reports.append(_one_regime(materials, reporter=reporter, wrap=wrap, tags=tags))
    return tuple(reports)


def _one_regime(
    materials: Materials, *, reporter: Reporter, wrap: Wrap, tags: tuple[tuple[str, str], ...]
) -> NightReport:
    request = materials.request
    # A night is measured anew each time it is asked for: an hour later the host is another one.
    night = f"{dt.datetime.now(dt.UTC):%Y%m%dT%H%M%SZ}-{uuid.uuid4().hex[:4]}"
    folder = StudyFolder.of(materials.place, request.name, night)
    reporter.scope(f"{request.name}")
    reporter.line("drift: comparing the fresh traffic with the reference")
    compared = drift.compare_traffic(
        materials.traces["reference"], materials.traces["fresh"], seed=request.seed
    )
    folder.write("report/drift.json", to_text(compared, indent=1))
    known = KnownOutcomes(own=folder.outcomes, shared=shared_outcomes(materials.place))
    running = revalidate(
        request,
        night=night,
        parameter_set=request.arms[0].name,
        drift=compared,
        recall=known,
    )
    verdict = with_engine(
        materials, folder, known, reporter, lambda carry_out: drive(running, wrap(carry_out))
    )
    folder.write("report/verdict.json", to_text(verdict, indent=1))
    runs = night_runs(request, verdict, night=night, tags=tags)
    recording = record_runs_of(runs, materials=materials, folder=folder)
    return NightReport(verdict=verdict, folder=folder.path, recording=recording)
