import pytest

from tasks.domain.errors import MeasurementInvalidError, PermanentError
from tasks.domain.run_record import RunRecord, parents_first, safe_metric_names


def test_a_metric_that_is_not_finite_is_refused_before_any_store_is_opened():
    with pytest.raises(MeasurementInvalidError, match="ttft_p99") as caught:
        RunRecord(key="k", name="t1", status="FINISHED", metrics=(("ttft_p99", float("inf")),))
    assert caught.value.code == "METRIC_NOT_FINITE"


def test_a_series_with_nan_is_refused_by_its_name():
    with pytest.raises(MeasurementInvalidError, match="kv_usage"):
        RunRecord(
            key="k", name="t1", status="FINISHED", series=(("kv_usage", ((0, float("nan")),)),)
        )


@pytest.mark.parametrize(
    "fields",
    [
        {"key": ""},
        {"key": "it's"},
        {"key": "k", "parent_key": 'a"b'},
        {"key": "k", "params": (("a", "1"), ("a", "2"))},
        {"key": "k", "metrics": (("series/a", 1.0),), "series": (("a", ((0, 1.0),)),)},
        {"key": "k", "series": (("a", ((-1, 1.0),)),)},
    ],
)
def test_a_record_that_no_store_can_hold_is_refused(fields):
    with pytest.raises(PermanentError) as caught:
        RunRecord(name="t1", status="FINISHED", **fields)
    assert caught.value.code == "RUN_RECORD_INVALID"


def test_a_metric_and_a_series_of_one_name_stay_apart():
    run = RunRecord(
        key="k",
        name="t1",
        status="FINISHED",
        metrics=(("kv%", 1.0),),
        series=(("kv%", ((0, 2.0),)),),
    )
    assert safe_metric_names([run]) == {"kv%": "kv_pct", "series/kv%": "series/kv_pct"}


def test_names_are_mapped_over_all_runs_of_a_study():
    one = RunRecord(key="a", name="a", status="FINISHED", metrics=(("x-1", 1.0),))
    two = RunRecord(key="b", name="b", status="FINISHED", metrics=(("x_1", 1.0),))
    names = safe_metric_names([one, two])
    assert names == safe_metric_names([two, one])
    assert names["x-1"] != names["x_1"]


def test_parents_come_first_and_trials_keep_their_order():
    parent = RunRecord(key="s", name="s", status="FINISHED")
    trials = [RunRecord(key=key, parent_key="s", name=key, status="FINISHED") for key in ("b", "a")]
    assert parents_first([*trials, parent]) == (parent, *trials)


def test_two_runs_of_one_key_are_refused():
    run = RunRecord(key="s", name="s", status="FINISHED")
    with pytest.raises(PermanentError, match="two runs"):
        parents_first([run, run])
