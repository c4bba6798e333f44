"""Every item of the guide's checklist, with and without evidence."""

from dataclasses import replace

import pytest

from tasks.domain.checklist import ITEMS, ChecklistResult, Section, checklist, passed
from tasks.domain.checklist_evidence import ChecklistEvidence, Mark
from tasks.domain.hardware import GIB, Flavour, gpu
from tasks.domain.kv_pool import LengthProfile
from tasks.domain.memory_plan import MemoryPlan, memory_plan
from tasks.domain.model_spec import ModelSpec
from tasks.domain.parameters import ParameterValue, ParameterValues

LENGTHS = LengthProfile(prompt_mean=1000, prompt_p99=4000, output_mean=200, output_p99=800)
MODEL = ModelSpec.from_config(
    {
        "model_type": "llama",
        "num_hidden_layers": 32,
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14336,
        "vocab_size": 128256,
        "max_position_embeddings": 8192,
        "torch_dtype": "bfloat16",
    },
    name="llama-3-8b",
    weight_bytes=None,
)
VALUES: dict[str, ParameterValue] = {
    "max_num_seqs": 64,
    "max_model_len": 8192,
    "gpu_memory_utilization": 0.9,
}


def plan_of(values: dict[str, ParameterValue]) -> MemoryPlan:
    return memory_plan(
        MODEL,
        gpu("NVIDIA H200"),
        ParameterValues.of(values),
        lengths=LENGTHS,
        flavour=Flavour.CUDA,
    )


GOOD = ChecklistEvidence(
    values=ParameterValues.of(VALUES),
    plan=plan_of(VALUES),
    lengths=LENGTHS,
    online=True,
    priority="latency",
    reuse_frac=0.4,
    other_gpu_bytes=2 * GIB,
    max_temperature_celsius=71.0,
    throttled=False,
    inflection_concurrency=96,
    preemptions=0,
    quantized=True,
    reference_evaluated=True,
    quantized_evaluated=True,
    accuracy_drop_upper=0.006,
    alerts=(
        ("gpu_temperature_celsius", 85.0),
        ("preemptions", 0.0),
        ("p99_slo_frac", 0.6),
        ("prefix_hit_rate_frac", 0.5),
    ),
    canary_frac=0.05,
    observation_s=86_400.0,
    rollback_set="peak@2026-11-30",
)


def result(evidence: ChecklistEvidence, item: str) -> ChecklistResult:
    return next(r for r in checklist(evidence) if r.id == item)


def test_all_twenty_two_items_of_six_sections_are_there() -> None:
    counts = [sum(1 for i in ITEMS if i.section is section) for section in Section]
    assert counts == [3, 3, 6, 3, 4, 3]
    assert len({i.id for i in ITEMS}) == 22


def test_without_evidence_every_item_is_unknown_and_none_passes() -> None:
    assert {r.mark for r in checklist(ChecklistEvidence())} == {Mark.UNKNOWN}


def test_with_good_evidence_every_item_passes() -> None:
    bad = [(r.id, r.mark, r.sentence) for r in checklist(GOOD) if r.mark is not Mark.PASS]
    assert bad == []
    assert passed(checklist(GOOD))


@pytest.mark.parametrize(
    ("item", "evidence", "mark"),
    [
        ("1.1-priority", replace(GOOD, values=ParameterValues()), Mark.WARN),
        ("1.2-lengths", replace(GOOD, plan=plan_of({"max_model_len": 4799})), Mark.FAIL),
        ("1.2-lengths", replace(GOOD, plan=plan_of({"max_model_len": 4800})), Mark.PASS),
        (
            "2.1-memory",
            replace(GOOD, plan=plan_of({"gpu_memory_utilization": 0.1})),
            Mark.FAIL,
        ),
        ("2.2-sharing", replace(GOOD, other_gpu_bytes=20 * GIB), Mark.FAIL),
        ("2.3-cooling", replace(GOOD, max_temperature_celsius=85.5), Mark.FAIL),
        ("2.3-cooling", replace(GOOD, throttled=True), Mark.FAIL),
        ("3.1-inflection", replace(GOOD, inflection_concurrency=32), Mark.WARN),
        (
            "3.2-worst-case",
            replace(GOOD, lengths=None, plan=plan_of({"max_num_seqs": 1024})),
            Mark.WARN,
        ),
        (
            "3.3-headroom",
            replace(GOOD, plan=plan_of({"gpu_memory_utilization": 0.92})),
            Mark.WARN,
        ),
        ("3.4-no-swap", replace(GOOD, preemptions=3), Mark.WARN),
        (
            "3.4-no-swap",
            replace(GOOD, values=ParameterValues.of({"swap_space": 4})),
            Mark.FAIL,
        ),
        (
            "3.5-prefix-caching",
            replace(GOOD, values=ParameterValues.of({"enable_prefix_caching": False})),
            Mark.FAIL,
        ),
        (
            "3.6-chunked-prefill",
            replace(GOOD, values=ParameterValues.of({"enable_chunked_prefill": False})),
            Mark.FAIL,
        ),
        ("4.1-reference", replace(GOOD, reference_evaluated=False), Mark.FAIL),
        ("4.2-quantized", replace(GOOD, quantized_evaluated=False), Mark.FAIL),
        ("4.3-drop", replace(GOOD, accuracy_drop_upper=0.01), Mark.FAIL),
        ("4.3-drop", replace(GOOD, quantized=False, accuracy_drop_upper=None), Mark.PASS),
        ("5.1-temperature", replace(GOOD, alerts=()), Mark.FAIL),
        ("5.1-temperature", replace(GOOD, alerts=(("gpu_temperature_celsius", 95.0),)), Mark.WARN),
        ("5.2-preemption", replace(GOOD, alerts=(("preemptions", 10.0),)), Mark.WARN),
        ("5.3-p99", replace(GOOD, alerts=(("p99_slo_frac", 1.0),)), Mark.WARN),
        ("5.4-hit-rate", replace(GOOD, alerts=(("prefix_hit_rate_frac", 0.1),)), Mark.WARN),
        ("5.4-hit-rate", replace(GOOD, alerts=(), reuse_frac=0.02), Mark.PASS),
        ("6.1-canary", replace(GOOD, canary_frac=0.2), Mark.FAIL),
        ("6.1-canary", replace(GOOD, canary_frac=0.0), Mark.FAIL),
        ("6.2-observation", replace(GOOD, observation_s=3600.0), Mark.FAIL),
        ("6.3-rollback", replace(GOOD, rollback_set=None), Mark.UNKNOWN),
    ],
)
def test_an_item_marks_the_evidence_against_it(
    item: str, evidence: ChecklistEvidence, mark: Mark
) -> None:
    found = result(evidence, item)
    assert found.mark is mark, found.sentence


def test_a_worst_case_above_the_pool_passes_when_the_real_lengths_fit() -> None:
    found = result(
        replace(GOOD, plan=plan_of({"max_num_seqs": 150, "max_model_len": 8192})), "3.2-worst-case"
    )
    # 150 x 8192 is above the pool, 150 x 4800 is below it
    assert found.mark is Mark.PASS
    assert "150 requests of p99 length fit" in found.sentence


def test_one_failed_item_fails_the_list_and_unknowns_do_not() -> None:
    assert not passed(checklist(replace(GOOD, canary_frac=0.5)))
    assert passed(checklist(ChecklistEvidence()))
