import pytest

from tasks.adapters.mlflow_store.champions import list_versions, promote_version, roll_back
from tasks.adapters.mlflow_store.parameter_sets import (
    register_in,
    register_parameter_set,
    resolve_in,
)
from tasks.domain.errors import ConfigError, StorageError
from tasks.domain.set_registry import ChampionMove

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


def test_an_old_study_that_is_registered_again_takes_no_alias_from_a_newer_one(store):
    register_in(store, b"a: 1\n", "peak.yaml", NAME, {}, "candidate")
    register_in(store, b"a: 2\n", "peak.yaml", NAME, {}, "candidate")
    register_in(store, b"a: 1\n", "peak.yaml", NAME, {}, "candidate")
    assert resolve_in(store, NAME, "candidate") == ("2", "a: 2\n")


def registered(store, count):
    for number in range(1, count + 1):
        register_in(store, b"a: %d\n" % number, "peak.yaml", NAME, {}, None)


def champion(store):
    return store.find_model(NAME).aliases.get("champion")


def test_a_rollback_finds_the_champion_before_whatever_was_promoted_since(store):
    registered(store, 3)
    for version in ("1", "3", "2"):
        promote_version(store, NAME, version)
    assert roll_back(store, NAME) == ChampionMove(name=NAME, before="2", champion="3")
    assert roll_back(store, NAME) == ChampionMove(name=NAME, before="3", champion="1")
    with pytest.raises(ConfigError, match="only champion") as caught:
        roll_back(store, NAME)
    assert (caught.value.code, champion(store)) == ("NO_CHAMPION_BEFORE", "1")


def test_promoting_the_champion_again_changes_nothing(store):
    registered(store, 2)
    for version in ("1", "2", "2"):
        promote_version(store, NAME, version)
    assert roll_back(store, NAME).champion == "1"


@pytest.mark.parametrize("fail_at", [1, 2])
def test_a_promotion_that_is_cut_off_can_still_be_rolled_back(store, fail_at):
    registered(store, 2)
    promote_version(store, NAME, "1")
    store.writes, store.fail_at = 0, fail_at
    with pytest.raises(ConnectionError):
        promote_version(store, NAME, "2")
    store.fail_at = None
    if fail_at == 2:  # the alias has moved, its order is not yet written down
        assert champion(store) == "2"
        assert roll_back(store, NAME).champion == "1"
    promote_version(store, NAME, "2")
    assert roll_back(store, NAME).champion == "1"


def test_a_rollback_that_is_cut_off_is_not_undone_by_the_next(store):
    registered(store, 3)
    for version in ("1", "2", "3"):
        promote_version(store, NAME, version)
    store.writes, store.fail_at = 0, 2
    with pytest.raises(ConnectionError):
        roll_back(store, NAME)
    store.fail_at = None
    assert roll_back(store, NAME) == ChampionMove(name=NAME, before="2", champion="1")


def test_an_altered_version_is_neither_promoted_nor_gone_back_to(store):
    registered(store, 2)
    promote_version(store, NAME, "1")
    promote_version(store, NAME, "2")
    place = next(place for place, content in store.files.items() if content == b"a: 1\n")
    store.files[place] = b"a: 9\n"
    for move in (lambda: roll_back(store, NAME), lambda: promote_version(store, NAME, "1")):
        with pytest.raises(StorageError, match="altered"):
            move()
    assert champion(store) == "2"


def test_versions_are_listed_with_what_points_at_them(store):
    registered(store, 2)
    promote_version(store, NAME, "2")
    assert [(v.version, v.aliases) for v in list_versions(store, NAME)] == [
        ("1", ()),
        ("2", ("champion",)),
    ]
    with pytest.raises(ConfigError, match="no version '7'"):
        promote_version(store, NAME, "7")
    with pytest.raises(ConfigError, match="no parameter set 'other'"):
        list_versions(store, "other")
