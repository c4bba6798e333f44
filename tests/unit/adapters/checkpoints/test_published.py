import json
import os
from pathlib import Path

import pytest

from tasks.adapters.checkpoints.published import MANIFEST, publishing, read_manifest, seal
from tasks.domain.errors import ConfigError, StorageError


def publish(folder: Path, text: str, **facts: object) -> dict[str, object]:
    with publishing(folder) as partial:
        (partial / "weights").write_text(text)
        return seal(partial, folder, facts)


def test_a_folder_appears_complete_with_a_manifest_of_its_files(tmp_path: Path) -> None:
    folder = tmp_path / "made"
    publish(folder, "abc", kind="awq")
    manifest = read_manifest(folder)
    assert manifest is not None
    assert manifest["kind"] == "awq"
    # sha256 of "abc", FIPS 180-2 example
    digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert manifest["files"] == {"weights": digest}
    assert [path.name for path in tmp_path.iterdir()] == ["made"]


def test_a_failure_on_the_way_leaves_nothing(tmp_path: Path) -> None:
    with (
        pytest.raises(RuntimeError, match="halfway"),
        publishing(tmp_path / "made") as partial,
    ):
        (partial / "weights").write_text("half")
        raise RuntimeError("halfway")
    assert list(tmp_path.iterdir()) == []


def test_what_a_crash_left_is_no_result_and_goes_at_the_next_try(tmp_path: Path) -> None:
    folder = tmp_path / "made"
    leftover = tmp_path / "made.partial-999999999"  # above the largest process id
    leftover.mkdir()
    (leftover / "weights").write_text("half")
    assert read_manifest(folder) is None
    publish(folder, "whole")
    assert not leftover.exists()
    assert (folder / "weights").read_text() == "whole"


def test_the_partial_folder_of_a_running_process_is_left_alone(tmp_path: Path) -> None:
    theirs = tmp_path / f"made.partial-{os.getppid()}"
    theirs.mkdir()
    publish(tmp_path / "made", "ours")
    assert theirs.is_dir()


@pytest.mark.parametrize("damage", ["changed", "missing"])
def test_a_damaged_folder_is_made_anew(tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "made"
    publish(folder, "good")
    if damage == "changed":
        (folder / "weights").write_text("g0od")
    else:
        (folder / "weights").unlink()
    assert read_manifest(folder) is None
    publish(folder, "good")
    assert read_manifest(folder) is not None


def test_the_first_of_two_equal_results_stays(tmp_path: Path) -> None:
    folder = tmp_path / "made"
    with publishing(folder) as partial:
        (partial / "weights").write_text("mine")
        (folder).mkdir()
        (folder / "weights").write_text("theirs")
        digest = "not checked here"
        (folder / MANIFEST).write_text(
            json.dumps({"inputs": {"model": "m"}, "files": {}, "sha256": digest})
        )
        kept = seal(partial, folder, {"inputs": {"model": "m"}})
    assert kept["sha256"] == digest
    assert (folder / "weights").read_text() == "theirs"


def test_a_result_of_other_inputs_is_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "made"
    publish(folder, "old", inputs={"tools": "1"})
    publish(folder, "new", inputs={"tools": "2"})
    assert (folder / "weights").read_text() == "new"


def test_a_folder_that_is_not_ours_is_never_touched(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / "thesis.tex").write_text("years of work")
    with pytest.raises(ConfigError, match="was not made by this product"):
        read_manifest(folder)
    assert (folder / "thesis.tex").exists()


def test_a_full_disk_is_a_storage_error(tmp_path: Path) -> None:
    with (
        pytest.raises(StorageError, match="No space left"),
        publishing(tmp_path / "made"),
    ):
        raise OSError(28, "No space left on device")
