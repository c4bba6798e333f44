from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from tasks.domain.accuracy import (
    AccuracyFlag,
    AccuracyReport,
    AccuracyVerdict,
    compare_accuracy,
    compare_counts,
    report_accuracy,
)
from tasks.domain.accuracy_run import AccuracyRun, Protocol
from tasks.domain.codec import as_json, from_json
from tasks.domain.errors import EvaluationError

PROTOCOL = Protocol(
    task="everyday",
    task_version="1.0",
    n_shot=0,
    add_bos=False,
    chat_template_sha256=None,
    tokenizer_sha256="t1",
    items_sha256="i1",
    sampling="loglikelihood",
    endpoint_kind="completions",
    item_limit=None,
    concurrency=4,
    harness="lm_eval 0.4",
    engine="0.32.0",
)
CLEAR = (-1.0, -2.0, -3.0, -4.0)


def run_of(correct: list[bool], *, scores: tuple[float, ...] = CLEAR) -> AccuracyRun:
    return AccuracyRun(
        item_ids=tuple(f"item-{i}" for i in range(len(correct))),
        item_correct=tuple(correct),
        choice_scores=(scores,) * len(correct),
        n_choices=4,
        protocol=PROTOCOL,
        seconds=1.0,
    )


def answers(*, right: int, wrong: int) -> list[bool]:
    return [True] * right + [False] * wrong


def test_a_report_counts_right_items_and_gives_their_wilson_interval() -> None:
    report = report_accuracy(run_of(answers(right=70, wrong=30)), checkpoint_sha256="c")
    assert report.acc == 0.7
    # Wilson at 95 %, n=100, p=0.7: center (0.7 + 0.019207)/1.038415, half 0.0902/1.038415
    assert report.low == pytest.approx(0.6042, abs=2e-4)
    assert report.high == pytest.approx(0.7811, abs=2e-4)
    assert report.chance == 0.25
    assert report.valid
    assert "70.0 % of n=100" in report.text


def test_accuracy_within_two_standard_errors_of_chance_is_invalid() -> None:
    # SE at chance, n=100: sqrt(0.25 * 0.75 / 100) = 0.0433; 0.25 + 2 SE = 0.3366
    at = report_accuracy(run_of(answers(right=33, wrong=67)), checkpoint_sha256="c")
    above = report_accuracy(run_of(answers(right=34, wrong=66)), checkpoint_sha256="c")
    assert at.flags == (AccuracyFlag.EVAL_NOT_DISCRIMINATING,)
    assert at.text.startswith("INVALID (EVAL_NOT_DISCRIMINATING)")
    assert above.valid


def test_accuracy_below_chance_does_not_discriminate_either() -> None:
    report = report_accuracy(run_of(answers(right=0, wrong=100)), checkpoint_sha256="c")
    assert not report.valid


def test_more_than_half_tied_items_invalidate_even_a_good_accuracy() -> None:
    run = run_of(answers(right=90, wrong=10))
    half = replace(run, choice_scores=((0.0,) * 4,) * 50 + (CLEAR,) * 50)
    more = replace(run, choice_scores=((0.0,) * 4,) * 51 + (CLEAR,) * 49)
    assert report_accuracy(half, checkpoint_sha256="c").valid
    assert not report_accuracy(more, checkpoint_sha256="c").valid


def test_scores_that_are_not_numbers_count_as_tied() -> None:
    run = run_of(answers(right=90, wrong=10), scores=(float("nan"), -1.0, -2.0, -3.0))
    assert report_accuracy(run, checkpoint_sha256="c").tied_frac == 1.0


def test_a_run_without_items_is_refused() -> None:
    with pytest.raises(EvaluationError, match="item_correct=0"):
        report_accuracy(run_of([]), checkpoint_sha256="c")


def test_chance_level_on_both_arms_is_no_proof_of_equality(shared_dir: Path) -> None:
    case = yaml.safe_load((shared_dir / "cases" / "e-03.yaml").read_text())
    n = case["input"]["results"]["bf16"]["n"]
    right = round(n * case["input"]["results"]["bf16"]["acc"])
    zeros = tuple(case["input"]["choice_scores_sample"][0])
    run = run_of(answers(right=right, wrong=n - right), scores=zeros)
    report = report_accuracy(run, checkpoint_sha256="c")
    assert case["expected"]["error_code"] in report.flags
    assert report.valid is case["expected"]["eval_valid"]
    comparison = compare_accuracy(report, report)
    assert comparison.verdict is AccuracyVerdict.INVALID
    assert comparison.drop_frac is None


