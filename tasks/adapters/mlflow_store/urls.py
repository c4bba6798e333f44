"""Pages of MLflow's web interface (routes read in MLflow 3.17.2's bundle and looked at)."""

import json
from collections.abc import Sequence
from urllib.parse import quote

_TRAINING = "workflowType=machine_learning"  # else the pages come with the menu for chats


def compare_url(experiment_id: str, run_ids: Sequence[str], base: str) -> str:
    """Return the page that sets runs side by side; with fewer than two, the experiment's runs."""
    if len(run_ids) < 2:
        return runs_url(experiment_id, base)
    runs, experiments = (_json(list(ids)) for ids in (run_ids, [experiment_id]))
    page = f"{base.rstrip('/')}/#/compare-runs"
    return f"{page}?runs={runs}&experiments={experiments}&{_TRAINING}"


def runs_url(
    experiment_id: str, base: str, *, study_id: str | None = None, charts: bool = False
) -> str:
    """Return the experiment's runs as a table or as charts, of one study where its id is given."""
    page = f"{base.rstrip('/')}/#/experiments/{quote(experiment_id)}/runs?{_TRAINING}"
    if charts:
        page += "&compareRunsMode=CHART"
    if study_id is not None:
        page += f"&searchFilter={quote(f'tags.study_id = {json.dumps(study_id)}', safe='')}"
    return page


def run_url(experiment_id: str, run_id: str, base: str) -> str:
    """Return the page of one run."""
    return f"{base.rstrip('/')}/#/experiments/{quote(experiment_id)}/runs/{quote(run_id)}"


def _json(value: list[str]) -> str:
    return quote(json.dumps(value, separators=(",", ":")), safe="")
