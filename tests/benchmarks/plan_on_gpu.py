"""Predict KV sizes for six starts on a GPU, write them down, start the engines, compare.

Run: python tests/benchmarks/plan_on_gpu.py predict OUT.json
     python tests/benchmarks/plan_on_gpu.py check OUT.json TOKENIZER_DIR WORK_DIR [--only bf16|awq]
The model is an 8B Llama shape with dummy weights, in bf16 and as AWQ (group 128): real kernels,
real memory, no download. ``check`` starts the product's own engine life, so it is tried there too.
"""

import argparse
import json
import os
import shutil
import struct
import sys
import time
from pathlib import Path

from tasks.adapters.vllm_server.launch import start_engine
from tasks.domain.engine_launch import EngineLaunch
from tasks.domain.hardware import Flavour, gpu
from tasks.domain.memory_plan import memory_plan
from tasks.domain.model_spec import ModelSpec
from tasks.domain.parameters import ParameterValue, ParameterValues

GPU = "NVIDIA H200"
ENGINE = "0.24.0"
CONFIG: dict[str, object] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 49152,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "bos_token_id": 1,
    "eos_token_id": 2,
}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"}
CASES: tuple[tuple[str, dict[str, ParameterValue]], ...] = (
    ("bf16", {}),
    ("bf16", {"gpu_memory_utilization": 0.6}),
    ("bf16", {"max_num_seqs": 128, "max_num_batched_tokens": 2048}),
    ("awq", {}),
    ("awq", {"gpu_memory_utilization": 0.6}),
    ("awq", {"max_num_seqs": 128, "max_num_batched_tokens": 2048}),
)


def config_of(checkpoint: str) -> dict[str, object]:
    if checkpoint == "bf16":
        return CONFIG
    return {**CONFIG, "torch_dtype": "float16", "quantization_config": AWQ}


def predictions() -> list[dict[str, object]]:
    """Return the predicted KV tokens of every case, from config, card and values alone."""
    rows = []
    for checkpoint, values in CASES:
        model = ModelSpec.from_config(config_of(checkpoint), name=checkpoint, weight_bytes=None)
        plan = memory_plan(
            model, gpu(GPU), ParameterValues.of(values), lengths=None, flavour=Flavour.CUDA,
            engine_version=ENGINE,
        )  # fmt: skip
        rows.append(
            {"checkpoint": checkpoint, "values": values, "predicted": plan.kv_logged_tokens}
        )
    return rows


def printed(checkpoint: str, values: dict[str, ParameterValue], tokenizer: Path, work: Path) -> int:
    """Start the engine with these values, return the KV tokens it printed, and stop it."""
    folder = work / checkpoint
    if not folder.exists():
        shutil.copytree(tokenizer, folder, ignore=shutil.ignore_patterns("*.safetensors"))
        (folder / "config.json").write_text(json.dumps(config_of(checkpoint)))
        empty = struct.pack("<Q", 2) + b"{}"  # dummy weights: a header that names no tensor
        (folder / "model.safetensors").write_bytes(empty)
    launch = EngineLaunch(
        model_dir=str(folder),
        served_name=f"{checkpoint}-{time.time_ns()}",
        python=sys.executable,
        values=ParameterValues.of(values),
        flavour=Flavour.CUDA,
        extra_args=("--load-format", "dummy"),
        env=tuple((n, os.environ[n]) for n in ("PYTHONPATH", "VLLM_USE_FLASHINFER_SAMPLER")),
    )
    run = work / f"run-{time.time_ns()}"
    with start_engine(launch, workdir=run, lease_dir=work / "leases") as engine:
        tokens = engine.facts.kv_cache_tokens
        print(f"# ready after {engine.facts.startup_s:.0f} s, {engine.facts}", flush=True)  # noqa: T201
    if tokens is None:
        raise RuntimeError(f"the engine printed no KV size; see {run / 'engine.log'}")
    return tokens


def main() -> int:
    """Write predictions, or hold them against real starts; 1 where one is off by over 5 %."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("predict", "check"))
    parser.add_argument("file", type=Path)
    parser.add_argument("tokenizer", type=Path, nargs="?")
    parser.add_argument("work", type=Path, nargs="?")
    parser.add_argument("--only", choices=("bf16", "awq"))
    asked = parser.parse_args()
    if asked.what == "predict":
        asked.file.write_text(json.dumps(predictions(), indent=1) + "\n")
        return 0
    worst = 0.0
    lines = []
    for row in json.loads(asked.file.read_text()):
        if asked.only not in (None, row["checkpoint"]):
            continue
        found = printed(row["checkpoint"], row["values"], asked.tokenizer, asked.work)
        error = row["predicted"] / found - 1
        worst = max(worst, abs(error))
        lines.append(
            f"{row['checkpoint']:5} {json.dumps(row['values']):66} "
            f"predicted {row['predicted']:>9,} printed {found:>9,} error {error:+.2%}"
        )
        print(lines[-1], flush=True)  # noqa: T201
    print("\n".join(lines))  # noqa: T201
    return 1 if worst > 0.05 else 0


if __name__ == "__main__":
    raise SystemExit(main())
