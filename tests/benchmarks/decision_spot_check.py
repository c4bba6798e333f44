"""Write a study that shows the decision on a real engine: an equal arm and a handicapped one.

Run: python tests/benchmarks/decision_spot_check.py WORK MODEL_DIR
then: retune tune WORK/spot-check.yaml --offline WORK/home   (about 15 minutes on two CPU cores)
      python tests/benchmarks/decision_spot_check.py WORK --report

MODEL_DIR: config.json, weights and tokenizer of a small model (SmolLM2-135M). ``equal`` has the
reference's values written out, so it is measured by itself: it must not be promoted. ``capped``
runs five sequences at once: it must be worse. A cap of three is too few for the load: its queue
grows to the end, and windows as long as its E2E tail of 57 s are too few to compare. The report
compares every ordered pair of arms, so against the capped arm the other two must be better.
"""

import argparse
import sys
from itertools import permutations
from pathlib import Path

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tasks.domain.codec import from_text
from tasks.domain.comparison import compare_windows
from tasks.domain.noise_floor import noise_floor, repeat_pairs
from tasks.domain.trial import Trial

SEQUENCES, CAP = 32, 5
RATE_REQ_S = 3.5
FIRST_S, LATER_S, WINDOW_S = 180.0, 20.0, 10.0
MIN_GAIN_FRAC = 0.05


def write(path: Path, document: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(document, sort_keys=False))


def write_study(work: Path, model: Path) -> None:
    """Write the study and its files; the SLO leaves the reference room to be better and worse."""
    write(
        work / "model.yaml",
        {
            "name": model.name,
            "source": str(model.resolve()),
            "engine_values": {"max_model_len": 1024, "max_num_seqs": SEQUENCES},
            "cpu_kv_cache_gib": 1,
        },
    )
    write(work / "slo.yaml", {"ttft_s": 0.3, "tpot_s": 0.07, "attainment_frac": 0.5})
    write(
        work / "traffic.yaml",
        {
            "name": "spot-check",
            "regime": "peak",
            "source": "shape of the Azure conversation trace 2023, as configs/traffic/peak.yaml",
            "model": {
                "rate_req_s": RATE_REQ_S,
                "burstiness_cv": 1.09,
                "prompt_tokens": {"mean": 36, "p50": 32, "min": 4, "max": 160},
                "output_tokens": {"mean": 26, "p50": 16, "min": 2, "max": 64},
                "draw_s": 900,
                "seed": 31,
            },
        },
    )
    arms = [
        {"name": "plain", "checkpoint": "reference", "reference": True},
        {"name": "equal", "checkpoint": "reference", "values": {"max_num_seqs": SEQUENCES}},
        {"name": "capped", "checkpoint": "reference", "values": {"max_num_seqs": CAP}},
    ]
    load = {
        "rate_scales": [1.0],
        "duration_s": FIRST_S,
        "rounds": 2,
        "later_round_s": LATER_S,
        "window_s": WINDOW_S,
        "warmup_requests": 6,
    }
    study = {
        "name": "spot-check",
        "model": "model.yaml",
        "regime": "peak",
        "slo": "slo.yaml",
        "traffic": "traffic.yaml",
        "arms": arms,
        "load": load,
        "profile_s": 0.0,
        "min_gain_frac": MIN_GAIN_FRAC,
    }
    write(work / "spot-check.yaml", study)
    sys.stdout.write(f"retune tune {work}/spot-check.yaml --offline {work}/home\n")


def report(work: Path) -> int:
    """Print what each arm gave and how each pair compares; 1 where no study was measured."""
    paths = sorted(work.glob("home/studies/spot-check-*/trials/*/trial.json"))
    trials = [from_text(Trial, path.read_text()) for path in paths]
    measured = {trial.arm.name: trial.at_regime_rate for trial in trials}
    floor = noise_floor([pair for runs in measured.values() for pair in repeat_pairs(runs)])
    for name, runs in measured.items():
        told = ", ".join(
            f"{m.attainment_frac:.1%} of n={m.n_requests} inside the SLO, {m.goodput_req_s:.3f} "
            f"of {m.offered_req_s:.3f} req/s"
            for m in runs
        )
        sys.stdout.write(f"{name}: {told}\n")
    for a, b in permutations(measured, 2):
        found = compare_windows(
            measured[a],
            measured[b],
            min_gain_frac=MIN_GAIN_FRAC,
            noise_floor_frac=floor,
            seed=0,
        )
        sys.stdout.write(f"{b} against {a}: {found.reason}\n")
    return 0 if measured else 1


def main() -> int:
    """Write the study, or report on it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("work", type=Path)
    parser.add_argument("model", type=Path, nargs="?")
    parser.add_argument("--report", action="store_true")
    asked = parser.parse_args()
    if asked.report:
        return report(asked.work)
    if asked.model is None:
        parser.error("MODEL_DIR is needed to write the study")
    write_study(asked.work, asked.model)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
