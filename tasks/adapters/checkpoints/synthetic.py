"""Checkpoints of shapes without weights: an engine fills them with dummies.

They have real kernels and real memory traffic, and text that means nothing: good for speed, never
for accuracy.
"""

import json
import shutil
import struct
from pathlib import Path

from tasks.adapters.checkpoints.hashing import checkpoint_sha256
from tasks.adapters.checkpoints.records import PreparedModel
from tasks.domain.errors import ConfigError, StorageError

WEIGHTS = "model.safetensors"
EMPTY = struct.pack("<Q", 2) + b"{}"  # a safetensors header that names no tensor


def synthetic_awq(reference: Path, *, out_dir: Path, bits: int, group_size: int) -> PreparedModel:
    """Return the AWQ twin of a shape: its files, with the quantization that an engine reads.

    float16, as AWQ checkpoints usually are; group_size in input channels.

    Raises:
        ConfigError: the reference's config.json cannot be read.
        StorageError: the folder cannot be written.
    """
    config = _config(reference / "config.json")
    twin = {
        **config,
        "torch_dtype": "float16",
        "quantization_config": {
            "quant_method": "awq",
            "bits": bits,
            "group_size": group_size,
            "zero_point": True,
            "version": "gemm",
        },
    }
    twin.pop("dtype", None)
    folder = out_dir / f"{reference.name}-awq{bits}-g{group_size}-synthetic"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path in sorted(reference.iterdir()):
            if path.is_file() and path.name != "config.json" and path.suffix != ".safetensors":
                shutil.copyfile(path, folder / path.name)
        (folder / WEIGHTS).write_bytes(EMPTY)
        (folder / "config.json").write_text(json.dumps(twin, indent=1), encoding="utf-8")
    except OSError as error:
        raise StorageError(
            f"{folder}: the AWQ twin of {reference.name} cannot be written: {error}; free space, "
            "or set RETUNE_HOME to a folder that you may write"
        ) from error
    return PreparedModel(folder=folder, sha256=checkpoint_sha256(folder))


def _config(path: Path) -> dict[str, object]:
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}; give a whole config.json") from error
    if not isinstance(config, dict):
        raise ConfigError(f"{path}: holds a {type(config).__name__}; needed a JSON object")
    return config
