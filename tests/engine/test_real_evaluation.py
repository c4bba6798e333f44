"""Sanity, prompt log-probabilities and accuracy of the default model on a real engine."""

import sys
from pathlib import Path

from tasks.adapters.lm_eval_harness.prompt_logprobs import require_prompt_logprobs
from tasks.adapters.vllm_server.running import RunningEngine
from tasks.domain.accuracy import AccuracyVerdict, compare_accuracy
from tasks.domain.study_request import EvaluationPlan
from tasks.evaluate import EvaluationMeans, evaluate_checkpoint, probe_text
from tests.conftest import REPOSITORY

PLAN = EvaluationPlan(task="retune_everyday", items=48, margin_frac=0.01)


def means(model_dir: Path) -> EvaluationMeans:
    return EvaluationMeans(
        folder=REPOSITORY / "configs" / "evaluation",
        tokenizer_dir=model_dir,
        python=Path(sys.executable),
    )


def test_a_healthy_model_writes_text_on_the_sanity_prompts(
    running_engine: RunningEngine, model_dir: Path
) -> None:
    probe = probe_text(running_engine.endpoint, means(model_dir))
    assert probe.n >= 20
    assert probe.sane


def test_vllm_returns_log_probabilities_of_the_prompt(running_engine: RunningEngine) -> None:
    require_prompt_logprobs(running_engine.endpoint)


def test_the_default_model_is_far_above_chance_and_equals_itself(
    running_engine: RunningEngine, model_dir: Path, tmp_path: Path
) -> None:
    first, second = (
        evaluate_checkpoint(
            running_engine.endpoint,
            plan=PLAN,
            means=means(model_dir),
            checkpoint_sha256="reference",
            work_dir=tmp_path / name,
        )
        for name in ("first", "second")
    )
    assert first.valid
    assert first.n == 48
    assert first.acc > 0.45
    assert first.tied_frac == 0.0
    # Batches differ between two runs, so single answers may flip; the rate of that is the floor.
    comparison = compare_accuracy(first, second)
    assert comparison.verdict is not AccuracyVerdict.FAIL
    assert comparison.reference_only is not None and comparison.candidate_only is not None
    assert comparison.reference_only + comparison.candidate_only <= 4
