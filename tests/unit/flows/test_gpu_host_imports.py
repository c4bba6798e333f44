"""A GPU host has the engine's packages and few others: what runs there imports only those.

The offline study itself is run without the absent packages in tests/integration.
"""

import json
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY

# Of a Python with vLLM: its own requirements and what they bring along.
PRESENT = {
    "annotated-doc", "annotated-types", "anyio", "certifi", "charset-normalizer", "click",
    "cloudpickle", "h11", "httpcore", "httptools",
    "httpx", "idna", "markdown-it-py", "matplotlib", "mdurl", "numpy", "nvidia-ml-py", "pandas",
    "prometheus-client", "psutil", "pyarrow", "pydantic", "pydantic-core", "pygments",
    "python-dateutil", "pytz", "pyyaml", "rich", "scipy", "setuptools", "shellingham", "six",
    "sniffio", "tokenizers", "typer", "typing-extensions", "typing-inspection", "tzdata", "uvloop",
}  # fmt: skip
ABSENT = ("prefect", "mlflow", "optuna", "lm_eval", "ruamel", "sqlalchemy")
PROGRAM = """
import importlib, importlib.metadata, json, sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent!r}:
            raise ModuleNotFoundError("No module named " + repr(name), name=name)
        return None
sys.meta_path.insert(0, Absent())
importlib.import_module({module!r})
tops = {{name.partition(".")[0] for name in sys.modules}}
owners = importlib.metadata.packages_distributions()
print(json.dumps(sorted({{dist for top in tops for dist in owners.get(top, ())}})))
"""


@pytest.mark.parametrize(
    "module",
    [
        "flows.cli",
        "flows.commands.tune",
        "flows.commands.bench",
        "flows.commands.plan",
        "flows.commands.parameters",
        "flows.commands.search_replay",
        "flows.commands.trace",
        "flows.commands.render",
        "flows.study_run",
        "tasks.adapters.load_client.worker_main",
        "tasks.adapters.device_sampler.nvml",
        "tasks.adapters.config_files.loading",
    ],
)
def test_what_runs_on_a_gpu_host_imports_only_what_that_has(module: str) -> None:
    program = PROGRAM.format(absent=ABSENT, module=module)
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    loaded = {name.lower().replace("_", "-") for name in json.loads(done.stdout)}
    assert loaded - PRESENT - {"vllm-retune"} == set()
