"""Fixtures for every test: where the shared samples lie, and that CI never skips them."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

REPOSITORY = Path(__file__).resolve().parents[1]

settings.register_profile("untimed", deadline=None)  # no test may depend on the host's speed
settings.load_profile("untimed")


def pytest_report_header() -> str:
    """Say whether the shared samples are there: without them their tests skip outside CI."""
    state = "present" if _shared().is_dir() else "absent"
    return f"shared samples: {state} at {_shared()}"


def _shared() -> Path:
    return Path(os.environ.get("RETUNE_SHARED", REPOSITORY.parent / "shared"))


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """Return the folder of shared samples; skip outside CI where it is absent."""
    path = _shared()
    if not path.is_dir():
        if os.environ.get("CI") == "true":
            pytest.fail(f"{path} is absent in CI; tests on shared samples must not skip there")
        pytest.skip(f"shared samples are absent: {path} (set RETUNE_SHARED)")
    return path
