"""A whole study with a search of live knobs on a real engine, by the command line, offline."""

import json
import os
import subprocess
import sys
from pathlib import Path

import yaml

from tests.conftest import REPOSITORY

STUDY = {
    "name": "searched",
    "regime": "peak",
    "arms": [
        {"name": "defaults", "checkpoint": "reference", "reference": True},
        {"name": "tuned", "checkpoint": "reference", "search": True},
    ],
    "search": {
        "levels": {"max_num_seqs": [2, 32], "max_num_batched_tokens": [64]},
        "probe_s": 6,
        "max_points": 3,
    },
    "load": {"rate_scales": [1.0], "duration_s": 10, "window_s": 10, "warmup_requests": 2},
    "profile_s": 0,
}


def test_a_search_moves_one_engine_and_keeps_defaults_that_nothing_beats(
    model_dir: Path, tmp_path: Path
) -> None:
    """No point keeps a TTFT of 1 ms, so all that is asked is measured and nothing is promoted."""
    slo = tmp_path / "slo.yaml"
    slo.write_text("ttft_s: 0.001\n")
    configs = REPOSITORY / "configs"
    study = tmp_path / "study.yaml"
    files = {
        "model": str(configs / "models" / "smollm2-135m.yaml"),
        "traffic": str(configs / "traffic" / "peak.yaml"),
        "slo": str(slo),
    }
    study.write_text(yaml.safe_dump({**STUDY, **files}))
    home = tmp_path / "home"
    (home / "models").mkdir(parents=True)
    (home / "models" / model_dir.name).symlink_to(model_dir)
    ended = subprocess.run(
        [sys.executable, "-m", "flows.cli", "tune", str(study), "--offline", str(home), "--json"],
        capture_output=True, text=True, cwd=REPOSITORY, env=dict(os.environ), timeout=900,
        check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    (report,) = (home / "studies").glob("searched-*/report/search-tuned.json")
    search = json.loads(report.read_text())
    asked = [dict(probe["values"]["items"]) for probe in search["probes"]]
    assert asked[0]["max_num_seqs"] == 32
    assert len({json.dumps(values, sort_keys=True) for values in asked}) == 3
    assert all(probe["status"] in ("COMPLETE", "INVALID") for probe in search["probes"])
    for values in asked:
        knobs = ", ".join(
            f"{name}={values[name]}" for name in ("max_num_batched_tokens", "max_num_seqs")
        )
        assert f"live: the engine confirms {knobs}" in ended.stderr
    trials = {t["arm"]["name"]: t for t in json.loads(ended.stdout)["trials"]}
    assert trials["tuned"]["status"] == "PRUNED"
    assert trials["tuned"]["failure"]["code"] == "NOTHING_FOUND"
    assert trials["defaults"]["measurements"]
    assert not list((home / "leases").glob("*.json"))
