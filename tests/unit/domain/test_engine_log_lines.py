from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tasks.domain.engine_log import engine_index, log_lines, parse_line, tells_progress
from tasks.domain.engine_log_kv_cache import kv_cache_disagrees, kv_cache_lines, kv_cache_total
from tasks.domain.engine_log_throughput import KvFetch, throughput_rows


def case_lines(shared_dir: Path, name: str) -> str:
    data = yaml.safe_load((shared_dir / "cases" / f"{name}.yaml").read_text(encoding="utf-8"))
    return "\n".join(data["input"]["lines"])


def test_prefixes_are_split_from_the_message() -> None:
    line = parse_line("(EngineCore_DP1 pid=245) ERROR 06-20 21:00:36 [v1/core.py:71]     raise e")
    assert (line.process, line.pid, line.level) == ("EngineCore_DP1", 245, "ERROR")
    assert (line.clock, line.source, line.text) == (
        "06-20 21:00:36",
        "v1/core.py:71",
        "    raise e",
    )


def test_v0_heads_have_no_opening_bracket() -> None:
    line = parse_line("INFO 09-02 08:00:21 metrics.py:396] Avg prompt throughput: 3.4 tokens/s")
    assert (line.level, line.source) == ("INFO", "metrics.py:396")
    assert line.text.startswith("Avg prompt throughput")


def test_a_line_without_prefixes_is_its_own_text() -> None:
    line = parse_line("Traceback (most recent call last):")
    assert (line.text, line.process, line.level) == (
        "Traceback (most recent call last):",
        None,
        None,
    )


def test_a_carriage_return_ends_a_line() -> None:
    assert [line.text for line in log_lines("a 1%\ra 2%\r\n\nb")] == ["a 1%", "a 2%", "b"]


@given(st.text())
def test_no_text_breaks_the_reader(text: str) -> None:
    shown = [line.text for line in log_lines(text)]
    assert len(shown) <= text.count("\n") + text.count("\r") + 1
    assert kv_cache_total(kv_cache_lines(text)).engines >= 0


@pytest.mark.parametrize(
    ("process", "index"),
    [("EngineCore", None), ("EngineCore_0", 0), ("EngineCore_DP12", 12), (None, None)],
)
def test_the_engine_index_comes_from_the_process_name(
    process: str | None, index: int | None
) -> None:
    assert engine_index(process) == index


@pytest.mark.parametrize(
    ("text", "progress"),
    [
        ("Loading weights took 2.47 seconds", True),
        ("No available shared memory broadcast block found in 60 seconds. This typically", False),
        ('INFO:     127.0.0.1:59792 - "GET /health HTTP/1.1" 200 OK', False),
        ("", False),
    ],
)
def test_waiting_and_polling_lines_are_no_progress(text: str, progress: bool) -> None:
    assert tells_progress(parse_line(text)) is progress


def test_throughput_fields_are_found_by_label_in_every_generation(shared_dir: Path) -> None:
    v0, v1, v24 = throughput_rows(case_lines(shared_dir, "b-01"))
    assert (v0.engine, v0.prompt_tok_s, v0.generation_tok_s) == (None, 3.4, -0.8)
    assert (v0.running, v0.swapped, v0.waiting) == (5, 0, 2)
    assert v0.kv_usage_frac == pytest.approx(0.006)
    assert v0.swap_usage_frac == 0.0
    assert v0.flags == ("NEGATIVE_THROUGHPUT",)
    assert (v1.engine, v1.prompt_tok_s, v1.generation_tok_s) == (0, 1480.2, 733.9)
    assert (v1.running, v1.waiting, v1.flags) == (12, 0, ())
    assert v1.kv_usage_frac == pytest.approx(0.074)
    assert v1.prefix_hit_frac == pytest.approx(0.419)
    assert (v24.engine, v24.running, v24.waiting, v24.deferred, v24.preemptions) == (
        3,
        256,
        31,
        4,
        17,
    )
    assert v24.kv_usage_frac == pytest.approx(0.998)
    assert v24.prefix_hit_frac == pytest.approx(0.032)
    assert v24.external_prefix_hit_frac == pytest.approx(0.015)
    assert v24.mm_cache_hit_frac == 0.0
    assert v24.swapped is None


