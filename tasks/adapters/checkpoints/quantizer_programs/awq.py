"""Quantize the weights of a Hugging Face checkpoint with AWQ and save them packed.

A stand-alone program of the quantizer's environment (torch, transformers, llmcompressor); it
imports nothing of this product. Lines that start with ``RETUNE `` on standard output are JSON for
the controller.
"""

import argparse
import json
import os
import sys
import threading
import time
from importlib.metadata import version
from pathlib import Path

import torch
from compressed_tensors.quantization import (
    QuantizationArgs,
    QuantizationScheme,
    QuantizationStrategy,
    QuantizationType,
)
from datasets import Dataset
from llmcompressor import oneshot
from llmcompressor.core import Event, State
from llmcompressor.modifiers.quantization import QuantizationModifier
from llmcompressor.modifiers.transform.awq import AWQModifier
from llmcompressor.pipelines.cache import IntermediatesCache
from transformers import AutoModelForCausalLM, AutoTokenizer


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


class CountingAwq(AWQModifier):  # type: ignore[misc]
    """AWQ that reports each finished layer; the arithmetic is the library's own."""

    layers_done: int = 0
    layers_total: int = 0

    def on_sequential_epoch_end(self, state: State, event: Event, **kwargs: object) -> None:
        """Smooth the layer, then say that it is done; the last call covers the model's head."""
        super().on_sequential_epoch_end(state, event, **kwargs)
        self.layers_done += 1
        if self.layers_done <= self.layers_total:
            say("layer", done=self.layers_done, of=self.layers_total)


def leave_host_memory_unpinned() -> None:
    """Make the activation cache skip pinning where there is no accelerator to copy to.

    llm-compressor 0.14.0.1 pins unasked, and torch then fails with "Cannot access accelerator
    device". Pinning only speeds up copies to a device, so without one it has no effect to lose.
    """

    def pin_nothing(
        self: IntermediatesCache, batch_index: int, input_names: list[str] | None = None
    ) -> None:
        return None

    IntermediatesCache.pin_memory = pin_nothing


def calibration_blocks(text: str, tokenizer_dir: Path, *, samples: int, tokens: int) -> Dataset:
    """Return ``samples`` blocks of exactly ``tokens`` tokens, cut from the joined text.

    Equal blocks need no padding, so no padding token enters the activation statistics.
    """
    tokenizer = AutoTokenizer.from_pretrained(str(tokenizer_dir))
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    if len(ids) < samples * tokens:
        raise SystemExit(
            f"the calibration text has {len(ids)} tokens, samples={samples} x "
            f"sequence_tokens={tokens} needs {samples * tokens}; lower one or give a longer text"
        )
    blocks = [ids[i * tokens : (i + 1) * tokens] for i in range(samples)]
    return Dataset.from_dict({"input_ids": blocks, "attention_mask": [[1] * tokens] * samples})


def weight_scheme(bits: int, group_size: int) -> QuantizationScheme:
    """Return asymmetric integer weights in groups along the input dimension."""
    return QuantizationScheme(
        targets=["Linear"],
        weights=QuantizationArgs(
            num_bits=bits,
            type=QuantizationType.INT,
            symmetric=False,
            strategy=QuantizationStrategy.GROUP,
            group_size=group_size,
        ),
    )


def quantize(args: argparse.Namespace) -> None:
    """Load, quantize and save."""
    on_cpu = not torch.cuda.is_available()
    if on_cpu:
        leave_host_memory_unpinned()
    say("stage", name="load")
    dtype = torch.float32 if on_cpu else "auto"
    model = AutoModelForCausalLM.from_pretrained(str(args.model), dtype=dtype)
    tokenizer = AutoTokenizer.from_pretrained(str(args.model))
    blocks = calibration_blocks(
        args.calibration.read_text(encoding="utf-8"),
        args.model,
        samples=args.samples,
        tokens=args.sequence_tokens,
    )
    scheme = weight_scheme(args.bits, args.group_size)
    say("stage", name="quantize")
    oneshot(
        model=model,
        processor=tokenizer,
        dataset=blocks,
        recipe=[
            CountingAwq(n_grid=args.grid_points, layers_total=model.config.num_hidden_layers),
            QuantizationModifier(config_groups={"group_0": scheme}, ignore=["lm_head"]),
        ],
        num_calibration_samples=args.samples,
        max_seq_length=args.sequence_tokens,
        shuffle_calibration_samples=False,
        batch_size=min(8, args.samples),
    )
    say("stage", name="save")
    model.save_pretrained(str(args.out), save_compressed=True)


def main() -> None:
    """Parse the command line, quantize, and report the versions used."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--calibration", type=Path, required=True)
    parser.add_argument("--bits", type=int, choices=(4, 8), required=True)
    parser.add_argument("--group-size", type=int, required=True)
    parser.add_argument("--samples", type=int, required=True)
    parser.add_argument("--sequence-tokens", type=int, required=True)
    parser.add_argument("--grid-points", type=int, required=True)
    args = parser.parse_args()
    end_with_parent()
    quantize(args)
    names = ("llmcompressor", "compressed-tensors", "transformers", "torch")
    say("done", versions={name: version(name) for name in names})


if __name__ == "__main__":
    main()
