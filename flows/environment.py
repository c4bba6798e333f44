"""Where a run keeps its things, and what its environment says of interpreters and stores."""

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

    @property
    def hashes(self) -> Path:
        """What is remembered of large files that were hashed."""
        return self.cache / "hashes"


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
