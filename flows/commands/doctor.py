"""``retune doctor``: what this host has and lacks, each with the fix."""

import os
import shutil
import sys
from dataclasses import dataclass

import httpx

from flows.environment import Home, engine_python, home, quantizer_python, tracking_uri
from flows.host import device_of_host
from flows.output import print_json, print_table
from flows.prefect_server import sweep_servers
from tasks.adapters.device_sampler.nvml import nvml_reason
from tasks.adapters.engine_probe import probe_engine
from tasks.adapters.mlflow_store.check import check_tracking
from tasks.adapters.vllm_server.ports import free_port
from tasks.deploy import sweep_engines
from tasks.domain.errors import TuningError

NEEDED_DISK_GIB = 10.0
MINIMUM_PYTHON = (3, 11)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at. needed: whether the product cannot work without it."""

    name: str
    ok: bool
    needed: bool
    found: str
    fix: str = ""


def doctor_command(*, as_json: bool) -> int:
    """Print every check; 1 where something needed is missing."""
    place = home()
    checks = [
        _python(),
        _engine(place),
        _quantizer(),
        _device(),
        _disk(place),
        _port(place),
        _leftovers(place),
        _mlflow(place),
        _prefect(),
    ]
    healthy = all(check.ok for check in checks if check.needed)
    if as_json:
        print_json({"healthy": healthy, "checks": checks})
    else:
        print_table(
            "this host",
            ("check", "state", "found", "fix"),
            ((c.name, _state(c), c.found, "" if c.ok else c.fix) for c in checks),
        )
    return 0 if healthy else 1


def _state(check: Check) -> str:
    if check.ok:
        return "ok"
    return "MISSING" if check.needed else "absent"


def _python() -> Check:
    version = sys.version_info
    return Check(
        name="python",
        ok=version[:2] >= MINIMUM_PYTHON,
        needed=True,
        found=f"{version.major}.{version.minor}.{version.micro}",
        fix="install Python 3.11 and run `make setup PYTHON=python3.11`",
    )


def _engine(place: Home) -> Check:
    try:
        found = probe_engine(engine_python(), cache=place.cache / "engine-arguments.json")
    except TuningError as error:
        return Check(
            name="engine", ok=False, needed=True, found=str(error),
            fix="run `make setup`, or set RETUNE_ENGINE_PYTHON to a python that has vLLM",
        )  # fmt: skip
    text = f"vLLM {found.version} ({found.flavour.value}), {len(found.arguments)} arguments"
    return Check(name="engine", ok=True, needed=True, found=text)


def _quantizer() -> Check:
    python = quantizer_python()
    return Check(
        name="quantizer",
        ok=python.is_file(),
        needed=True,
        found=str(python) if python.is_file() else f"{python} does not exist",
        fix="run `make setup`, or set RETUNE_QUANTIZE_PYTHON to a python that has llmcompressor",
    )


def _device() -> Check:
    device, count, driver, _ = device_of_host()
    if driver is None:
        found = f"no GPU ({nvml_reason() or 'NVML lists none'}); measuring on {count} CPU cores"
        fix = "on a GPU host install the NVIDIA driver (nvidia-smi must answer)"
        return Check(name="gpu", ok=False, needed=False, found=found, fix=fix)
    return Check(
        name="gpu", ok=True, needed=False, found=f"{count} x {device.name}, driver {driver}"
    )


def _disk(place: Home) -> Check:
    folder = next(path for path in (place.root, *place.root.parents) if path.is_dir())
    free_gib = shutil.disk_usage(folder).free / 2**30
    return Check(
        name="disk",
        ok=free_gib >= NEEDED_DISK_GIB,
        needed=True,
        found=f"{free_gib:.1f} GiB free under {folder}",
        fix=f"free {NEEDED_DISK_GIB:.0f} GiB, or set RETUNE_HOME to a larger disk",
    )


def _port(place: Home) -> Check:
    try:
        port = free_port("127.0.0.1", lease_dir=place.leases)
    except TuningError as error:
        return Check(
            name="ports", ok=False, needed=True, found=str(error), fix="end what holds the ports"
        )
    return Check(name="ports", ok=True, needed=True, found=f"port {port} is free on loopback")


def _leftovers(place: Home) -> Check:
    leftovers = sweep_engines(place.leases)
    servers = len(sweep_servers(place))
    running = [left for left in leftovers if left.action not in ("ended", "removed")]
    told = "; ".join(f"pid {left.pid}: {left.action}, {left.reason}" for left in running)
    return Check(
        name="leftovers",
        ok=not running,
        needed=False,
        found=told
        or f"none ({len(leftovers)} engine records looked at, {servers} Prefect servers ended)",
        fix="another run may be using them; wait for it or stop it",
    )


def _mlflow(place: Home) -> Check:
    ok, sentence = check_tracking(tracking_uri(place))
    return Check(
        name="mlflow", ok=ok, needed=True, found=sentence,
        fix="start the server, or unset MLFLOW_TRACKING_URI to use the local store",
    )  # fmt: skip


def _prefect() -> Check:
    url = os.environ.get("PREFECT_API_URL")
    if url is None:
        found = "embedded server (PREFECT_API_URL is not set)"
        return Check(name="prefect", ok=True, needed=True, found=found)
    fix = "start the server, or unset PREFECT_API_URL to use the embedded one"
    try:
        answer = httpx.get(f"{url.rstrip('/')}/health", timeout=3.0, trust_env=False)
    except httpx.HTTPError as error:
        found = f"{url} does not answer: {error}"
        return Check(name="prefect", ok=False, needed=True, found=found, fix=fix)
    found = f"{url} answers {answer.status_code}"
    return Check(name="prefect", ok=answer.is_success, needed=True, found=found, fix=fix)
