"""``retune ui``: MLflow on loopback, opened at the newest study's runs."""

import os
import subprocess
import sys
from contextlib import suppress

import psutil

from flows.environment import home, make_folder, tracking_uri
from flows.output import print_lines
from flows.study_folder import newest_recorded
from tasks.adapters.mlflow_store.urls import compare_url, runs_url
from tasks.domain.errors import ConfigError
from tasks.record import prepare_store

END_TIMEOUT_S = 10.0


def ui_command(*, port: int, url_only: bool) -> int:
    """Print the address of the newest study's runs and serve MLflow until Ctrl-C.

    With MLFLOW_TRACKING_URI at a server, only the address there is printed.
    """
    place = home()
    uri = tracking_uri(place)
    remote = uri.startswith("http")
    base = uri if remote else f"http://127.0.0.1:{port}"
    newest = newest_recorded(place)
    if newest is None:
        print_lines([f"no study is recorded yet; run `make tune` first. MLflow: {base}"])
    else:
        experiment, runs = newest
        print_lines(
            [
                f"runs of the newest study: {runs_url(experiment, base)}",
                f"its trials side by side:  {compare_url(experiment, runs, base)}",
            ]
        )
    if remote or url_only:
        return 0
    if not 0 < port < 65536:
        raise ConfigError(f"--port {port} is not a port; needed 1 to 65535")
    command = [
        sys.executable, "-m", "mlflow", "server", "--backend-store-uri", uri,
        "--default-artifact-root", str(place.root / "mlflow" / "artifacts"),
        "--host", "127.0.0.1", "--port", str(port), "--workers", "1",
    ]  # fmt: skip
    make_folder(place.root)
    prepare_store(uri)
    environment = {
        **os.environ,
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    }
    # Outside the repository: there the folder mlflow/ would stand beside the library's name.
    server = subprocess.Popen(command, cwd=place.root, env=environment)
    try:
        return server.wait()
    except KeyboardInterrupt:
        return 0
    finally:
        _end(server)


def _end(server: subprocess.Popen[bytes]) -> None:
    """End the server and its workers, however this process ends."""
    if server.poll() is not None:
        return
    tree = [*psutil.Process(server.pid).children(recursive=True), psutil.Process(server.pid)]
    for process in tree:
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    _, alive = psutil.wait_procs(tree, timeout=END_TIMEOUT_S)
    for process in alive:
        process.kill()
    server.wait()
