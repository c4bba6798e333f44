"""Hashes of checkpoints: the files that decide the numbers, and the tokenizer's files."""

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
)
_CHUNK = 1 << 22


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def folder_files(folder: Path) -> list[Path]:
    """Return all regular files below a folder, in order of name."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def combined_sha256(named: Iterable[tuple[str, str]]) -> str:
    """Return one hash of (name, hash) pairs, independent of their order."""
    lines = "".join(f"{digest}  {name}\n" for name, digest in sorted(named))
    return hashlib.sha256(lines.encode()).hexdigest()


def checkpoint_sha256(folder: Path, *, sha256_of: Callable[[Path], str] = file_sha256) -> str:
    """Return the hash of a checkpoint: config.json and its safetensors files, by content.

    sha256_of: how a file's hash is found, for example a memo's.
    """
    names = ["config.json", *(path.name for path in folder.glob("*.safetensors"))]
    return combined_sha256((name, sha256_of(folder / name)) for name in names)


def tokenizer_files(folder: Path) -> list[Path]:
    """Return the tokenizer's files that lie in a checkpoint's folder."""
    return [folder / name for name in TOKENIZER_FILES if (folder / name).is_file()]
