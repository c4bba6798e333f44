"""Asks the installed engine whether it can multiply packed 4-bit weights on this machine.

An engine without the kernel loads such a checkpoint, reports that it is healthy and dies at the
first request, so this is asked before it is started.
"""

import os
import subprocess
import tempfile
from pathlib import Path

TIMEOUT_S = 180.0
_PROBE = """
import torch
from vllm.platforms import current_platform as platform

answer = "unknown"
if platform.is_cuda():
    answer = str(torch.cuda.get_device_capability() >= (7, 5))
elif platform.is_cpu():
    platform.import_kernels()
    answer = str(hasattr(torch.ops._C, "cpu_gemm_wna16"))
print("RETUNE-KERNEL", answer)
"""


def has_w4a16_kernel(engine_python: Path, *, dtype: str) -> bool | None:
    """Return whether the engine has a W4A16 kernel for activations of this type here.

    None where it cannot be told. On CUDA that is compute capability 7.5 or more (Marlin); on the
    CPU the operator itself is looked for: vLLM 0.32.0 builds it for AVX-512 and AMX, not for AVX2.
    It takes no float32 activations there, and says so only at the first request
    ("cpu_gemm_wna16" not implemented for 'Float').
    """
    if dtype == "float32":
        return False
    with tempfile.TemporaryDirectory(prefix="retune-kernel-probe-") as outside:
        try:
            ended = subprocess.run(
                [str(engine_python), "-I", "-c", _PROBE],
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
                check=False,
                stdin=subprocess.DEVNULL,
                cwd=outside,
                env={**os.environ, "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"},
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
    return parse_answer(ended.stdout) if ended.returncode == 0 else None


def parse_answer(output: str) -> bool | None:
    """Return the probe's answer out of what the interpreter printed."""
    for line in output.splitlines():
        name, _, answer = line.partition(" ")
        if name == "RETUNE-KERNEL":
            return {"True": True, "False": False}.get(answer.strip())
    return None