def test_comparison_pairs_items_and_counts_only_the_discordant_ones() -> None:
    reference = report_accuracy(run_of([True, True, True, False] * 50), checkpoint_sha256="a")
    candidate = report_accuracy(run_of([True, False, True, True] * 50), checkpoint_sha256="b")
    comparison = compare_accuracy(reference, candidate)
    assert (comparison.reference_only, comparison.candidate_only) == (50, 50)
    assert comparison.drop_frac == 0.0
    assert comparison.verdict is AccuracyVerdict.INCONCLUSIVE


def test_equal_answers_pass_from_299_items_on() -> None:
    # 1 - 0.05^(1/298) = 0.010002, 1 - 0.05^(1/299) = 0.009969
    few = compare_counts(n=298, reference_only=0, candidate_only=0)
    enough = compare_counts(n=299, reference_only=0, candidate_only=0)
    assert few.verdict is AccuracyVerdict.INCONCLUSIVE
    assert few.items_that_would_decide == 299
    assert enough.verdict is AccuracyVerdict.PASS
    assert enough.items_that_would_decide is None


def test_a_certain_drop_smaller_than_the_margin_passes() -> None:
    comparison = compare_counts(n=100_000, reference_only=700, candidate_only=300)
    assert comparison.low is not None and comparison.low > 0.0
    assert comparison.verdict is AccuracyVerdict.PASS


def test_other_items_are_not_compared() -> None:
    reference = report_accuracy(run_of([True] * 50), checkpoint_sha256="a")
    candidate = replace(reference, item_ids=tuple(reversed(reference.item_ids)))
    with pytest.raises(EvaluationError) as caught:
        compare_accuracy(reference, candidate)
    assert caught.value.code == "EVAL_ITEMS_DIFFER"


def test_noise_is_not_called_a_regression(shared_dir: Path) -> None:
    case = yaml.safe_load((shared_dir / "cases" / "e-05.yaml").read_text())
    given, expected = case["input"]["business_set"], case["expected"]["business_set"]
    comparison = compare_counts(
        n=given["n"], reference_only=given["bf16_only"], candidate_only=given["awq_only"]
    )
    assert comparison.drop_frac == pytest.approx(expected["drop_points"] / 100)
    assert comparison.mcnemar_exact_p == pytest.approx(expected["mcnemar_exact_p"], abs=5e-5)
    assert comparison.verdict is AccuracyVerdict.INCONCLUSIVE
    # z^2 (q - d^2) / (margin - d)^2 = 2.7055 * (0.07 - 0.0009) / 0.02^2 = 467.4
    assert comparison.items_that_would_decide == 468
    assert "468 items" in comparison.reason


def test_a_real_regression_fails(shared_dir: Path) -> None:
    case = yaml.safe_load((shared_dir / "cases" / "e-05.yaml").read_text())
    given = case["input"]["mmlu"]
    comparison = compare_counts(
        n=given["n"], reference_only=given["bf16_only"], candidate_only=given["awq_only"]
    )
    assert comparison.drop_frac is not None
    assert 100 * comparison.drop_frac == pytest.approx(
        case["expected"]["mmlu"]["drop_points"], abs=5e-4
    )
    assert comparison.verdict is AccuracyVerdict.FAIL
    assert comparison.items_that_would_decide is None


def test_reports_of_different_protocols_are_refused_with_the_differing_fields(
    shared_dir: Path,
) -> None:
    case = yaml.safe_load((shared_dir / "cases" / "e-07.yaml").read_text())

    def report_of(arm: dict[str, object]) -> AccuracyRun:
        template = arm["chat_template_sha"]
        protocol = replace(
            PROTOCOL,
            task=str(arm["task"]),
            n_shot=int(str(arm["n_shot"])),
            chat_template_sha256=None if template is None else str(template),
            add_bos=bool(arm["add_bos"]),
            tokenizer_sha256=str(arm["tokenizer_sha"]),
            engine=str(arm["vllm"]),
        )
        return replace(run_of([True] * 60 + [False] * 40), protocol=protocol)

    reference = report_accuracy(report_of(case["input"]["bf16"]), checkpoint_sha256="a")
    candidate = report_accuracy(report_of(case["input"]["awq"]), checkpoint_sha256="b")
    with pytest.raises(EvaluationError) as caught:
        compare_accuracy(reference, candidate)
    assert caught.value.code == case["expected"]["error_code"]
    named = {name.replace("_sha", "_sha256") for name in case["expected"]["differences"]}
    assert set(reference.protocol.differences(candidate.protocol)) == named
    for name in named:
        assert name in str(caught.value)


def test_a_report_survives_being_stored() -> None:
    report = report_accuracy(run_of([True] * 30 + [False] * 70), checkpoint_sha256="c")
    assert from_json(AccuracyReport, as_json(report)) == report
