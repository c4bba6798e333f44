import json
from pathlib import Path

import pytest

from tasks import quantize
from tasks.adapters.checkpoints.records import AwqRecipe, PreparedModel, Progress
from tasks.adapters.checkpoints.records import QuantizedCheckpoint as Quantized
from tasks.domain.errors import ConfigError
from tasks.domain.study_request import QuantizationPlan
from tasks.quantize import CALIBRATION, MadeCheckpoint, QuantizingMeans, prepare_checkpoint


@pytest.fixture
def prepared(tmp_path: Path) -> PreparedModel:
    folder = tmp_path / "smol"
    folder.mkdir()
    (folder / "config.json").write_text('{"dtype": "float32"}')
    return PreparedModel(folder=folder, sha256="reference-hash")


@pytest.fixture
def recipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[AwqRecipe]:
    """Stand in for the quantizer: remember the recipes and report one layer."""
    seen: list[AwqRecipe] = []

    def quantize_awq(*_: object, **options: object) -> Quantized:
        recipe, report = options["recipe"], options["on_progress"]
        assert isinstance(recipe, AwqRecipe)
        seen.append(recipe)
        if callable(report):
            report(Progress(stage="quantize", done=3, of=30))
        return Quantized(
            packed_dir=tmp_path / "packed",
            dequantized_dir=tmp_path / "plain" if options["dequantize"] else None,
            sha256="awq-hash",
            seconds=61.5,
            reused=False,
        )

    monkeypatch.setattr("tasks.adapters.checkpoints.awq_checkpoint.quantize_awq", quantize_awq)
    return seen


def make(
    prepared: PreparedModel,
    method: str,
    *,
    engine_python: Path | None = None,
    said: list[str] | None = None,
) -> MadeCheckpoint:
    means = QuantizingMeans(
        python=Path("python"), models_dir=prepared.folder.parent, engine_python=engine_python
    )
    return prepare_checkpoint(
        prepared,
        method=method,
        plan=QuantizationPlan(bits=4, group_size=32, samples=8, sequence_tokens=16),
        means=means,
        on_progress=None if said is None else said.append,
    )


def test_the_reference_is_the_prepared_folder_itself(prepared: PreparedModel) -> None:
    made = make(prepared, "reference")
    assert made.folder == prepared.folder
    assert made.seconds is None
    assert made.checkpoint.sha256 == "reference-hash"
    assert (made.checkpoint.method, made.checkpoint.serve_as) == ("none", "reference")
    assert made.checkpoint.dtype == "float32"


def test_without_the_kernel_awq_is_served_dequantized_under_its_own_hash(
    prepared: PreparedModel, recipes: list[AwqRecipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quantize, "has_w4a16_kernel", lambda python, dtype: False)
    said: list[str] = []
    made = make(prepared, "awq", engine_python=Path("engine"), said=said)
    assert made.folder.name == "plain"
    assert made.checkpoint.kernel == "emulated"
    assert made.checkpoint.sha256 == "awq-hash"
    assert made.seconds == 61.5
    assert said == ["awq quantize: layer 3 of 30"]
    recipe = recipes[0]
    assert (recipe.group_size, recipe.samples, recipe.sequence_tokens) == (32, 8, 16)


def test_with_the_kernel_awq_is_served_packed(
    prepared: PreparedModel, recipes: list[AwqRecipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quantize, "has_w4a16_kernel", lambda python, dtype: True)
    made = make(prepared, "awq", engine_python=Path("engine"))
    assert made.folder.name == "packed"
    assert made.checkpoint.kernel == "native"


@pytest.mark.parametrize("engine_python", [None, Path("engine")])
def test_an_unknown_kernel_is_no_kernel(
    prepared: PreparedModel,
    recipes: list[AwqRecipe],
    monkeypatch: pytest.MonkeyPatch,
    engine_python: Path | None,
) -> None:
    monkeypatch.setattr(quantize, "has_w4a16_kernel", lambda python, dtype: None)
    assert make(prepared, "awq", engine_python=engine_python).checkpoint.kernel == "emulated"


def test_the_awq_twin_of_a_synthetic_model_is_a_shape_with_its_quantization(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = tmp_path / "shape"
    shape.mkdir()
    (shape / "config.json").write_text('{"hidden_size": 4096, "torch_dtype": "bfloat16"}')
    (shape / "tokenizer.json").write_text("{}")
    (shape / "model.safetensors").write_bytes(b"weights that must not be taken along")
    monkeypatch.setattr(quantize, "has_w4a16_kernel", lambda python, dtype: dtype == "auto")
    made = quantize.prepare_checkpoint(
        PreparedModel(folder=shape, sha256="s"),
        method="awq",
        plan=QuantizationPlan(group_size=128),
        means=QuantizingMeans(
            python=Path("q"), models_dir=tmp_path / "models", engine_python=Path("e")
        ),
        synthetic=True,
    )
    config = json.loads((made.folder / "config.json").read_text())
    assert config["quantization_config"]["group_size"] == 128
    assert config["hidden_size"] == 4096
    assert (made.folder / "tokenizer.json").read_text() == "{}"
    assert (made.folder / "model.safetensors").stat().st_size == 10
    assert (made.checkpoint.serve_as, made.checkpoint.synthetic) == ("packed", True)
    assert made.checkpoint.sha256 != "s"


@pytest.mark.parametrize(("dtype", "named"), [("auto", "dtype auto"), ("float32", "bfloat16 in")])
def test_dummy_weights_without_a_kernel_are_refused_with_the_way_out(
    prepared: PreparedModel, monkeypatch: pytest.MonkeyPatch, dtype: str, named: str
) -> None:
    # A kernel for half precision alone, as vLLM's CPU build has it, serves no float32.
    monkeypatch.setattr(quantize, "has_w4a16_kernel", lambda python, dtype: dtype == "bfloat16")
    means = QuantizingMeans(
        python=Path("q"), models_dir=Path("m"), engine_python=Path("e"), engine_dtype=dtype
    )
    with pytest.raises(ConfigError, match="leave that arm") as refused:
        quantize.prepare_checkpoint(
            prepared,
            method="awq",
            plan=QuantizationPlan(),
            means=means,
            synthetic=True,
        )
    assert named in str(refused.value)


def test_another_method_is_refused(prepared: PreparedModel) -> None:
    with pytest.raises(ConfigError, match="'gptq' is unknown; use reference or awq"):
        make(prepared, "gptq")


def test_the_calibration_text_is_shipped() -> None:
    assert len(CALIBRATION.read_text().split()) > 3000