def test_cpu_kv_usage_is_swap_only_beside_another_device(shared_dir: Path) -> None:
    v0, cpu, xpu = throughput_rows(case_lines(shared_dir, "b-02"))
    assert (v0.kv_device, v0.kv_usage_frac, v0.swap_usage_frac) == ("GPU", 0.12, 0.55)
    assert (cpu.kv_device, cpu.kv_usage_frac, cpu.swap_usage_frac) == ("CPU", 0.125, None)
    assert cpu.prefix_hit_frac is None
    assert (xpu.kv_device, xpu.kv_usage_frac, xpu.prefix_hit_frac) == ("XPU", 0.13, 0.0)
    assert xpu.kv_fetch == KvFetch(waiting=2, in_progress=1, completed_waiting=0)
    assert xpu.extra == ()


def test_unknown_labels_are_kept_and_other_lines_are_no_rows() -> None:
    rows = throughput_rows(
        "Iteration(7): Running: 3 reqs, Waiting: 1 reqs\n"
        "Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: 2.0 tokens/s, "
        "Dragons: 4 heads, Running: 1 reqs, Prefix cache hit rate: nan%"
    )
    assert len(rows) == 1
    assert rows[0].extra == (("Dragons", "4 heads"), ("Prefix cache hit rate", "nan%"))
    assert (rows[0].running, rows[0].prefix_hit_frac) == (1, None)


def test_kv_sizes_of_four_generations(shared_dir: Path) -> None:
    text = case_lines(shared_dir, "b-03")
    v0, early, first, second, concurrency, merged = kv_cache_lines(text, block_size=16)
    assert (v0.device_blocks, v0.cpu_blocks) == (241, 640)
    assert (v0.kv_tokens, v0.kv_tokens_source) == (3856, "blocks*block_size")  # 241 x 16
    assert (early.device_blocks, early.kv_tokens) == (98304, 1572864)
    assert (first.engine, first.kv_tokens) == (0, 415744)
    assert (second.engine, second.kv_tokens) == (1, 415744)
    assert (concurrency.engine, concurrency.max_model_len) == (0, 6000)
    assert (concurrency.max_concurrency, concurrency.kv_tokens) == (69.29, None)
    assert (merged.device, merged.kv_tokens, merged.max_model_len) == ("CPU", 196608, 65536)
    assert (merged.max_concurrency, merged.kv_tokens_source) == (3.0, "log")


def test_engines_of_one_start_add_up(shared_dir: Path) -> None:
    lines = kv_cache_lines("\n".join(case_lines(shared_dir, "b-03").splitlines()[2:5]))
    total = kv_cache_total(lines)
    assert (total.engines, total.kv_tokens, total.restarted) == (2, 831488, False)


def test_block_counts_without_a_block_size_give_no_tokens() -> None:
    (line,) = kv_cache_lines("# GPU blocks: 241, # CPU blocks: 640")
    assert (line.kv_tokens, line.kv_tokens_source) == (None, None)
    assert kv_cache_total((line,)).kv_tokens is None


def test_a_size_printed_twice_by_one_engine_is_a_restart() -> None:
    one = "(EngineCore pid=9) INFO 12-01 02:00:00 [k.py:1] GPU KV cache size: 1,600 tokens\n"
    total = kv_cache_total(kv_cache_lines(one + one.replace("1,600", "3,200")))
    assert (total.engines, total.kv_tokens, total.restarted) == (1, 3200, True)


@pytest.mark.parametrize(("metrics", "differs"), [(1000, False), (991, False), (980, True)])
def test_log_and_metrics_may_differ_by_one_percent(metrics: int, differs: bool) -> None:
    assert kv_cache_disagrees(1000, metrics) is differs
