"""Failures of vLLM's CPU build, seen on AVX-512 hosts: each is one class with its figures."""

from tasks.domain.engine_failures import failure_from_log


def test_a_host_with_too_little_free_memory_is_told_with_its_numbers() -> None:
    log = (
        "(EngineCore pid=7) ERROR 12-01 13:06:12 [core.py:1512] ValueError: Available memory on "
        "node 0 (11.71/14.21 GiB) on startup is less than desired CPU memory utilization "
        "(0.92, 13.08 GiB).\n"
    )
    failure = failure_from_log(log, exit_code=1)
    assert (failure.code, failure.infeasible) == ("HOST_MEMORY_BUSY", False)
    assert failure.detail("free_gib") == "11.71"
    assert "cpu_kv_cache_gib" in failure.advice


def test_a_kernel_that_lacks_the_dtype_is_a_missing_kernel_and_not_tried_again() -> None:
    said = "(Worker pid=7) ERROR 12-01 12:32:12 [multiproc_executor.py:1063] "
    log = (
        f"{said}Traceback (most recent call last):\n"
        f"{said}NotImplementedError: \"cpu_gemm_wna16\" not implemented for 'Float'\n"
    )
    failure = failure_from_log(log, exit_code=0)
    assert (failure.code, failure.infeasible, failure.retry) == ("MISSING_KERNEL", True, False)
    assert dict(failure.details) == {"function": "cpu_gemm_wna16", "dtype": "Float"}
