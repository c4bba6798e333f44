"""Write the files of the GPU study: an 8B Llama shape with dummy weights on the Azure trace.

Run: python tests/benchmarks/gpu_study.py WORK TOKENIZER_DIR AZURE_CONV.csv [--arms bf16 awq fp8]
then: retune search WORK/study-bf16.yaml --offline WORK/home (the live searches and their rates)
      retune tune WORK/study-bf16.yaml --offline WORK/home   (on the GPU host; resumes when killed)
and:  retune record WORK/home                                (where MLflow is)
      python tests/benchmarks/gpu_study_table.py WORK/home   (what was found, as tables)
then: the same command with --restarts-of REPORT/search-bf16-tuned.json writes WORK/restarts.yaml, a
study of the search's first points, each on an engine of its own, on the search's own load: what a
live move gave against a restart (live_restart_table.py prints it).
With --tuned '{"max_num_batched_tokens": 1024}' the study confirms what a search found on another
machine: two arms a checkpoint and no search.

TOKENIZER_DIR: any folder with a tokenizer.json of 49,152 pieces (SmolLM2's). The trace is
AzureLLMInferenceTrace_conv.csv of Azure/AzurePublicDataset (CC BY 4.0; Patel et al., Splitwise,
ISCA 2024). Search and confirmation take different minutes of its busiest quarter of an hour.
"""

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

import yaml

from tasks.adapters.checkpoints.synthetic import EMPTY, WEIGHTS
from tests.benchmarks.plan_on_gpu import CONFIG

# At 16.5 req/s the defaults break the SLO and small token budgets keep it, by the step model fitted
# to measured points; three E2E tails are then under 40 s in the search's minutes (12 s were
# measured there). Windows are longer than one tail (tests/benchmarks/README.md).
RATE_REQ_S = 16.5
PROBE_S = 40.0
WINDOW_S = 30.0
SEARCH_S = (1860.0, 2040.0)  # minutes 31 to 34
CONFIRM_S = (1350.0, 1860.0)  # minutes 22.5 to 31
LEVELS = {
    "max_num_seqs": [16, 32, 64, 128, 256, 1024],
    "max_num_batched_tokens": [512, 1024, 2048, 4096, 8192],
}
# The same in live and restarted engines, so that only the knobs differ.
PINNED = {"kv_cache_memory_bytes": 100 * 2**30, "max_cudagraph_capture_size": 512}
ARMS: dict[str, dict[str, Any]] = {
    "bf16": {"checkpoint": "reference"},
    "awq": {"checkpoint": "awq"},
    "fp8": {"checkpoint": "reference", "values": {"quantization": "fp8"}},
}


def write(path: Path, document: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(document, sort_keys=False))


def shape(folder: Path, tokenizer: Path, other: dict[str, object]) -> None:
    """Write the model's folder: its shape, a tokenizer, and a weight file that holds nothing.

    other: keys of config.json that differ, for a rehearsal without a GPU.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        if (tokenizer / name).is_file():
            shutil.copyfile(tokenizer / name, folder / name)
    (folder / "config.json").write_text(json.dumps({**CONFIG, **other}, indent=1))
    (folder / WEIGHTS).write_bytes(EMPTY)


def traffic(name: str, trace: Path, part: tuple[float, float], rate: float) -> dict[str, object]:
    return {
        "name": name,
        "regime": "peak",
        "source": "Azure LLM inference trace 2023, conversation (CC BY 4.0; Patel et al., 2024)",
        "trace": {
            "file": str(trace.resolve()),
            "start_s": part[0],
            "end_s": part[1],
            "rate_req_s": rate,
            "timezone": "UTC",
        },
    }


def arms(names: list[str], tuned: dict[str, object] | None) -> list[dict[str, object]]:
    """Return two arms a checkpoint: vLLM's defaults, and knobs known (tuned) or to be searched."""
    found: list[dict[str, object]] = []
    for name in names:
        own = ARMS[name]
        found.append({"name": f"{name}-default", **own, "reference": name == names[0]})
        fixed = own.get("values", {})
        knobs = {"search": True} if tuned is None else {"values": {**fixed, **tuned}}
        found.append({"name": f"{name}-tuned", **own, **knobs})
    return found


def search(asked: argparse.Namespace) -> dict[str, object]:
    return {
        "levels": LEVELS,
        "probe_s": asked.probe_s,
        "max_points": asked.max_points,
        "min_gain_frac": asked.search_gain,
        "traffic": "search-traffic.yaml",
        "sustainable": {"max_probes": asked.rate_probes, "resolution_frac": 0.12},
    }


