"""Evaluate what a served checkpoint answers: sanity of its text, accuracy on a task."""

import sys
from dataclasses import dataclass
from pathlib import Path

from tasks.adapters.lm_eval_harness.run_lm_eval import run_lm_eval
from tasks.adapters.lm_eval_harness.sanity import read_prompts, sanity_probe
from tasks.domain.accuracy import AccuracyReport, report_accuracy
from tasks.domain.endpoint import Endpoint
from tasks.domain.study_request import EvaluationPlan
from tasks.domain.text_sanity import TextProbe


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationMeans:
    """The folder of tasks and prompts, and the reference model's tokenizer, used for every arm.

    python: interpreter that has lm-eval. concurrency: requests in flight, equal for all arms.
    """

    folder: Path
    tokenizer_dir: Path
    python: Path = Path(sys.executable)
    concurrency: int = 4


def probe_text(endpoint: Endpoint, means: EvaluationMeans) -> TextProbe:
    """Return how many of the fixed prompts' completions are degenerate."""
    return sanity_probe(endpoint, read_prompts(means.folder / "sanity_prompts.txt"))


def evaluate_checkpoint(
    endpoint: Endpoint,
    *,
    plan: EvaluationPlan,
    means: EvaluationMeans,
    checkpoint_sha256: str,
    work_dir: Path,
) -> AccuracyReport:
    """Return the accuracy of the served checkpoint, flagged where it cannot be believed."""
    run = run_lm_eval(
        endpoint,
        task_dir=means.folder,
        task=plan.task,
        tokenizer_dir=means.tokenizer_dir,
        limit=plan.items,
        concurrency=means.concurrency,
        work_dir=work_dir,
        python=means.python,
    )
    return report_accuracy(run, checkpoint_sha256=checkpoint_sha256, confidence=plan.confidence)
