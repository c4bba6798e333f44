"""Start the CPU engine with several configurations and set its KV size beside the plan's.

Run: RETUNE_ENGINE_PYTHON=… python tests/benchmarks/plan_against_engine.py MODEL_DIR [COUNT]
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tasks.adapters.vllm_server.launch import start_engine
from tasks.domain.engine_launch import EngineLaunch
from tasks.domain.hardware import Flavour, cpu
from tasks.domain.memory_plan import memory_plan
from tasks.domain.model_spec import ModelSpec
from tasks.domain.parameters import ParameterValue, ParameterValues

START_LIMIT_S = 400.0
FEW_SEQS: dict[str, ParameterValue] = {"max_num_seqs": 8, "max_num_batched_tokens": 512}


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """Values to start with and the GiB of VLLM_CPU_KVCACHE_SPACE, None to leave it unset."""

    name: str
    values: Mapping[str, ParameterValue]
    kv_gib: int | None = 1


CONFIGURATIONS = (
    Configuration(name="float32, blocks of 32", kv_gib=1,
                  values={"dtype": "float32", "block_size": 32, "max_model_len": 2048}),
    Configuration(name="auto dtype, default block", kv_gib=1,
                  values={"dtype": "auto", "max_model_len": 1000}),
    Configuration(name="float32, 2 GiB, blocks of 64", kv_gib=2,
                  values={"dtype": "float32", "block_size": 64, "max_model_len": 1000}),
    Configuration(name="bytes instead of the variable", kv_gib=None,
                  values={"dtype": "float32", "kv_cache_memory_bytes": 700_000_000,
                          "max_model_len": 512}),
    Configuration(name="bfloat16 model and cache", kv_gib=1,
                  values={"dtype": "bfloat16", "max_model_len": 4096, "block_size": 96}),
    Configuration(name="the variable beats the bytes", kv_gib=1,
                  values={"dtype": "float32", "kv_cache_memory_bytes": 300_000_000,
                          "max_model_len": 512}),
)  # fmt: skip


def planned_tokens(model_dir: Path, configuration: Configuration) -> int:
    """Return the KV size that the plan expects the engine to print."""
    config = json.loads((model_dir / "config.json").read_text(encoding="utf-8"))
    model = ModelSpec.from_config(config, name=model_dir.name, weight_bytes=None)
    plan = memory_plan(
        model,
        cpu(memory_bytes=None),
        ParameterValues.of({**FEW_SEQS, **configuration.values}),
        lengths=None,
        flavour=Flavour.CPU,
        cpu_kv_space_gib=configuration.kv_gib,
    )
    return plan.kv_logged_tokens


def printed_tokens(python: Path, model_dir: Path, configuration: Configuration) -> int | None:
    """Start the engine, return the KV size that its log prints, and stop it."""
    launch = EngineLaunch(
        model_dir=str(model_dir.resolve()),
        served_name="planned",
        python=str(python.absolute()),
        values=ParameterValues.of({**FEW_SEQS, **configuration.values}),
        startup_limit_s=START_LIMIT_S,
        kv_cache_gib=configuration.kv_gib,
    )
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        with start_engine(launch, workdir=home, lease_dir=home / "leases") as engine:
            return engine.facts.kv_cache_tokens


def main() -> None:
    """Print a table of planned and printed sizes; fail when any differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model_dir", type=Path)
    parser.add_argument("count", type=int, nargs="?", default=len(CONFIGURATIONS))
    asked = parser.parse_args()
    python = Path(os.environ["RETUNE_ENGINE_PYTHON"])
    wrong = 0
    print(f"{'configuration':32}{'planned':>10}{'printed':>10}{'differs':>10}{'seconds':>9}")  # noqa: T201
    for configuration in CONFIGURATIONS[: asked.count]:
        begun = time.perf_counter()
        planned = planned_tokens(asked.model_dir, configuration)
        printed = printed_tokens(python, asked.model_dir, configuration)
        wrong += planned != printed
        shown = "none" if printed is None else f"{printed:,}"
        apart = "" if printed is None else f"{planned - printed:,}"
        line = f"{configuration.name:32}{planned:>10,}{shown:>10}{apart:>10}"
        print(f"{line}{time.perf_counter() - begun:>9.0f}", flush=True)  # noqa: T201
    raise SystemExit(1 if wrong else 0)


if __name__ == "__main__":
    main()
