"""Makes the reference checkpoint: a folder as it is, or weights converted once and kept.

Knows three sources: a Hugging Face folder, a .gguf file, and an installed package of the
quantizer's environment that holds one (``package:NAME``). It downloads nothing.
"""

import json
from collections.abc import Callable
from pathlib import Path

from tasks.adapters.checkpoints.hashing import checkpoint_sha256, file_sha256
from tasks.adapters.checkpoints.program import (
    PROGRAMS,
    OnProgress,
    installed_versions,
    run_program,
)
from tasks.adapters.checkpoints.published import publishing, read_manifest, seal
from tasks.adapters.checkpoints.records import PreparedModel
from tasks.domain.errors import ConfigError

PACKAGE = "package:"
CONVERTER = "convert_gguf.py"
_TOKENIZERS = ("tokenizer.json", "tokenizer.model")
_TOOLS = ("transformers", "gguf", "torch")
_SPLITS_DIGITS = ("smollm",)


def prepare_model(
    source: str,
    *,
    out_dir: Path,
    python: Path,
    log_path: Path,
    sha256_of: Callable[[Path], str] = file_sha256,
    on_progress: OnProgress | None = None,
) -> PreparedModel:
    """Return the reference checkpoint of a source; ``out_dir`` is used for converted ones only.

    A second call with the same source and tools reuses the folder after checking its hashes.
    ``sha256_of`` finds the hash of each file of a folder that is used as it is.

    Raises:
        ConfigError: if the source does not exist or lacks files, or out_dir is somebody else's.
        QuantizationError: if the conversion fails. StorageError: if the disk is full.
    """
    if not source.startswith(PACKAGE) and not source.endswith(".gguf"):
        folder = Path(source)
        require_checkpoint(folder)
        return PreparedModel(folder=folder, sha256=checkpoint_sha256(folder, sha256_of=sha256_of))
    inputs = _conversion_inputs(source, python)
    manifest = read_manifest(out_dir)
    if manifest is None or manifest.get("inputs") != inputs:
        manifest = _convert(source, inputs, out_dir, python, log_path, on_progress)
    return PreparedModel(folder=out_dir, sha256=str(manifest["sha256"]))


def require_checkpoint(folder: Path) -> None:
    """Raise unless the folder holds a config, safetensors weights and a tokenizer.

    Raises:
        ConfigError: naming the folder and everything that it lacks.
    """
    if not folder.is_dir():
        raise ConfigError(
            f"model folder {folder} does not exist; give a folder with config.json, "
            f"*.safetensors and tokenizer.json, or {PACKAGE}NAME"
        )
    missing = []
    if not (folder / "config.json").is_file():
        missing.append("config.json")
    if not any(folder.glob("*.safetensors")):
        missing.append("*.safetensors (weights)")
    if not any((folder / name).is_file() for name in _TOKENIZERS):
        missing.append(" or ".join(_TOKENIZERS))
    missing += _missing_shards(folder)
    if missing:
        raise ConfigError(f"model folder {folder} lacks {', '.join(missing)}; copy it whole")


def _missing_shards(folder: Path) -> list[str]:
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        return []
    try:
        shards = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (json.JSONDecodeError, KeyError, AttributeError, TypeError) as error:
        raise ConfigError(f"{index}: weight_map cannot be read: {error}; copy it anew") from error
    return sorted(name for name in shards if not (folder / name).is_file())


def _conversion_inputs(source: str, python: Path) -> dict[str, object]:
    tools: tuple[str, ...] = _TOOLS
    if source.startswith(PACKAGE):
        tools = (*tools, source.removeprefix(PACKAGE))
        content = source
    elif Path(source).is_file():
        content = file_sha256(Path(source))
    else:
        raise ConfigError(f"GGUF file {source} does not exist; give its path, or {PACKAGE}NAME")
    return {
        "source": content,
        "program": file_sha256(PROGRAMS / CONVERTER),
        "tools": installed_versions(python, tools),
    }


def _convert(
    source: str,
    inputs: dict[str, object],
    out_dir: Path,
    python: Path,
    log_path: Path,
    on_progress: OnProgress | None,
) -> dict[str, object]:
    if source.startswith(PACKAGE):
        arguments = ["--package", source.removeprefix(PACKAGE).replace("-", "_")]
    else:
        arguments = ["--gguf", str(Path(source).resolve())]
    if any(family in source.lower() for family in _SPLITS_DIGITS):
        arguments.append("--split-digits")
    with publishing(out_dir) as partial:
        run_program(
            CONVERTER,
            [*arguments, "--out", str(partial.resolve())],
            python=python,
            log_path=log_path,
            on_progress=on_progress,
        )
        require_checkpoint(partial)
        facts = {"kind": "reference", "inputs": inputs, "sha256": checkpoint_sha256(partial)}
        return seal(partial, out_dir, facts)


def source_name(source: str) -> str:
    """Return a short name for a source, fit for a folder: the package, the file or the folder."""
    if source.startswith(PACKAGE):
        return source.removeprefix(PACKAGE)
    return Path(source).name.removesuffix(".gguf")


def checkpoint_dtype(folder: Path) -> str:
    """Return the element type that config.json names, ``auto`` where it names none.

    Raises:
        ConfigError: if config.json cannot be read.
    """
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}; copy the checkpoint anew") from error
    dtype = config.get("dtype") or config.get("torch_dtype") if isinstance(config, dict) else None
    return dtype if isinstance(dtype, str) else "auto"
