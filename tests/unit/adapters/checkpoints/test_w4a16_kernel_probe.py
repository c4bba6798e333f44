import sys
from pathlib import Path

from tasks.adapters.checkpoints.kernel_probe import has_w4a16_kernel, parse_answer


def test_the_answer_is_found_among_the_engines_own_lines() -> None:
    assert parse_answer("Triton is installed\nRETUNE-KERNEL False\n") is False
    assert parse_answer("RETUNE-KERNEL True\n") is True
    assert parse_answer("RETUNE-KERNEL unknown\n") is None
    assert parse_answer("nothing") is None


def test_an_interpreter_without_vllm_or_none_at_all_gives_no_answer(tmp_path: Path) -> None:
    assert has_w4a16_kernel(Path(sys.executable), dtype="bfloat16") is None
    assert has_w4a16_kernel(tmp_path / "python", dtype="auto") is None


def test_no_engine_is_asked_for_float32_which_no_kernel_takes(tmp_path: Path) -> None:
    assert has_w4a16_kernel(tmp_path / "python", dtype="float32") is False
