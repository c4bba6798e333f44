"""Where a run keeps its things, and the environment that Prefect and MLflow start with."""

import os
from dataclasses import dataclass
from pathlib import Path

from tasks.domain.errors import StorageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """The folder of everything that runs leave behind (RETUNE_HOME, default ``.retune``)."""

    root: Path

    @property
    def studies(self) -> Path:
        """Evidence of studies, nights and release gates, one folder each."""
        return self.root / "studies"

    @property
    def elsewhere(self) -> Path:
        """Where runs stand in the tracking store whose evidence lies outside this home."""
        return self.root / "recorded"

    @property
    def models(self) -> Path:
        """Prepared and quantized checkpoints, named by content."""
        return self.root / "models"

    @property
    def leases(self) -> Path:
        """Records of running engines, by which leftovers are proven ours."""
        return self.root / "leases"

    @property
    def locks(self) -> Path:
        """Locks of devices and stores."""
        return self.root / "locks"

    @property
    def cache(self) -> Path:
        """What was read off the installed engine."""
        return self.root / "cache"


def home() -> Home:
    """Return the home of this process: RETUNE_HOME, else ``.retune`` in the working directory."""
    return Home(root=Path(os.environ.get("RETUNE_HOME") or ".retune").resolve())


def quiet() -> bool:
    """Return whether progress lines are not wanted (RETUNE_QUIET=1)."""
    return os.environ.get("RETUNE_QUIET") == "1"


def tracking_uri(place: Home) -> str:
    """Return MLFLOW_TRACKING_URI where it is set, else the local sqlite store's."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{place.root / 'mlflow/mlflow.db'}"


def engine_python() -> Path:
    """Return the engine environment's interpreter (RETUNE_ENGINE_PYTHON, else .venv-engine)."""
    return _interpreter("RETUNE_ENGINE_PYTHON", ".venv-engine")


def quantizer_python() -> Path:
    """Return the quantizer environment's interpreter (RETUNE_QUANTIZE_PYTHON, .venv-quantize)."""
    return _interpreter("RETUNE_QUANTIZE_PYTHON", ".venv-quantize")


def _interpreter(variable: str, folder: str) -> Path:
    # Not resolved: a virtual environment's python is a link, and following it leaves it.
    return Path(os.environ.get(variable) or Path(folder) / "bin" / "python").absolute()


def make_folder(folder: Path) -> None:
    """Make a folder and its parents.

    Raises:
        StorageError: it cannot be made; names it and what to do.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"{folder}: cannot be made: {error}; set RETUNE_HOME to a folder that you may write"
        ) from error


def prepare_prefect(place: Home) -> None:
    """Set what Prefect reads when it is imported; what the user set stays.

    Without PREFECT_API_URL and PREFECT_HOME the embedded server keeps its database under the
    home, so that it meets no other Prefect's. Its own limit of twenty seconds to start fails on a
    loaded host, and so did two minutes.
    """
    defaults = {
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "600",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_LOGGING_LEVEL": "WARNING",
        # A step that failed is told in one line by the progress; Prefect would add a traceback.
        "PREFECT_LOGGING_LOGGERS_PREFECT_TASK_RUNS_LEVEL": "CRITICAL",
        "PREFECT_CLI_COLORS": "false",
        "DO_NOT_TRACK": "1",
    }
    if "PREFECT_API_URL" not in os.environ and "PREFECT_HOME" not in os.environ:
        folder = place.root / "prefect"
        make_folder(folder)
        defaults["PREFECT_HOME"] = str(folder)
    for name, value in defaults.items():
        os.environ.setdefault(name, value)
