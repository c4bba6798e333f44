"""AWQ with the real quantizer on the default model cut down to two layers, so that it is quick."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from tasks.adapters.checkpoints.awq_checkpoint import quantize_awq
from tasks.adapters.checkpoints.hashing import checkpoint_sha256
from tasks.adapters.checkpoints.kernel_probe import has_w4a16_kernel
from tasks.adapters.checkpoints.records import AwqRecipe, Progress, QuantizedCheckpoint
from tasks.domain.errors import QuantizationError
from tasks.quantize import CALIBRATION

CUT = """
import json, shutil, sys
from pathlib import Path
from safetensors.torch import load_file, save_file
source, out = Path(sys.argv[1]), Path(sys.argv[2])
tensors = load_file(source / "model.safetensors")
keep = {n: t for n, t in tensors.items()
        if ".layers." not in n or int(n.split(".layers.")[1].split(".")[0]) < 2}
save_file(keep, out / "model.safetensors", metadata={"format": "pt"})
config = json.loads((source / "config.json").read_text())
config["num_hidden_layers"] = 2
(out / "config.json").write_text(json.dumps(config))
for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
    if (source / name).exists():
        shutil.copy(source / name, out / name)
"""
# The library's own way back from packed to plain is the judge of ours.
COMPARE = """
import json, sys
import torch
from compressed_tensors.compressors.pack_quantized.base import PackedQuantizationCompressor
from compressed_tensors.quantization import QuantizationScheme
from safetensors.torch import load_file
model, packed, plain = (load_file(f"{folder}/model.safetensors") for folder in sys.argv[1:4])
config = json.load(open(f"{sys.argv[2]}/config.json"))["quantization_config"]
scheme = QuantizationScheme(**next(iter(config["config_groups"].values())))
layers = [n.removesuffix(".weight_packed") for n in packed if n.endswith(".weight_packed")]
worst, moved = 0.0, []
for layer in layers:
    parts = {n.removeprefix(layer + "."): t for n, t in packed.items()
             if n.startswith(layer + ".")}
    theirs = PackedQuantizationCompressor.decompress(parts, scheme)["weight"].float()
    ours = plain[layer + ".weight"].float()
    worst = max(worst, (theirs - ours).abs().max().item())
    moved.append((ours - model[layer + ".weight"].float()).abs().max().item())
    levels = {len(torch.unique(row)) for group in ours.split(64, dim=1) for row in group[:32]}
    assert max(levels) <= 16, levels
left = [n for n in plain if "packed" in n or "scale" in n or "zero_point" in n]
print(json.dumps({"layers": len(layers), "worst": worst, "least_moved": min(moved), "left": left,
                  "names_equal": set(plain) == set(model)}))
"""


def quantizer_python() -> Path:
    return Path(os.environ["RETUNE_QUANTIZE_PYTHON"])


def ask(code: str, *arguments: object) -> str:
    return subprocess.run(
        [str(quantizer_python()), "-I", "-c", code, *map(str, arguments)],
        check=True, capture_output=True, text=True, timeout=600,
    ).stdout  # fmt: skip


@pytest.fixture(scope="module")
def two_layers(model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("two-layers")
    ask(CUT, model_dir, folder)
    return folder


RECIPE = AwqRecipe(calibration=CALIBRATION, samples=8, sequence_tokens=32, grid_points=3)


@pytest.fixture(scope="module")
def progress() -> list[Progress]:
    return []


@pytest.fixture(scope="module")
def quantized(two_layers: Path, progress: list[Progress]) -> QuantizedCheckpoint:
    return quantize_awq(
        two_layers,
        model_sha256=checkpoint_sha256(two_layers),
        out_dir=two_layers.parent / "made",
        python=quantizer_python(),
        recipe=RECIPE,
        log_path=two_layers.parent / "awq.log",
        dequantize=True,
        on_progress=progress.append,
    )


def test_the_packed_checkpoint_holds_four_bit_groups_of_64(quantized: QuantizedCheckpoint) -> None:
    config = json.loads((quantized.packed_dir / "config.json").read_text())
    quantization = config["quantization_config"]
    weights = next(iter(quantization["config_groups"].values()))["weights"]
    assert quantization["format"] == "pack-quantized"
    assert (weights["num_bits"], weights["group_size"]) == (4, 64)
    assert "lm_head" in quantization["ignore"]


def test_dequantized_weights_are_the_packed_ones_and_not_the_originals(
    quantized: QuantizedCheckpoint, two_layers: Path
) -> None:
    seen = json.loads(ask(COMPARE, two_layers, quantized.packed_dir, quantized.dequantized_dir))
    assert seen["layers"] == 2 * 7  # q, k, v, o, gate, up, down
    assert seen["worst"] == 0.0
    assert seen["least_moved"] > 0.0
    assert seen["left"] == []
    assert seen["names_equal"]


def test_every_layer_was_reported(quantized: QuantizedCheckpoint, progress: list[Progress]) -> None:
    assert [(p.done, p.of) for p in progress if p.done is not None] == [(1, 2), (2, 2)]


def test_the_tokenizer_is_the_models_own_byte_for_byte(
    quantized: QuantizedCheckpoint, two_layers: Path
) -> None:
    own = (two_layers / "tokenizer.json").read_bytes()
    assert (quantized.packed_dir / "tokenizer.json").read_bytes() == own
    assert quantized.dequantized_dir is not None
    assert (quantized.dequantized_dir / "tokenizer.json").read_bytes() == own


def test_a_text_that_is_too_short_is_the_cause_that_is_quoted(
    two_layers: Path, tmp_path: Path
) -> None:
    short = tmp_path / "short.txt"
    short.write_text("only a few words")
    with pytest.raises(QuantizationError, match=r"the calibration text has .* needs 2048"):
        quantize_awq(
            two_layers,
            model_sha256="m",
            out_dir=tmp_path / "made",
            python=quantizer_python(),
            recipe=AwqRecipe(calibration=short),
            log_path=tmp_path / "awq.log",
        )


def test_the_converted_tokenizer_splits_numbers_into_digits(model_dir: Path) -> None:
    tokenizer = Tokenizer.from_file(str(model_dir / "tokenizer.json"))
    assert tokenizer.encode("In 1984", add_special_tokens=False).tokens == [
        "In", "Ġ", "1", "9", "8", "4",
    ]  # fmt: skip
    text = "Room 12 costs 305.50 a night."
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert tokenizer.decode(ids) == text


def test_the_engine_says_whether_it_has_the_packed_kernel(engine_python: str) -> None:
    flags = Path("/proc/cpuinfo").read_text()
    answer = has_w4a16_kernel(Path(engine_python), dtype="bfloat16")
    assert answer is not None
    if "avx512" not in flags and not Path("/dev/nvidia0").exists():
        assert answer is False
