"""Write a packed integer checkpoint back as plain weights with the very same values.

A stand-alone program of the quantizer's environment (torch, safetensors); it imports nothing of
this product. Lines that start with ``RETUNE `` on standard output are JSON for the controller.

Format (compressed-tensors "pack-quantized"): along the input dimension 32/bits codes lie in one
int32, the first in the lowest bits, each stored as code + 2^(bits-1); zero points are packed the
same way along the output dimension. weight = (code - zero point) x scale, per group of inputs.
"""

import argparse
import json
import os
import shutil
import sys
import threading
import time
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file

PACKED = ".weight_packed"
PARTS = (PACKED, ".weight_scale", ".weight_zero_point", ".weight_shape", ".weight_g_idx")


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


def unpack(packed: torch.Tensor, *, bits: int, columns: int) -> torch.Tensor:
    """Return signed codes of shape (rows, columns) from int32 words along the last dimension."""
    per_word = 32 // bits
    shifts = torch.arange(per_word, dtype=torch.int64) * bits
    words = packed.to(torch.int64) & 0xFFFFFFFF
    codes = (words.unsqueeze(-1) >> shifts) & ((1 << bits) - 1)
    flat = codes.reshape(packed.shape[0], packed.shape[1] * per_word)[:, :columns]
    return flat - (1 << (bits - 1))


def plain_weight(
    packed: torch.Tensor,
    scale: torch.Tensor,
    zero_point: torch.Tensor | None,
    *,
    shape: tuple[int, int],
    bits: int,
) -> torch.Tensor:
    """Return (code - zero point) x scale with one scale and zero point per group of inputs."""
    rows, columns = shape
    groups = scale.shape[1]
    codes = unpack(packed, bits=bits, columns=columns).reshape(rows, groups, columns // groups)
    if zero_point is not None:
        zeros = unpack(zero_point.T.contiguous(), bits=bits, columns=rows).T
        codes = codes - zeros.reshape(rows, groups, 1)
    weight = codes.to(torch.float32) * scale.to(torch.float32).reshape(rows, groups, 1)
    return weight.reshape(rows, columns).to(scale.dtype)


def weight_bits(config: dict[str, object]) -> int:
    """Return the bits of the packed weights out of a checkpoint's config.

    Ends the program for another format or for groups of layers with different widths.
    """
    quantization = config.get("quantization_config")
    if not isinstance(quantization, dict) or quantization.get("format") != "pack-quantized":
        raise SystemExit(f"not a pack-quantized checkpoint: quantization_config={quantization!r}")
    groups = quantization["config_groups"].values()
    widths = {int(group["weights"]["num_bits"]) for group in groups}
    if len(widths) != 1 or not widths <= {4, 8}:
        raise SystemExit(f"weights of {sorted(widths)} bits; this program knows one of 4 or 8")
    return widths.pop()


def dequantize(packed_dir: Path, out: Path) -> int:
    """Write the plain checkpoint and return how many layers were unpacked."""
    config = json.loads((packed_dir / "config.json").read_text(encoding="utf-8"))
    bits = weight_bits(config)
    del config["quantization_config"]
    layers = 0
    for source in sorted(packed_dir.glob("*.safetensors")):
        tensors: dict[str, torch.Tensor] = {}
        with safe_open(source, framework="pt") as file:
            names = set(file.keys())
            for name in sorted(names):
                if name.endswith(PACKED):
                    layer = name.removesuffix(PACKED)
                    zero = f"{layer}.weight_zero_point"
                    rows, columns = (int(n) for n in file.get_tensor(f"{layer}.weight_shape"))
                    tensors[f"{layer}.weight"] = plain_weight(
                        file.get_tensor(name),
                        file.get_tensor(f"{layer}.weight_scale"),
                        file.get_tensor(zero) if zero in names else None,
                        shape=(rows, columns),
                        bits=bits,
                    )
                    layers += 1
                elif not name.endswith(PARTS):
                    tensors[name] = file.get_tensor(name)
        save_file(tensors, out / source.name, metadata={"format": "pt"})
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    generation = packed_dir / "generation_config.json"
    if generation.is_file():
        shutil.copyfile(generation, out / generation.name)
    return layers


def main() -> None:
    """Parse the command line, unpack, and report the number of layers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--packed", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    end_with_parent()
    say("stage", name="dequantize")
    say("done", layers=dequantize(args.packed, args.out))


if __name__ == "__main__":
    main()