def restarts(report: Path, asked: argparse.Namespace) -> dict[str, object]:
    """Return a study of the first points of a search, each an arm on an engine of its own."""
    probes = json.loads(report.read_text())["probes"][: asked.restarts]
    points = [dict(probe["values"]["items"]) for probe in probes]
    knobs = [{name: point[name] for name in LEVELS} for point in points]
    found = [
        {
            "name": f"restart-{values['max_num_seqs']}-{values['max_num_batched_tokens']}",
            **(own := ARMS[asked.arms[0]]),
            "values": {**own.get("values", {}), **({} if i == 0 else values)},
            "reference": i == 0,
        }
        for i, values in enumerate(knobs)
    ]
    return {
        "name": "gpu-restarts",
        "model": "model.yaml",
        "regime": "peak",
        "slo": "slo.yaml",
        "traffic": "search-traffic.yaml",
        "arms": found,
        "load": {
            "rate_scales": [1.0],
            "duration_s": asked.probe_s,
            "window_s": asked.probe_s,
            "warmup_requests": 8,
        },
        "profile_s": 0.0,
    }


def main() -> int:
    """Write everything below WORK."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("work", type=Path)
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--arms", nargs="+", choices=tuple(ARMS), default=["bf16"])
    parser.add_argument("--probe-s", type=float, default=PROBE_S)
    parser.add_argument("--window-s", type=float, default=WINDOW_S)
    parser.add_argument("--windows", type=int, default=6, help="in the first round")
    parser.add_argument("--later-windows", type=int, help="in the second round; default: all")
    parser.add_argument("--max-points", type=int, default=4)
    parser.add_argument("--search-gain", type=float, default=0.03, help="least, to go on")
    parser.add_argument("--rate-probes", type=int, default=3)
    parser.add_argument("--tuned", type=json.loads, help="JSON object; default: search")
    parser.add_argument("--restarts-of", type=Path)
    parser.add_argument("--restarts", type=int, default=4)
    parser.add_argument("--rate", type=float, default=RATE_REQ_S)
    parser.add_argument("--config", default="{}", help="JSON put over the shape's config")
    asked = parser.parse_args()
    work: Path = asked.work
    shape(work / "models" / "llama-8b-shape", asked.tokenizer, json.loads(asked.config))
    pinned = PINNED if asked.config == "{}" else {}
    write(
        work / "model.yaml",
        {
            "name": "llama-8b-shape",
            "source": "models/llama-8b-shape",
            "dtype": "auto",
            "engine_values": {"load_format": "dummy", "max_model_len": 8192, **pinned},
            "cpu_kv_cache_gib": 2,
            "engine_env": {"VLLM_USE_FLASHINFER_SAMPLER": "0"},
            "quantization": {"group_size": 128},
            "synthetic": True,
        },
    )
    write(work / "slo.yaml", {"ttft_s": 1.0, "tpot_s": 0.03, "attainment_frac": 0.99})
    write(
        work / "search-traffic.yaml",
        traffic("azure-conv-search", asked.trace, SEARCH_S, asked.rate),
    )
    write(work / "traffic.yaml", traffic("azure-conv-confirm", asked.trace, CONFIRM_S, asked.rate))
    label = "-".join(asked.arms) + ("" if asked.tuned is None else "-confirm")
    name = f"study-{label}"
    short = asked.later_windows
    later = {} if short is None else {"later_round_s": short * asked.window_s}
    write(
        work / f"{name}.yaml",
        {
            "name": f"gpu-{label}",
            "model": "model.yaml",
            "regime": "peak",
            "slo": "slo.yaml",
            "traffic": "traffic.yaml",
            "arms": arms(asked.arms, asked.tuned),
            "load": {
                "rate_scales": [1.0],
                "duration_s": asked.windows * asked.window_s,
                "rounds": 2,
                **later,
                "window_s": asked.window_s,
                "warmup_requests": 8,
            },
            **({} if asked.tuned is not None else {"search": search(asked)}),
            "profile_s": 0.0,
            "min_gain_frac": 0.02,
        },
    )
    if asked.restarts_of is not None:
        write(work / "restarts.yaml", restarts(asked.restarts_of, asked))
    print(f"retune tune {work / name}.yaml --offline {work / 'home'}")  # noqa: T201
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
