"""Observations and what they are worth to a regime."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.domain.parameters import Regime
from tasks.domain.request_record import RequestRecord
from tasks.domain.request_table import request_table
from tasks.domain.search.objective import Objective
from tasks.domain.search.observation import (
    RequestRows,
    judge_rows,
    observe_rows,
    pressure_of,
    rows_of_table,
)
from tasks.domain.search.step_model import OfferedLoad
from tasks.domain.slo import Slo
from tests.fakes.search_points import SLO, point, unfit

seconds = st.one_of(st.none(), st.floats(0.001, 5.0))


def rows_of(*latencies: tuple[float, float, float]) -> RequestRows:
    n = len(latencies)
    ttft, tpot, e2e = (np.array(column) for column in zip(*latencies, strict=True))
    load = OfferedLoad(
        due_s=np.arange(n) / 1.0,
        prompt_tokens=np.full(n, 10),
        output_tokens=np.full(n, 5),
    )
    return RequestRows(load=load, ttft_s=ttft, tpot_s=tpot, e2e_s=e2e, duration_s=2.0)


FOUR = rows_of((0.5, 0.02, 1.0), (1.5, 0.02, 2.0), (0.5, 0.04, 2.0), (math.nan, math.nan, math.nan))


def test_shares_say_which_limit_fails_for_how_many() -> None:
    shares = judge_rows(FOUR, SLO)
    assert shares.attainment_frac == 0.25  # only the first keeps both
    assert shares.broken_frac("ttft") == 0.5  # the second, and the failed one
    assert shares.broken_frac("tpot") == 0.25
    assert shares.broken_frac("e2e") == 0.0  # no such limit


@given(ttft=seconds, tpot=seconds, e2e=seconds)
def test_rows_are_judged_as_a_single_request_would_be(
    ttft: float | None, tpot: float | None, e2e: float | None
) -> None:
    slo = Slo(ttft_s=1.0, tpot_s=0.03, e2e_s=2.0)
    row = tuple(math.nan if v is None else v for v in (ttft, tpot, e2e))
    broken = dict(judge_rows(rows_of(row), slo).broken)  # type: ignore[arg-type]
    names = {name for name, share in broken.items() if share == 1.0}
    assert names == set(slo.violations(ttft_s=ttft, tpot_s=tpot, e2e_s=e2e))


def test_records_become_rows_with_failures_as_nan() -> None:
    good = RequestRecord(
        index=0, due_s=1.0, asked_prompt_tokens=7, asked_output_tokens=3, sent_s=1.0,
        first_token_s=1.4, last_token_s=1.6, completion_tokens=3,
    )  # fmt: skip
    bad = RequestRecord(
        index=1, due_s=0.5, asked_prompt_tokens=9, asked_output_tokens=4, error_code="TIMEOUT"
    )
    rows = rows_of_table(request_table([good, bad], duration_s=2.0))
    assert rows.load.due_s.tolist() == [0.5, 1.0]
    assert math.isnan(rows.ttft_s[0])
    assert rows.ttft_s[1] == pytest.approx(0.4)
    assert rows.tpot_s[1] == pytest.approx(0.1)
    assert rows.load.output_tokens.tolist() == [4, 3]


def test_pressure_is_the_tail_over_the_tighter_limit() -> None:
    two = rows_of((0.5, 0.015, 1.0), (0.5, 0.015, 1.0))
    assert pressure_of(two, SLO) == pytest.approx(0.5)  # 0.5 / 1.0 and 0.015 / 0.03


def test_at_peak_a_point_is_worth_its_goodput() -> None:
    seen = observe_rows(point(16, 512), FOUR, slo=SLO, gpu_s=1.0)
    assert Objective(slo=SLO).worth(seen) == pytest.approx(0.5)  # 1 good request in 2 s


def test_off_peak_latency_counts_only_once_the_slo_is_met() -> None:
    calm = rows_of((0.25, 0.0075, 1.0), (0.25, 0.0075, 1.0))
    objective = Objective(slo=SLO, regime=Regime.OFF_PEAK)
    met = observe_rows(point(16, 512), calm, slo=SLO, gpu_s=1.0)
    missed = observe_rows(point(64, 512), FOUR, slo=SLO, gpu_s=1.0)
    assert objective.worth(met) == pytest.approx(1.75)  # 1 + (1 - 0.25)
    assert objective.worth(missed) == pytest.approx(0.25 / 0.99)


def test_failover_claims_no_head_room_that_was_not_measured() -> None:
    calm = rows_of((0.25, 0.0075, 1.0), (0.25, 0.0075, 1.0))
    met = observe_rows(point(16, 512), calm, slo=SLO, gpu_s=1.0)
    assert Objective(slo=SLO, regime=Regime.FAILOVER).worth(met) == pytest.approx(1.0)


def test_by_sustainable_rate_a_point_without_one_has_no_score() -> None:
    seen = observe_rows(point(16, 512), FOUR, slo=SLO, gpu_s=1.0)
    assert Objective(slo=SLO, by_sustainable_rate=True).worth(seen) is None


def test_ties_go_to_fewer_overrides() -> None:
    calm = rows_of((0.25, 0.0075, 1.0))
    far = observe_rows(point(16, 512, overrides=2), calm, slo=SLO, gpu_s=1.0)
    near = observe_rows(point(64, 512, overrides=1), calm, slo=SLO, gpu_s=1.0)
    best = Objective(slo=SLO).best([far, near])
    assert best is near


def test_a_point_without_outcome_cannot_be_the_best() -> None:
    assert Objective(slo=SLO).best([unfit(point(16, 512))]) is None
