"""Unions of intervals, self time under nesting, and the categories of names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.domain.kernel_table import (
    KernelTable,
    MissingTable,
    TraceEvent,
    category_of,
    kernel_table,
    nested_times,
    union_s,
)


def event(
    name: str, start: float, length: float, *, category: str = "cpu_op", lane: str = "1"
) -> TraceEvent:
    return TraceEvent(name=name, category=category, start_s=start, duration_s=length, lane=lane)


def table(*events: TraceEvent, top: int = 20) -> KernelTable:
    made = kernel_table(events, top=top)
    assert isinstance(made, KernelTable)
    return made


def test_overlapping_streams_are_busy_once() -> None:
    made = table(
        event("gemm", 0, 100, category="kernel"),
        event("attn", 50, 100, category="kernel"),
        event("gemm", 300, 100, category="kernel"),
    )
    assert (made.total_s, made.busy_s, made.span_s) == (300, 250, 400)
    assert made.busy_frac == 0.625
    assert [(row.name, row.self_s, row.calls) for row in made.rows] == [
        ("gemm", 200, 2),
        ("attn", 100, 1),
    ]


def test_two_gpus_are_busy_for_their_mean() -> None:
    made = table(
        event("a", 0, 4, category="kernel", lane="0"), event("b", 0, 2, category="kernel", lane="1")
    )
    assert (made.busy_s, made.busy_frac) == (3, 0.75)


def test_self_time_leaves_out_children_but_not_grandchildren_twice() -> None:
    own, parents = nested_times(
        [event("step", 0, 10), event("linear", 1, 6), event("mm", 2, 4), event("add", 8, 1)]
    )
    assert own == [3, 2, 4, 1]  # 10 - 6 - 1, 6 - 4, leaf, leaf
    assert parents == [None, 0, 1, 0]


def test_siblings_that_touch_by_a_rounding_stay_siblings() -> None:
    own, parents = nested_times(
        [event("step", 0, 3e-3), event("a", 0, 1e-3 + 1e-9), event("b", 1e-3, 1e-3)]
    )
    assert parents == [None, 0, 0]
    assert own[0] == pytest.approx(1e-3, abs=2e-9)


def test_operators_of_other_threads_are_not_children() -> None:
    _, parents = nested_times([event("a", 0, 10, lane="1"), event("b", 1, 2, lane="2")])
    assert parents == [None, None]


def test_an_operator_that_forwards_to_its_like_is_one_call() -> None:
    made = table(event("aten::div_", 0, 4), event("aten::div_", 1, 2))
    (row,) = made.rows
    assert (row.calls, row.self_s) == (1, 4)


def test_rows_beyond_the_top_still_count_in_the_total() -> None:
    made = table(*(event(f"op{i}", i * 10, i + 1) for i in range(5)), top=2)
    assert [row.name for row in made.rows] == ["op4", "op3"]
    assert made.total_s == 15
    assert made.rows[0].share_frac == pytest.approx(5 / 15)


def test_a_trace_without_kernels_or_operators_is_missing_not_idle() -> None:
    made = kernel_table([event("launch", 0, 1, category="cuda_runtime")])
    assert isinstance(made, MissingTable)
    assert made.code == "NO_KERNEL_DATA"


@pytest.mark.parametrize(
    ("name", "category"),
    [
        ("_C::onednn_mm", "matmul"),
        ("ampere_bf16_s16816gemm_bf16_128x64", "matmul"),
        ("void marlin::Marlin<...>", "matmul"),
        ("vllm::unified_attention_with_output", "attention"),
        ("vllm::unified_kv_cache_update", "kv cache"),
        ("ncclDevKernel_AllReduce_Sum_bf16", "communication"),
        ("execute_context_1(24)_generation_1(1)", "framework"),
        ("Memcpy DtoH (Device -> Pageable)", "memory copy"),
        ("something_new", "other"),
    ],
)
def test_names_fall_into_categories(name: str, category: str) -> None:
    assert category_of(name) == category


INTERVALS = st.lists(
    st.tuples(st.integers(0, 100), st.integers(0, 30)).map(lambda t: (t[0], t[0] + t[1])),
    max_size=40,
)


@given(INTERVALS)
def test_a_union_counts_every_covered_second_once(intervals: list[tuple[int, int]]) -> None:
    covered = {second for start, end in intervals for second in range(start, end)}
    assert union_s(intervals) == len(covered)
