import pytest

from tasks.adapters.mlflow_store.parameter_sets import (
    register_in,
    register_parameter_set,
    resolve_in,
)
from tasks.domain.errors import ConfigError, StorageError

NAME = "llama-3-8b.peak"


def test_an_alias_resolves_to_the_bytes_that_were_registered(store):
    version = register_in(store, b"a: 1\r\n", "peak.yaml", NAME, {"study_id": "s"}, "candidate")
    assert resolve_in(store, NAME, "candidate") == (version, "a: 1\r\n")
    assert store.registered[NAME][0].tags["study_id"] == "s"


def test_registering_the_same_yaml_again_adds_no_version(store):
    first = register_in(store, b"a: 1\n", "peak.yaml", NAME, {}, "candidate")
    again = register_in(store, b"a: 1\n", "peak.yaml", NAME, {"by": "release"}, "champion")
    assert (first, again, len(store.registered[NAME])) == ("1", "1", 1)
    assert store.registered[NAME][0].tags["by"] == "release"


def test_a_rollback_moves_the_alias(store):
    register_in(store, b"a: 1\n", "peak.yaml", NAME, {}, "champion")
    register_in(store, b"a: 2\n", "peak.yaml", NAME, {}, "champion")
    assert resolve_in(store, NAME, "champion") == ("2", "a: 2\n")
    store.set_alias(NAME, "champion", "1")
    assert resolve_in(store, NAME, "champion") == ("1", "a: 1\n")


def test_an_altered_yaml_is_refused_and_registering_it_again_puts_it_back(store):
    register_in(store, b"a: 1\n", "peak.yaml", NAME, {}, "champion")
    ((place, _),) = store.files.items()
    store.files[place] = b"a: 9\n"
    with pytest.raises(StorageError, match="altered") as caught:
        resolve_in(store, NAME, "champion")
    assert caught.value.code == "PARAMETER_SET_ALTERED"
    register_in(store, b"a: 1\n", "peak.yaml", NAME, {}, None)
    assert resolve_in(store, NAME, "champion") == ("1", "a: 1\n")


def test_an_alias_that_nothing_has_is_named_in_the_error(store):
    store.ensure_model(NAME)
    with pytest.raises(ConfigError, match="champion") as caught:
        resolve_in(store, NAME, "champion")
    assert caught.value.code == "PARAMETER_SET_UNKNOWN"


@pytest.mark.parametrize("name", ["a/b", "a:b", "it's", " ", ".."])
def test_a_name_that_the_registry_cannot_hold_is_refused_before_it_is_opened(name, tmp_path):
    with pytest.raises(ConfigError) as caught:
        register_parameter_set(
            tmp_path / "no.yaml", name=name, tags={}, alias=None, tracking_uri="file:///x"
        )
    assert caught.value.code == "PARAMETER_SET_NAME"
