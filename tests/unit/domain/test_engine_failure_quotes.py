"""Causes that are quoted whatever their class is called, and calls that timed out."""

import pytest

from tasks.domain.engine_failures import failure_from_log


@pytest.mark.parametrize(
    "text",
    [
        "OSError: /x is not a local folder and is not a valid model identifier listed on hub",
        "ValueError: Invalid repository ID or local directory specified: '/x'.",
        "RuntimeError: Cannot find any model weights with `/x`",
        "OSError: /x does not appear to have a file named config.json.",
    ],
)
def test_a_checkpoint_that_is_not_there_is_model_not_found(text: str) -> None:
    failure = failure_from_log(text, exit_code=1)
    assert (failure.code, failure.retry) == ("MODEL_NOT_FOUND", False)


def test_a_call_that_timed_out_inside_is_a_hang() -> None:
    log = (
        "(EngineCore pid=4) ERROR 12-01 01:00:00 [c.py:1] TimeoutError: RPC call to "
        "sample_tokens timed out."
    )
    failure = failure_from_log(log, exit_code=1)
    assert (failure.code, failure.retry) == ("ENGINE_HUNG", True)


@pytest.mark.parametrize(
    "cause",
    [
        "struct.error: unpack requires a buffer of 8 bytes",
        "zlib.error: Error -3 while decompressing data: incorrect header check",
        "socket.timeout: timed out",
    ],
)
def test_an_exception_whose_class_is_in_lower_case_is_quoted_too(cause: str) -> None:
    # seen on an H200: an AWQ checkpoint with an empty safetensors file, vLLM 0.24.0
    log = (
        "(APIServer pid=1703)     length = struct.unpack('<Q', f.read(8))[0]\n"
        "(APIServer pid=1703)              ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n"
        f"(APIServer pid=1703) {cause}\n"
    )
    assert failure_from_log(log, exit_code=1).root_cause.startswith(cause)


def test_the_scheduler_plugins_refusal_is_never_tried_again() -> None:
    text = (
        "(EngineCore pid=7) ERROR 12-01 12:00:00 [core.py:1] RuntimeError: retune_scheduler: tried "
        "with vLLM 0.24.0 and 0.32.0, not with 0.40.0; correct it, or start without --scheduler-cls"
    )
    failure = failure_from_log(text, exit_code=1)
    assert (failure.code, failure.infeasible, failure.retry) == ("LIVE_KNOBS_REFUSED", True, False)
    assert failure.detail("reason") == "tried with vLLM 0.24.0 and 0.32.0, not with 0.40.0"
