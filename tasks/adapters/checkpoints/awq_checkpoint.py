"""Makes AWQ checkpoints, named by what they are made of, and their dequantized twins.

The name holds a hash of the model, the recipe, the calibration text and the tools: the same
question finds the same folder, a changed one never does.
"""

import json
import shutil
import time
from pathlib import Path

from tasks.adapters.checkpoints.hashing import (
    checkpoint_sha256,
    combined_sha256,
    file_sha256,
    tokenizer_files,
)
from tasks.adapters.checkpoints.program import (
    PROGRAMS,
    OnProgress,
    installed_versions,
    run_program,
)
from tasks.adapters.checkpoints.published import publishing, read_manifest, seal
from tasks.adapters.checkpoints.records import AwqRecipe, QuantizedCheckpoint
from tasks.domain.errors import ConfigError, InvalidParameterError

QUANTIZER = "awq.py"
DEQUANTIZER = "dequantize.py"
_TOOLS = ("llmcompressor", "compressed-tensors", "transformers", "torch")


def quantize_awq(
    model_dir: Path,
    *,
    model_sha256: str,
    out_dir: Path,
    python: Path,
    recipe: AwqRecipe,
    log_path: Path,
    dequantize: bool = False,
    on_progress: OnProgress | None = None,
) -> QuantizedCheckpoint:
    """Return the AWQ checkpoint of a model below ``out_dir``, made now or found.

    ``dequantize`` also writes plain weights with the values of the packed ones, for engines
    without the kernel. Tokenizer files are the model's own, byte for byte.

    Raises:
        InvalidParameterError: if the group size does not divide the model's layers.
        ConfigError: if the calibration text or the model's config cannot be read.
        QuantizationError: if a program fails. StorageError: if the disk is full.
    """
    require_group_size(model_dir, recipe.group_size)
    inputs = _inputs(model_sha256, recipe, python)
    key = combined_sha256((name, str(value)) for name, value in inputs.items())[:16]
    packed_dir = out_dir / f"awq-{key}-packed"
    plain_dir = out_dir / f"awq-{key}-dequantized"
    manifest = read_manifest(packed_dir)
    reused = manifest is not None
    if manifest is None:
        arguments = _quantizer_arguments(model_dir, recipe)
        manifest = _make(
            QUANTIZER, arguments, model_dir, packed_dir, {"inputs": inputs},
            python=python, log_path=log_path, on_progress=on_progress,
        )  # fmt: skip
    if dequantize and read_manifest(plain_dir) is None:
        reused = False
        _make(
            DEQUANTIZER, ["--packed", str(packed_dir.resolve())], model_dir, plain_dir,
            {"inputs": inputs, "packed_sha256": manifest["sha256"]},
            python=python, log_path=log_path.with_name("dequantize-" + log_path.name),
            on_progress=on_progress,
        )  # fmt: skip
    return QuantizedCheckpoint(
        packed_dir=packed_dir,
        dequantized_dir=plain_dir if dequantize else None,
        sha256=str(manifest["sha256"]),
        seconds=float(str(manifest["seconds"])),
        reused=reused,
    )


def require_group_size(model_dir: Path, group_size: int) -> None:
    """Raise unless groups of ``group_size`` weights divide the input width of every layer.

    Raises:
        InvalidParameterError: naming the widths and the common sizes that do divide them.
        ConfigError: if config.json does not tell the widths.
    """
    path = model_dir / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        widths = {name: int(config[name]) for name in ("hidden_size", "intermediate_size")}
        if config.get("head_dim") and config.get("num_attention_heads"):
            # The input width of the attention's output layer, which is not always hidden_size.
            widths["attention width"] = int(config["head_dim"]) * int(config["num_attention_heads"])
    except (OSError, json.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"{path}: hidden_size and intermediate_size cannot be read: {error}; "
            "give a decoder-only model's config"
        ) from error
    wrong = {name: width for name, width in widths.items() if width % group_size}
    if wrong:
        fitting = [size for size in (128, 64, 32, 16) if not any(w % size for w in widths.values())]
        raise InvalidParameterError(
            f"group_size={group_size} does not divide {wrong} of {model_dir}; use one of {fitting}"
        )


def _inputs(model_sha256: str, recipe: AwqRecipe, python: Path) -> dict[str, object]:
    if not recipe.calibration.is_file():
        raise ConfigError(
            f"calibration text {recipe.calibration} does not exist; give a UTF-8 text file"
        )
    return {
        "model": model_sha256,
        "bits": recipe.bits,
        "group_size": recipe.group_size,
        "samples": recipe.samples,
        "sequence_tokens": recipe.sequence_tokens,
        "grid_points": recipe.grid_points,
        "calibration": file_sha256(recipe.calibration),
        "program": file_sha256(PROGRAMS / QUANTIZER),
        "dequantizer": file_sha256(PROGRAMS / DEQUANTIZER),
        "tools": installed_versions(python, _TOOLS),
    }


def _quantizer_arguments(model_dir: Path, recipe: AwqRecipe) -> list[str]:
    options = {
        "--model": model_dir.resolve(),
        "--calibration": recipe.calibration.resolve(),
        "--bits": recipe.bits,
        "--group-size": recipe.group_size,
        "--samples": recipe.samples,
        "--sequence-tokens": recipe.sequence_tokens,
        "--grid-points": recipe.grid_points,
    }
    return [text for name, value in options.items() for text in (name, str(value))]


def _make(
    program: str,
    arguments: list[str],
    model_dir: Path,
    folder: Path,
    facts: dict[str, object],
    *,
    python: Path,
    log_path: Path,
    on_progress: OnProgress | None,
) -> dict[str, object]:
    began = time.monotonic()
    with publishing(folder) as partial:
        done = run_program(
            program,
            [*arguments, "--out", str(partial.resolve())],
            python=python,
            log_path=log_path,
            on_progress=on_progress,
        )
        for path in tokenizer_files(model_dir):
            shutil.copyfile(path, partial / path.name)
        made = {
            **facts,
            "kind": program.removesuffix(".py"),
            "report": done,
            "sha256": checkpoint_sha256(partial),
            "seconds": round(time.monotonic() - began, 1),
        }
        return seal(partial, folder, made)
