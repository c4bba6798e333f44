"""One run a device; the lock dies with its holder."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tasks.adapters.device_lock import DeviceLockedError, device_lock

HOLDER = textwrap.dedent("""
    import sys, time
    from pathlib import Path
    from tasks.adapters.device_lock import device_lock
    with device_lock(Path(sys.argv[1]), "gpu-1", wait_s=0, purpose="night"):
        print("held", flush=True)
        time.sleep(60)
""")


def test_a_second_run_is_refused_with_the_holders_pid_and_purpose(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        with (
            pytest.raises(DeviceLockedError, match=f'"pid": {holder.pid}.*night') as error,
            device_lock(tmp_path, "gpu-1", wait_s=0, purpose="study"),
        ):
            pytest.fail("two runs held one device")
        assert error.value.code == "GPU_LOCKED"
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
        with device_lock(tmp_path, "gpu-1", wait_s=5, purpose="study"):
            pass
    finally:
        holder.kill()
        holder.wait()


def test_another_device_is_free(tmp_path: Path) -> None:
    with (
        device_lock(tmp_path, "gpu-1", wait_s=0, purpose="a"),
        device_lock(tmp_path, "gpu-2", wait_s=0, purpose="b"),
    ):
        pass
