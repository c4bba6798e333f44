"""The installed engine's own argument list and KV size against the catalogue and the plan."""

from pathlib import Path

import pytest

from tasks.adapters.engine_probe import probe_engine
from tasks.domain.catalogue.lookup import for_engine, rows
from tests.benchmarks.plan_against_engine import (
    CONFIGURATIONS,
    Configuration,
    planned_tokens,
    printed_tokens,
)

pytestmark = pytest.mark.engine


def test_the_engine_has_every_row_of_the_catalogue_but_the_removed(
    engine_python: str, tmp_path: Path
) -> None:
    installed = probe_engine(Path(engine_python), cache=tmp_path / "probe.json")
    kept, dropped = for_engine(rows(), installed)
    gone = {r.name for r in rows() if not r.exists_in(installed.version)}
    assert {name for name, _ in dropped} == gone
    assert len(kept) == len(rows()) - len(gone)


@pytest.mark.parametrize("configuration", CONFIGURATIONS[:2], ids=lambda c: c.name)
def test_the_plan_equals_the_size_that_the_engine_prints(
    engine_python: str, model_dir: Path, configuration: Configuration
) -> None:
    printed = printed_tokens(Path(engine_python), model_dir, configuration)
    assert planned_tokens(model_dir, configuration) == printed
