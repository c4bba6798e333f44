"""Diagnosis: the guide's rows, its three case studies with their slips, unknowns, two readings."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.domain.device_samples import DeviceSummary, GpuSummary
from tasks.domain.diagnosis import Diagnosis, diagnose, ttft_floor_s
from tasks.domain.diagnosis_facts import LatencyView, RooflineView, gather_facts
from tasks.domain.diagnosis_rule import Rule, When
from tasks.domain.diagnosis_rules import (
    ALERTS,
    BANDWIDTH,
    COMPUTE,
    FIRST_READING,
    OVERHEAD,
    SECOND_READING,
)
from tasks.domain.engine_window import EngineWindow
from tasks.domain.kernel_table import KernelTable
from tasks.domain.profile import Profile
from tasks.domain.slo import Slo

CHAT = Slo(ttft_s=1.0, tpot_s=0.03)


def gpu(
    util: float | None = None,
    bus: float | None = None,
    *,
    temperature_c: float | None = 70.0,
    thermal: float | None = 0.0,
    used_bytes: int | None = None,
    power: float | None = None,
) -> DeviceSummary:
    summary = GpuSummary(
        index=0,
        util_mean_frac=util,
        memory_bus_mean_frac=bus,
        memory_used_max_bytes=used_bytes,
        power_mean_w=None,
        power_frac=power,
        energy_j=None,
        temperature_max_c=temperature_c,
        sm_clock_mean_mhz=None,
        thermal_frac=thermal,
    )
    return host((summary,))


def host(gpus: tuple[GpuSummary, ...] = (), *, cpu: float | None = 0.2) -> DeviceSummary:
    return DeviceSummary(
        duration_s=60.0,
        samples=60,
        gpus=gpus,
        gpu_reason=None if gpus else "NVML: no library",
        cpus=2,
        cpu_mean_frac=cpu,
        cpu_max_frac=cpu,
        tree_cpu_mean_cores=None,
        tree_rss_max_bytes=None,
        host_mem_available_min_bytes=None,
        cpu_temperature_max_c=None,
    )


def window(**values: float | None) -> EngineWindow:
    return EngineWindow(duration_s=60.0, snapshots=61, **values)  # type: ignore[arg-type]


def holding(diagnosis: Diagnosis) -> list[str]:
    return [found.rule_id for found in diagnosis.first_reading]


@pytest.mark.parametrize(
    ("device", "rule_id", "layer"),
    [
        (gpu(0.40, 0.30), "small-batch", OVERHEAD),
        (gpu(0.95, 0.95), "compute-bound", COMPUTE),
        (gpu(0.45, 0.95), "memory-bound", BANDWIDTH),
        (gpu(0.80, 0.70, temperature_c=86.0), "thermal-throttling", "thermal"),
    ],
)
def test_the_guides_rows_over_nvml_hold(device: DeviceSummary, rule_id: str, layer: str) -> None:
    diagnosis = diagnose(Profile(device=device), latency=LatencyView())
    assert rule_id in holding(diagnosis)
    assert diagnosis.bottleneck == layer


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
    assert (mbu, mfu) == (pytest.approx(0.376, abs=0.001), pytest.approx(0.035, abs=0.001))
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


def test_used_memory_alone_says_nothing() -> None:
    diagnosis = diagnose(Profile(device=gpu(used_bytes=75 * 2**30)), latency=LatencyView())
    assert not {"memory-bound", "compute-bound", "small-batch"} & set(holding(diagnosis))
    unknown = {rule.rule_id: rule.missing for rule in diagnosis.unknown}
    assert unknown["memory-bound"] == ("gpu_util_frac", "memory_bus_frac")


def test_a_late_client_comes_before_every_other_cause() -> None:
    profile = Profile(window=window(preemptions=90.0), device=gpu(0.95, 0.95, temperature_c=90.0))
    diagnosis = diagnose(profile, latency=LatencyView(client_late=True))
    assert diagnosis.bottleneck == "client"


def test_a_busy_cpu_is_the_bottleneck_only_on_a_host_without_gpus() -> None:
    assert diagnose(Profile(device=host(cpu=0.97)), latency=LatencyView()).bottleneck == "host CPU"
    with_gpu = Profile(device=host(gpu(0.8, 0.7).gpus, cpu=0.97))
    assert diagnose(with_gpu, latency=LatencyView()).bottleneck is None


def test_a_queue_at_the_cap_and_a_queue_below_it_are_told_apart() -> None:
    at_cap = window(waiting_mean=48.0, running_max=16.0, kv_usage_p95_frac=0.3)
    below = window(waiting_mean=48.0, running_max=9.0, kv_usage_p95_frac=0.3)
    first = diagnose(Profile(window=at_cap), latency=LatencyView(), max_num_seqs=16)
    second = diagnose(Profile(window=below), latency=LatencyView(), max_num_seqs=16)
    assert (holding(first), holding(second)) == (["queue-at-cap"], ["queue-below-cap"])
    assert "raise max_num_seqs" in first.try_next[0]
    assert second.try_next[0] == "raise max_num_batched_tokens"


def test_a_slow_decode_is_a_symptom_behind_its_cause() -> None:
    slow = LatencyView(tpot_p99_s=0.08, slo=CHAT)
    alone = diagnose(Profile(), latency=slow)
    caused = diagnose(Profile(), latency=slow, roofline=RooflineView(mbu_frac=0.65, mfu_frac=0.1))
    assert alone.bottleneck == "decode"
    assert (caused.bottleneck, holding(caused)) == (BANDWIDTH, ["slow-decode"])


def test_gaps_between_kernels_are_seen_in_the_kernel_table() -> None:
    table = KernelTable(
        kind="gpu",
        rows=(),
        total_s=0.5,
        busy_s=0.4,
        span_s=1.0,
        busy_frac=0.4,
        events=9,
        categories=(("matmul", 0.6),),
    )
    diagnosis = diagnose(Profile(kernels=table), latency=LatencyView())
    assert holding(diagnosis) == ["launch-gaps"]


def test_agreement_names_what_both_readings_say() -> None:
    both = diagnose(
        Profile(device=gpu(0.45, 0.95)),
        latency=LatencyView(),
        roofline=RooflineView(mbu_frac=0.65, mfu_frac=0.05),
    )
    none = diagnose(Profile(device=gpu(0.45, 0.95)), latency=LatencyView())
    silent = diagnose(
        Profile(), latency=LatencyView(), roofline=RooflineView(mbu_frac=0.2, mfu_frac=0.6)
    )
    assert both.agreement == "both readings say memory bandwidth"
    assert none.agreement.startswith("no second reading")
    assert silent.agreement.endswith("the roofline says compute")


def test_nothing_measured_diagnoses_nothing_and_lists_every_rule_as_unknown() -> None:
    diagnosis = diagnose(Profile(), latency=LatencyView())
    assert (diagnosis.bottleneck, diagnosis.first_reading, diagnosis.try_next) == (None, (), ())
    assert len(diagnosis.unknown) == len(FIRST_READING) + len(SECOND_READING)
    assert all(rule.missing for rule in diagnosis.unknown)


def test_one_false_condition_decides_although_another_is_unknown() -> None:
    rule = Rule(
        id="r",
        source="s",
        layer="l",
        when=(When(fact="a", op=">", limit=1.0), When(fact="b", op=">", limit=1.0)),
        finding="f",
        try_next=(),
    )
    assert rule.holds({"a": 0.0, "b": None}) is False
    assert rule.holds({"a": 2.0, "b": None}) is None
    assert rule.holds({"a": 2.0, "b": 2.0}) is True
    assert rule.missing({"a": 2.0, "b": None}) == ("b",)


def test_every_row_asks_only_for_facts_that_are_gathered_and_ids_are_unique() -> None:
    rules = FIRST_READING + SECOND_READING + ALERTS
    known = set(gather_facts(Profile(), latency=LatencyView()))
    assert {name for rule in rules for when in rule.when for name in when.needs} <= known
    assert len({rule.id for rule in rules}) == len(rules)
    assert all(rule.source and rule.finding for rule in rules)
    assert {rule.layer for rule in SECOND_READING} <= {rule.layer for rule in FIRST_READING}


def test_all_seven_rows_of_the_guides_table_are_present() -> None:
    sources = " ".join(rule.source for rule in FIRST_READING)
    rows = re.findall(r"guide section 3 step 5, row (\d)", sources)
    assert sorted(rows) == list("1234567")


def test_the_alerts_of_the_guides_checklist_go_off() -> None:
    diagnosis = diagnose(
        Profile(
            window=window(preemptions=1.0, prefix_hit_frac=0.4), device=gpu(temperature_c=86.0)
        ),
        latency=LatencyView(ttft_p99_s=0.61, tpot_p99_s=0.01, slo=CHAT),
    )
    assert [alert.rule_id for alert in diagnosis.alerts] == [
        "alert-temperature",
        "alert-preemption",
        "alert-ttft",  # 0.61 s is beyond 60 % of 1 s
        "alert-hit-rate",
    ]


SHARE = st.one_of(st.none(), st.floats(min_value=0.0, max_value=1.0))


@given(SHARE, SHARE)
def test_a_rule_never_both_holds_and_is_unknown(util: float | None, bus: float | None) -> None:
    diagnosis = diagnose(Profile(device=gpu(util, bus)), latency=LatencyView())
    assert not set(holding(diagnosis)) & {rule.rule_id for rule in diagnosis.unknown}
    if util is None and bus is None:
        assert diagnosis.bottleneck is None
