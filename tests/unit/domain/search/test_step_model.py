"""The step model against hand-computed schedules."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.domain.search.step_model import Limits, OfferedLoad, StepCosts, simulate
from tests.fakes.search_points import COSTS, steady_load

NOTHING = 1e-15
# A step of n tokens takes 10 ms + n x 1 ms; memory and the rest cost nothing.
PLAIN = StepCosts(
    fixed_s=0.010,
    per_token_s=0.001,
    per_sequence_s=NOTHING,
    per_context_s=NOTHING,
    per_request_s=NOTHING,
    mixed_s=NOTHING,
    overlap_frac=NOTHING,
)


def load(*requests: tuple[float, int, int]) -> OfferedLoad:
    due, prompts, outputs = zip(*requests, strict=True)
    return OfferedLoad(
        due_s=np.array(due), prompt_tokens=np.array(prompts), output_tokens=np.array(outputs)
    )


def limits(seqs: int, tokens: int, kv: int | None = None) -> Limits:
    return Limits(max_num_seqs=seqs, max_num_batched_tokens=tokens, kv_tokens=kv)


def test_one_request_is_one_prompt_step_and_then_a_step_a_token() -> None:
    seen = simulate(PLAIN, load((0.0, 100, 3)), limits(8, 1000))
    # prompt: 10 + 100 = 110 ms; each of two more tokens: 10 + 1 = 11 ms
    assert seen.ttft_s[0] == pytest.approx(0.110)
    assert seen.tpot_s[0] == pytest.approx(0.011)
    assert seen.e2e_s[0] == pytest.approx(0.132)


def test_a_budget_cuts_the_prompt_into_steps() -> None:
    seen = simulate(PLAIN, load((0.0, 100, 1)), limits(8, 50))
    assert seen.ttft_s[0] == pytest.approx(0.120)  # two steps of 10 + 50 ms
    assert math.isnan(seen.tpot_s[0])


def test_a_prompt_delays_the_decodes_that_share_its_step() -> None:
    seen = simulate(PLAIN, load((0.0, 10, 3), (0.015, 100, 1)), limits(8, 1000))
    # first: 0-20 ms prompt; its 2nd token shares a step with 100 prompt tokens: 10 + 101 ms,
    # its 3rd alone: 11 ms; so 122 ms for two tokens
    assert seen.tpot_s[0] == pytest.approx(0.122 / 2)
    assert seen.ttft_s[1] == pytest.approx(0.020 + 0.111 - 0.015)


def test_at_the_cap_a_request_waits_for_a_slot() -> None:
    seen = simulate(PLAIN, load((0.0, 10, 3), (0.0, 10, 1)), limits(1, 1000))
    # the first ends at 20 + 2 x 11 = 42 ms, then a prompt step of 20 ms
    assert seen.ttft_s[1] == pytest.approx(0.062)
    assert seen.peak_running == 1


def test_a_request_waits_for_room_in_the_kv_pool() -> None:
    seen = simulate(PLAIN, load((0.0, 10, 3), (0.0, 10, 1)), limits(8, 1000, kv=20))
    assert seen.ttft_s[1] == pytest.approx(0.062)


def test_a_request_that_never_fits_the_pool_has_no_first_token() -> None:
    seen = simulate(PLAIN, load((0.0, 100, 3)), limits(8, 1000, kv=20))
    assert math.isnan(seen.ttft_s[0])


def test_reading_hides_under_computing_by_the_overlap() -> None:
    half = StepCosts(
        fixed_s=0.010, per_token_s=0.001, per_sequence_s=NOTHING, per_context_s=NOTHING,
        per_request_s=0.002, mixed_s=0.003, overlap_frac=0.5,
    )  # fmt: skip
    seen = simulate(half, load((0.0, 100, 2)), limits(8, 1000))
    # prompt: 5 + max(5, 100) + 3 mixed = 108 ms, plus 2 ms outside; decode: 5 + max(5, 1) = 10 ms
    assert seen.ttft_s[0] == pytest.approx(0.110)
    assert seen.tpot_s[0] == pytest.approx(0.010)


def test_the_vector_form_gives_the_costs_back() -> None:
    back = StepCosts.from_vector(COSTS.as_vector())
    assert back.as_vector() == pytest.approx(COSTS.as_vector())


@settings(max_examples=25, deadline=None)
@given(seqs=st.integers(1, 64), tokens=st.integers(64, 4096), kv=st.integers(9000, 60000))
def test_every_request_that_fits_is_served_in_order_of_its_own_times(
    seqs: int, tokens: int, kv: int
) -> None:
    offered = steady_load(30)
    seen = simulate(COSTS, offered, limits(seqs, tokens, kv))
    assert (seen.ttft_s > 0).all()
    assert (seen.e2e_s >= seen.ttft_s).all()
    assert seen.peak_running <= seqs
    assert seen.peak_kv_tokens <= kv


def test_a_cap_that_never_binds_changes_nothing() -> None:
    wide = simulate(COSTS, steady_load(), limits(256, 2048))
    narrow = simulate(COSTS, steady_load(), limits(wide.peak_running, 2048))
    assert np.array_equal(wide.ttft_s, narrow.ttft_s)
