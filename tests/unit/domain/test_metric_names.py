import random
import re

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.domain.errors import MeasurementInvalidError, PermanentError
from tasks.domain.metric_names import MAX_NAME_CHARACTERS, require_finite, safe_names

SAFE = re.compile(r"[a-z0-9_/.]+")
ANY_NAME = st.text(min_size=1, max_size=30)
CLOSE_NAMES = st.text(alphabet="aA1@%:[]/._- ,=µé", min_size=1, max_size=4)


def test_the_reported_names_keep_their_meaning_and_stay_six(shared_dir):
    case = yaml.safe_load((shared_dir / "cases" / "g-03.yaml").read_text(encoding="utf-8"))
    safe = safe_names(case["input"]["metrics"])
    assert len(set(safe.values())) == case["expected"]["logged_keys"]
    for name, expected in case["expected"]["example"].items():
        assert safe[name] == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("bench/goodput_req_s", "bench/goodput_req_s"),
        ("a__b", "a__b"),
        ("gpu_util_%", "gpu_util_pct"),
        ("timing(s)/gen", "timing_s/gen"),
        ("p99 ms", "p99_ms"),
        ("x=1", "x_1"),
        ("k,v", "k_v"),
        ("../x", "x"),
        ("a/", "a"),
        ("./a/../b", "a/b"),
        ("prefix-cache-hits", "prefix_cache_hits"),
        ("µs", "us"),
        ("Müller", "muller"),
        ("..", "unnamed"),
    ],
)
def test_a_lone_name_becomes_readable_without_a_hash(name, expected):
    assert safe_names([name]) == {name: expected}


def test_all_names_that_meet_get_a_hash_of_their_own():
    safe = safe_names(["x-1", "x_1", "other"])
    # sha256("x-1") starts with e0f26c5c, sha256("x_1") with d9b1567a
    assert safe == {"x-1": "x_1_e0f26c5c", "x_1": "x_1_d9b1567a", "other": "other"}


def test_a_name_that_looks_like_a_hashed_one_does_not_meet_it():
    safe = safe_names(["x-1", "x_1", "x_1_e0f26c5c"])
    assert len(set(safe.values())) == 3


def test_long_names_that_differ_at_the_end_stay_apart():
    first, second = "m" * 400 + "a", "m" * 400 + "b"
    safe = safe_names([first, second])
    assert len(set(safe.values())) == 2
    assert max(map(len, safe.values())) <= MAX_NAME_CHARACTERS


@settings(deadline=None)
@given(st.lists(ANY_NAME | CLOSE_NAMES, max_size=25), st.randoms())
def test_names_are_injective_safe_and_independent_of_order(names, shuffler: random.Random):
    safe = safe_names(names)
    assert len(set(safe.values())) == len(set(names))
    for result in safe.values():
        assert SAFE.fullmatch(result)
        assert len(result) <= MAX_NAME_CHARACTERS
        assert all(part.strip(".") for part in result.split("/"))
    shuffled = list(names)
    shuffler.shuffle(shuffled)
    assert safe_names(shuffled) == safe


@settings(deadline=None)
@given(st.lists(ANY_NAME | CLOSE_NAMES, max_size=10))
def test_safe_names_are_kept_when_mapped_again(names):
    once = set(safe_names(names).values())
    assert safe_names(once) == {name: name for name in once}


def test_an_empty_name_is_refused():
    with pytest.raises(PermanentError) as caught:
        safe_names(["a", ""])
    assert caught.value.code == "METRIC_NAME_EMPTY"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_value_that_is_not_finite_is_refused_by_the_metric_s_name(value):
    with pytest.raises(MeasurementInvalidError, match="latency/ttft_p99_ms"):
        require_finite("latency/ttft_p99_ms", value, run="t1")


def test_a_finite_value_passes_through():
    assert require_finite("a", -1.5, run="t1") == -1.5
