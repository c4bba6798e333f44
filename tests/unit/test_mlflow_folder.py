"""The folder mlflow/ holds texts and deployment files; Python in it would hide the library."""

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


def test_the_folder_holds_no_python():
    folder = REPOSITORY / "mlflow"
    assert (folder / "README.md").is_file()
    assert sorted(folder.rglob("*.py")) == []


def test_import_mlflow_from_the_repository_root_finds_the_library():
    # find_spec looks for the module as the import does, without the seconds of running it
    code = "import importlib.util as u; print(u.find_spec('mlflow').origin)"
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    origin = Path(found.stdout.strip())
    assert origin.name == "__init__.py"
    assert not origin.is_relative_to(REPOSITORY / "mlflow")


def test_mlflow_is_imported_in_one_file_only():
    importers = [
        path.relative_to(REPOSITORY).as_posix()
        for package in ("flows", "tasks")
        for path in (REPOSITORY / package).rglob("*.py")
        if any(
            line.strip().startswith(("import mlflow", "from mlflow"))
            for line in path.read_text(encoding="utf-8").splitlines()
        )
    ]
    assert importers == ["tasks/adapters/mlflow_store/library.py"]
