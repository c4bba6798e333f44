"""A small process that ends an engine when its owner is gone, however the owner ended.

It has a session of its own, so a Ctrl-C or a kill of the owner's group does not reach it. It lives
as long as the lease does.
"""

import contextlib
import subprocess
import sys
import time
from pathlib import Path

from tasks.adapters.vllm_server.lease import Lease, read_lease, remove_lease
from tasks.adapters.vllm_server.process_tree import lives

POLL_S = 0.5
GUARDIAN_STOP_S = 10.0
SECOND_LOOK_S = 1.0
"""An owner may die between the fork and the exec of its engine, when the token is not yet seen."""
ROOT = Path(__file__).resolve().parents[3]

_BOOT = (
    "import sys; sys.path.append(sys.argv[1]); "
    "from tasks.adapters.vllm_server.guardian import watch; "
    "from pathlib import Path; watch(Path(sys.argv[2]))"
)


def start_guardian(lease_file: Path) -> subprocess.Popen[bytes]:
    """Start the watching process; its output goes nowhere, its work is in the lease.

    ``-I`` keeps the caller's PYTHONPATH and working directory out of it.
    """
    return subprocess.Popen(
        [sys.executable, "-I", "-c", _BOOT, str(ROOT), str(lease_file)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd="/",
        env={"PATH": "/usr/bin:/bin"},
    )


def stop_guardian(guardian: subprocess.Popen[bytes]) -> None:
    """End and reap the watching process."""
    guardian.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        guardian.wait(timeout=2.0)
    if guardian.poll() is None:
        guardian.kill()
        guardian.wait(timeout=2.0)


def watch(lease_file: Path) -> None:
    """Wait until the lease is gone or its owner is; in the latter case end the engine's tree."""
    while True:
        lease = read_lease(lease_file)
        if lease is None:
            return
        if not lives(lease.owner):
            _end(lease_file, lease)
            return
        time.sleep(POLL_S)


def _end(lease_file: Path, lease: Lease) -> None:
    """End the tree, look a second time, and remove the lease when nothing survived."""
    survivors: tuple[int, ...] = ()
    for _ in range(2):
        # The owner may have died just after it wrote the engine's pid: read the lease once more.
        lease = read_lease(lease_file) or lease
        survivors = lease.tree.end(timeout_s=GUARDIAN_STOP_S).survivors
        time.sleep(SECOND_LOOK_S)
    if not survivors:
        remove_lease(lease_file)
