"""The installed engine's own argument list and KV size against the catalogue and the plan."""

import os
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


def from_environment(name: str) -> Path:
    value = os.environ.get(name)
    if not value:
        pytest.skip(f"{name} is unset; it names what this test needs")
    return Path(value)


def test_the_engine_has_every_row_of_the_catalogue_but_the_removed(tmp_path: Path) -> None:
    python = from_environment("RETUNE_ENGINE_PYTHON")
    installed = probe_engine(python, cache=tmp_path / "probe.json")
    kept, dropped = for_engine(rows(), installed)
    gone = {r.name for r in rows() if not r.exists_in(installed.version)}
    assert {name for name, _ in dropped} == gone
    assert len(kept) == len(rows()) - len(gone)


@pytest.mark.parametrize("configuration", CONFIGURATIONS[:2], ids=lambda c: c.name)
def test_the_plan_equals_the_size_that_the_engine_prints(configuration: Configuration) -> None:
    python = from_environment("RETUNE_ENGINE_PYTHON")
    model = from_environment("RETUNE_ENGINE_MODEL")
    assert planned_tokens(model, configuration) == printed_tokens(python, model, configuration)
