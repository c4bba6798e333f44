"""The files of a study whose engine is the stand-in that streams tokens (serving_engine.py)."""

from pathlib import Path

from tests.fakes.serving_engine import write_checkpoint, write_engine_python

STUDY = """
name: stand-in
model: model.yaml
regime: peak
slo: slo.yaml
traffic: traffic.yaml
arms:
  - {name: defaults, checkpoint: reference, reference: true}
  - {name: tuned, checkpoint: reference, values: {max_num_seqs: 32}}
load: {rate_scales: [1.0], duration_s: 12, regime_repeats: 2, window_s: 2, warmup_requests: 2}
profile_s: 0
seed: 3
"""
MODEL = """
name: stand-in
source: {source}
engine_values: {{max_model_len: 512}}
cpu_engine_values: {{max_num_seqs: 8}}
cpu_kv_cache_gib: 1
synthetic: true
"""
TRAFFIC = """
name: even
regime: peak
source: made for a test
model:
  rate_req_s: 4
  burstiness_cv: 0.2
  prompt_tokens: {mean: 8, p50: 8, min: 4, max: 12}
  output_tokens: {mean: 6, p50: 6, min: 3, max: 9}
  draw_s: 120
"""


def write_study(folder: Path) -> None:
    """Write the study, its model and what stands for the engine's environment."""
    source = write_checkpoint(folder / "checkpoint")
    write_engine_python(folder)
    (folder / "study.yaml").write_text(STUDY)
    (folder / "model.yaml").write_text(MODEL.format(source=source))
    (folder / "slo.yaml").write_text("ttft_s: 0.4\nattainment_frac: 0.9\n")
    (folder / "traffic.yaml").write_text(TRAFFIC)
