"""Diagnosis: the guide's rows, its three case studies with their slips, unknowns, two readings."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.domain.device_samples import DeviceSummary
from tasks.domain.diagnosis import diagnose
from tasks.domain.diagnosis_alerts import ALERTS
from tasks.domain.diagnosis_facts import LatencyView, RooflineView, gather_facts
from tasks.domain.diagnosis_rule import Rule, When
from tasks.domain.diagnosis_rules import (
    BANDWIDTH,
    COMPUTE,
    FIRST_READING,
    OVERHEAD,
    SECOND_READING,
)
from tasks.domain.kernel_table import KernelTable
from tasks.domain.profile import Profile
from tests.fakes.profiles import CHAT, gpu, holding, host, window


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
    busy = host(cpu=0.97, engine_cores=1.8)
    assert diagnose(Profile(device=busy), latency=LatencyView()).bottleneck == "host CPU"
    with_gpu = Profile(device=host(gpu(0.8, 0.7).gpus, cpu=0.97, engine_cores=1.8))
    assert diagnose(with_gpu, latency=LatencyView()).bottleneck is None


def test_a_cpu_kept_busy_by_others_is_told_apart_from_a_busy_engine() -> None:
    def rules(engine_cores: float | None) -> list[str]:
        profile = Profile(device=host(cpu=0.97, engine_cores=engine_cores))
        return holding(diagnose(profile, latency=LatencyView()))

    assert rules(1.8) == ["cpu-saturated"]  # 0.9 of two cores
    assert rules(1.1) == ["cpu-contended"]  # 0.55 of two cores
    assert rules(None) == []  # an engine elsewhere: this host's CPU is not its CPU


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


@pytest.mark.parametrize(("reuse", "told"), [(0.4, True), (0.0, False), (None, False)])
def test_a_cache_that_the_trace_cannot_hit_is_no_bottleneck(
    reuse: float | None, told: bool
) -> None:
    diagnosis = diagnose(
        Profile(window=window(prefix_hit_frac=0.0)), latency=LatencyView(trace_reuse_frac=reuse)
    )
    assert ("low-prefix-hit-rate" in [f.rule_id for f in diagnosis.first_reading]) is told


SHARE = st.one_of(st.none(), st.floats(min_value=0.0, max_value=1.0))


@given(SHARE, SHARE)
def test_a_rule_never_both_holds_and_is_unknown(util: float | None, bus: float | None) -> None:
    diagnosis = diagnose(Profile(device=gpu(util, bus)), latency=LatencyView())
    assert not set(holding(diagnosis)) & {rule.rule_id for rule in diagnosis.unknown}
    if util is None and bus is None:
        assert diagnosis.bottleneck is None
