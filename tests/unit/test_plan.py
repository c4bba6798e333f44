"""The planning verb over several arms."""

from tasks.domain.arm_plan import ArmRequest
from tasks.domain.catalogue.installed import EngineArgument, InstalledEngine
from tasks.domain.checklist_evidence import ChecklistEvidence, Mark
from tasks.domain.hardware import GIB, Flavour, cpu, gpu
from tasks.domain.model_spec import ModelSpec
from tasks.domain.parameters import ParameterValue, ParameterValues
from tasks.plan import StudyPlan, plan_study

CONFIG: dict[str, object] = {
    "model_type": "qwen2",
    "num_hidden_layers": 80,
    "hidden_size": 8192,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "intermediate_size": 29568,
    "vocab_size": 152064,
    "max_position_embeddings": 32768,
    "torch_dtype": "bfloat16",
}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}
PLAIN = ModelSpec.from_config(CONFIG, name="72b", weight_bytes=None)
PACKED = ModelSpec.from_config(
    {**CONFIG, "quantization_config": AWQ}, name="72b-awq", weight_bytes=None
)


def arm(name: str, model: ModelSpec, **values: ParameterValue) -> ArmRequest:
    return ArmRequest(name=name, model=model, values=ParameterValues.of(values))


def plan(*arms: ArmRequest, installed: InstalledEngine | None = None) -> StudyPlan:
    return plan_study(
        arms, device=gpu("NVIDIA H200"), evidence=ChecklistEvidence(), installed=installed
    )


def test_arms_that_cannot_start_are_set_apart_with_their_reason() -> None:
    found = plan(
        arm("bf16 on one card", PLAIN),  # 145 GB of weights
        arm("bf16 on two", PLAIN, tensor_parallel_size=2),
        arm("awq on two", PACKED, tensor_parallel_size=2),  # 14784 is no multiple of 128
        arm("awq on one", PACKED),
    )
    reasons = {a.name: [p.code for p in a.problems] for a in found.infeasible}
    assert set(reasons) == {"bf16 on one card", "awq on two"}
    assert "WEIGHTS_DO_NOT_FIT" in reasons["bf16 on one card"]
    assert "QUANT_SHAPE_NOT_DIVISIBLE" in reasons["awq on two"]


def test_the_headline_tells_unequal_tensor_parallel_sizes_first() -> None:
    found = plan(arm("bf16", PLAIN, tensor_parallel_size=2), arm("awq", PACKED))
    assert found.headline.startswith("tensor_parallel_size differs between arms (bf16 at 2, awq")
    same = plan(arm("a", PACKED), arm("b", PACKED))
    assert same.headline == "2 arms, 0 infeasible"


def test_values_too_wrong_to_plan_are_an_infeasible_arm_and_no_crash() -> None:
    found = plan(arm("three ranks", PLAIN, tensor_parallel_size=3), arm("fine", PACKED))
    assert [a.name for a in found.infeasible] == ["three ranks"]
    assert found.arms[0].memory is None
    assert [p.code for p in found.arms[0].problems] == ["HEADS_NOT_DIVISIBLE"]


def test_an_argument_that_the_engine_lacks_makes_an_arm_infeasible() -> None:
    installed = InstalledEngine(
        version="0.24.0",
        flavour=Flavour.CUDA,
        arguments=(EngineArgument(name="max_num_seqs"),),
    )
    found = plan(arm("old words", PACKED, swap_space=16), installed=installed)
    assert found.infeasible[0].problems[0].code == "UNKNOWN_ENGINE_ARGUMENT"


def test_a_feasible_arm_has_memory_and_a_bound() -> None:
    found = plan(arm("awq", PACKED)).arms[0]
    assert found.memory is not None and found.memory.kv_pool_tokens > 0
    assert found.roofline is not None and found.roofline.tpot_bound_s is not None


def test_a_cpu_arm_has_memory_and_no_bound() -> None:
    tiny = ModelSpec.from_config(
        {**CONFIG, "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 128,
         "vocab_size": 100, "num_attention_heads": 8},
        name="tiny",
        weight_bytes=None,
    )  # fmt: skip
    found = plan_study(
        (arm("cpu", tiny, max_model_len=2048),),
        device=cpu(memory_bytes=16 * GIB),
        evidence=ChecklistEvidence(),
        cpu_kv_space_gib=1,
    )
    assert found.arms[0].feasible
    assert found.arms[0].memory is not None
    assert found.arms[0].memory.effective.dtype == "float32"  # as every launch on a CPU
    assert found.arms[0].roofline is not None
    assert found.arms[0].roofline.tpot_bound_s is None


def test_the_checklist_is_walked_whole() -> None:
    found = plan(arm("awq", PACKED))
    assert len(found.checklist) == 22
    assert {r.mark for r in found.checklist} == {Mark.UNKNOWN}
