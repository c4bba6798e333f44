from hypothesis import given
from hypothesis import strategies as st

from tasks.domain.catalogue.translate import translate
from tasks.domain.parameters import ParameterValues


def test_values_that_both_releases_know_pass_unchanged() -> None:
    values = ParameterValues.of({"max_num_seqs": 256, "gpu_memory_utilization": 0.9})
    found = translate(values, "0.17.1", "0.32.0")
    assert found.values == values
    assert found.changed == () and found.refused == ()


def test_swap_space_of_nothing_is_dropped_and_told() -> None:
    values = ParameterValues.of({"swap_space": 0, "max_num_seqs": 64})
    found = translate(values, "0.17.1", "0.24.0")
    assert found.values == ParameterValues.of({"max_num_seqs": 64})
    assert found.changed[0][0] == "swap_space"


def test_swap_space_of_something_refuses_the_whole_set() -> None:
    found = translate(
        ParameterValues.of({"swap_space": 16, "max_num_seqs": 64}), "0.17.1", "0.24.0"
    )
    assert found.values is None
    name, reason = found.refused[0]
    assert name == "swap_space"
    assert "0.18.0" in reason and "kv_offloading_size" in reason


def test_a_new_parameter_cannot_go_back_unless_it_is_at_its_default() -> None:
    assert translate(ParameterValues.of({"max_num_queued_reqs": 8}), "0.32.0", "0.24.0").refused


def test_a_default_that_moved_is_written_out() -> None:
    found = translate(ParameterValues.of({"max_num_seqs": 64}), "0.10.0", "0.32.0")
    assert found.values is not None
    assert found.values.get("gpu_memory_utilization") == 0.9
    assert "0.92" in found.changed[0][1]


def test_words_of_the_first_engine_are_refused_with_what_took_their_place() -> None:
    found = translate(ParameterValues.of({"num_scheduler_steps": 8}), "0.6.4", "0.32.0")
    assert "async_scheduling" in found.refused[0][1]


@given(st.sampled_from(["0.18.0", "0.24.0", "0.32.0"]), st.integers(1, 1024))
def test_translating_to_the_same_release_changes_nothing(version: str, seqs: int) -> None:
    values = ParameterValues.of({"max_num_seqs": seqs, "enable_prefix_caching": True})
    found = translate(values, version, version)
    assert (found.values, found.changed, found.refused) == (values, (), ())
