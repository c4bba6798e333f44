"""The guide's three case studies (its section 5) as diagnoses, with its slips put right."""

import pytest

from tasks.domain.diagnosis import diagnose, ttft_floor_s
from tasks.domain.diagnosis_facts import LatencyView, RooflineView
from tasks.domain.diagnosis_rules import BANDWIDTH, OVERHEAD
from tasks.domain.profile import Profile
from tests.fakes.profiles import CHAT, gpu, holding, window


def test_case_1_kv_shortage_is_seen_as_preemption_and_swap_is_not_proposed() -> None:
    """20 QPS, p99 1200 ms, util 60 %, 75 C, swapped 4, cap 64.

    V1 cannot swap: the same shortage shows as preempted requests. The guide's "memory 95 %" is
    nvidia-smi's memory.used, which is near what vLLM was given at any load, so it is no input.
    """
    profile = Profile(
        window=window(preemptions=4.0, kv_usage_p95_frac=0.98, running_max=58.0, waiting_mean=2.0),
        device=gpu(0.60, 0.55, temperature_c=75.0),
    )
    diagnosis = diagnose(
        profile, latency=LatencyView(ttft_p99_s=1.2, slo=CHAT, client_late=False), max_num_seqs=64
    )
    assert holding(diagnosis)[:2] == ["kv-pressure", "kv-nearly-full"]  # 4 in a minute
    assert diagnosis.bottleneck == "KV memory"
    assert diagnosis.try_next[0].startswith("lower max_num_seqs")
    assert not [step for step in diagnosis.try_next if "swap" in step]
    assert "thermal-throttling" not in holding(diagnosis)


def test_case_1_on_a_v0_engine_reads_swapped_requests_as_the_same_shortage() -> None:
    diagnosis = diagnose(Profile(window=window(swapped_max=4.0)), latency=LatencyView())
    assert diagnosis.bottleneck == "KV memory"


def test_case_2_long_prompts_are_slow_prefill_first_and_queueing_second() -> None:
    """4000 tokens at 6000 tok/s: 666 ms of 1.2 s are prefill, 534 ms are queue.

    The guide then reports 380 ms after chunking. That cannot be chunking's doing: it reorders
    work, and 666 ms of prefill stay. Chunked prefill is on by default today, so the knob named
    is max_num_batched_tokens.
    """
    prefill_s = ttft_floor_s(4000, 6000)
    assert prefill_s == pytest.approx(0.6667, abs=1e-4)
    assert prefill_s > 0.380
    profile = Profile(
        window=window(
            prefill_time_mean_s=prefill_s, queue_time_mean_s=1.2 - prefill_s, preemptions=0.0
        ),
        device=gpu(0.85, 0.70),
    )
    diagnosis = diagnose(
        profile,
        latency=LatencyView(ttft_p99_s=1.2, tpot_p99_s=0.02, slo=CHAT, prompt_tokens_mean=4000.0),
    )
    assert holding(diagnosis) == ["slow-prefill"]  # 534 ms of queue < 666 ms of prefill
    assert diagnosis.bottleneck == "prefill"
    assert "max_num_batched_tokens" in diagnosis.try_next[0]
    assert not [step for step in diagnosis.try_next if step.startswith("enable chunked")]


def test_case_3_bf16_reads_as_memory_bound_and_awq_is_proposed() -> None:
    """Util 60 %, "memory 90 %", 32 running, 800 tok/s.

    The guide's own table (util < 50 %, memory > 90 %) does not match these numbers; its section
    4.2 (30-60 %) does, if 90 % is the bus. INT4 quarters bf16 weight bytes; the guide says halves.
    """
    profile = Profile(window=window(running_max=32.0, preemptions=0.0), device=gpu(0.60, 0.90))
    diagnosis = diagnose(profile, latency=LatencyView())
    assert holding(diagnosis) == ["memory-bound-wide"]
    assert diagnosis.bottleneck == BANDWIDTH
    assert diagnosis.try_next[0] == "quantize weights (AWQ: a quarter of bf16's weight bytes)"


def test_case_3_by_the_roofline_is_far_from_the_bandwidth_bound() -> None:
    """32 streams at 800 tok/s are steps of 40 ms. Weights 13.5 GB and 17.2 GB of KV (32 x 1024
    tokens x 524,288 B) a step are 0.77 TB/s: 38 % of an A100's 2.04 TB/s, so look elsewhere.
    """
    step_s = 32 / 800
    mbu = (13.5e9 + 32 * 1024 * 524_288) / step_s / 2.039e12
    mfu = 2 * 6.74e9 * 32 / step_s / 312e12
    assert mbu == pytest.approx(0.376, abs=0.001)
    assert mfu == pytest.approx(0.035, abs=0.001)
    diagnosis = diagnose(
        Profile(device=gpu(0.60, 0.90)),
        latency=LatencyView(),
        roofline=RooflineView(mbu_frac=mbu, mfu_frac=mfu),
    )
    assert diagnosis.agreement.startswith(
        "the readings disagree: utilization says memory bandwidth"
    )
    assert diagnosis.bottleneck == OVERHEAD
    assert "memory-bound-wide" in holding(diagnosis)  # the first reading stands beside
