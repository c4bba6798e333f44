"""Pages of MLflow's web interface (routes read in MLflow 3.17.2's bundle)."""

import json
from collections.abc import Sequence
from urllib.parse import quote


def compare_url(experiment_id: str, run_ids: Sequence[str], base: str) -> str:
    """Return the page that sets runs side by side; with fewer than two, the experiment's runs."""
    if len(run_ids) < 2:
        return runs_url(experiment_id, base)
    runs, experiments = (_json(list(ids)) for ids in (run_ids, [experiment_id]))
    return f"{base.rstrip('/')}/#/compare-runs?runs={runs}&experiments={experiments}"


def runs_url(experiment_id: str, base: str, *, study_id: str | None = None) -> str:
    """Return the experiment's table of runs, of one study where its id is given."""
    page = f"{base.rstrip('/')}/#/experiments/{quote(experiment_id)}/runs"
    if study_id is None:
        return page
    return f"{page}?searchFilter={quote(f'tags.study_id = {json.dumps(study_id)}', safe='')}"


def run_url(experiment_id: str, run_id: str, base: str) -> str:
    """Return the page of one run."""
    return f"{base.rstrip('/')}/#/experiments/{quote(experiment_id)}/runs/{quote(run_id)}"


def _json(value: list[str]) -> str:
    return quote(json.dumps(value, separators=(",", ":")), safe="")
