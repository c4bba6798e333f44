"""Reads a checkpoint's folder: its config, the size of its weights, its ordinary tokens."""

import json
from pathlib import Path

from tasks.domain.errors import ConfigError
from tasks.domain.model_spec import ModelSpec
from tasks.domain.prompts import PromptVocabulary
from tasks.domain.study_request import QuantizationPlan


def read_model_spec(folder: Path, *, name: str, awq: QuantizationPlan | None = None) -> ModelSpec:
    """Return the model's shapes out of config.json, with the size of its weight files.

    ``awq`` gives the shapes that its packed AWQ checkpoint will have, before that is made; the
    weights are then counted, not read.

    Raises:
        ConfigError: if config.json is missing, is not JSON, or lacks a key that is needed.
    """
    config = _read_json(folder / "config.json")
    if awq is not None:
        packed = {"quant_method": "awq", "bits": awq.bits, "group_size": awq.group_size}
        return ModelSpec.from_config(
            {**config, "quantization_config": packed}, name=name, weight_bytes=None
        )
    weights = [path.stat().st_size for path in folder.glob("*.safetensors")]
    return ModelSpec.from_config(config, name=name, weight_bytes=sum(weights) if weights else None)


def read_vocabulary(folder: Path) -> PromptVocabulary:
    """Return the ids of tokenizer.json's ordinary tokens: neither special nor added ones.

    Raises:
        ConfigError: if tokenizer.json is missing, is not JSON or holds no vocabulary.
    """
    path = folder / "tokenizer.json"
    document = _read_json(path)
    model, added = document.get("model"), document.get("added_tokens")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(vocabulary, dict):
        ids = {number for number in vocabulary.values() if isinstance(number, int)}
    elif isinstance(vocabulary, list):
        ids = set(range(len(vocabulary)))  # unigram models list their pieces in order of id
    else:
        raise ConfigError(f"{path}: model.vocab is missing; give a fast tokenizer's tokenizer.json")
    listed = added if isinstance(added, list) else []
    special = {item.get("id") for item in listed if isinstance(item, dict)}
    return PromptVocabulary(token_ids=tuple(sorted(ids - special)))


def _read_json(path: Path) -> dict[str, object]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(
            f"{path}: no such file; give the folder of a checkpoint with config.json, "
            "*.safetensors and tokenizer.json"
        ) from error
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read as JSON: {error}; copy it anew") from error
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: expected an object, found {type(document).__name__}")
    return document
