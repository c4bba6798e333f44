"""An arm that wins alone may lose under load; the traffic's concurrency decides."""

from pathlib import Path

import pytest
import yaml

from tasks.domain.concurrency_curves import ThroughputCurve, faster_by_concurrency
from tasks.domain.errors import InvalidParameterError, MeasurementInvalidError

BF16 = ThroughputCurve.of("bf16", {256: 5200, 1: 60, 8: 430, 32: 1500, 64: 2350})
AWQ = ThroughputCurve.of("awq", {1: 110, 8: 700, 32: 1700, 64: 2300, 256: 2700})


def test_awq_wins_alone_ties_at_64_and_loses_at_256() -> None:
    found = faster_by_concurrency(BF16, AWQ)
    assert [(c, arm) for c, arm, _ in found.faster] == [
        (1, "awq"),
        (8, "awq"),
        (32, "awq"),
        (64, "tie"),
        (256, "bf16"),
    ]
    assert round(100 * found.faster[3][2], 1) == 2.1  # 50 / 2350
    assert found.crossover_between == (32, 256)


def test_the_arm_is_chosen_at_the_traffics_concurrency() -> None:
    found = faster_by_concurrency(AWQ, BF16)
    assert found.ahead_between(140, 230) == "bf16"
    assert found.ahead_between(1, 8) == "awq"
    assert found.ahead_between(1, 256) == "tie"  # each leads somewhere
    assert found.ahead_between(64, 64) == "tie"


@pytest.mark.parametrize(("low", "high"), [(140, 257), (0.5, 8), (230, 140)])
def test_nothing_is_said_beyond_the_measured_points(low: float, high: float) -> None:
    with pytest.raises(MeasurementInvalidError) as raised:
        faster_by_concurrency(BF16, AWQ).ahead_between(low, high)
    assert raised.value.code == "EXTRAPOLATION"


def test_only_shared_concurrencies_are_compared() -> None:
    one = ThroughputCurve.of("a", {1: 10, 2: 20})
    two = ThroughputCurve.of("b", {2: 10, 4: 20})
    assert faster_by_concurrency(one, two).faster == ((2, "a", 0.5),)
    with pytest.raises(InvalidParameterError, match="at least one concurrency in both"):
        faster_by_concurrency(one, ThroughputCurve.of("c", {8: 1}))


def test_arms_that_never_swap_have_no_crossover() -> None:
    slower = ThroughputCurve.of("b", {c: y / 2 for c, y in BF16.points})
    assert faster_by_concurrency(BF16, slower).crossover_between is None


def test_the_public_case_of_awq_under_load_is_met(shared_dir: Path) -> None:
    case = yaml.safe_load((shared_dir / "cases/e-01.yaml").read_text())
    tok_s = {
        arm: {int(c): y for c, y in p.items()} for arm, p in case["input"]["output_tok_s"].items()
    }
    found = faster_by_concurrency(
        ThroughputCurve.of("bf16", tok_s["bf16"]), ThroughputCurve.of("awq", tok_s["awq"])
    )
    wanted = {int(c): str(arm).split()[0] for c, arm in case["expected"]["faster"].items()}
    assert {c: arm for c, arm, _ in found.faster} == wanted
    assert list(found.crossover_between or ()) == case["expected"]["crossover_between"]
    traffic = case["input"]["trace_concurrency"]
    assert (
        found.ahead_between(traffic["p50"], traffic["p95"]) == case["expected"]["decision"]["arm"]
    )
