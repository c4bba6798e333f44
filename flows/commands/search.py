"""``retune search``: the searches of a study alone, without Prefect and MLflow."""

from pathlib import Path

from flows.environment import Home, home, quiet
from flows.output import print_json, print_lines
from flows.preparation import prepare_study
from flows.progress import Reporter
from flows.study_run import conduct_searches
from tasks.adapters.config_files.loading import load_study
from tasks.domain.search_report import search_part


def search_command(study: Path, *, offline: Path | None, as_json: bool) -> int:
    """Run the searches and print what they found; 1 where one could not be made."""
    place = home() if offline is None else Home(root=offline.resolve())
    reporter = Reporter(quiet=quiet())
    materials = prepare_study(load_study(study), place, reporter)
    searches = conduct_searches(materials, reporter=reporter)
    if as_json:
        print_json(list(searches))
    else:
        print_lines(search_part(search) for search in searches)
    return 1 if any(search.failure is not None for search in searches) else 0
