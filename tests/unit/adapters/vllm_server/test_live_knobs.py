"""The plug-in's channel and drain, driven without vLLM; the real scheduler is in tests/engine."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tasks.adapters.vllm_server.lease import Lease, control_path, remove_lease, write_lease
from tasks.adapters.vllm_server.live_knobs import apply_values, control_dir_at, current_values
from tasks.adapters.vllm_server.live_scheduler import retune_scheduler
from tasks.adapters.vllm_server.live_scheduler.retune_scheduler import (
    Knobs,
    answer,
    open_channel,
)
from tasks.adapters.vllm_server.process_tree import boot_id, process_name
from tasks.domain.errors import ConfigError, EngineNotReadyError, InvalidParameterError
from tasks.domain.live_values import LIVE_NAMES, TRIED_VERSIONS
from tasks.domain.parameters import ParameterValues
from tests.fakes.scheduler_limits import Limits

ABOUT = {"version": "0.24.0", "model": "m", "pid": 7, "started_with": {"dtype": "float32"}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    limits: Limits
    knobs: Knobs
    folder: Path


@pytest.fixture
def channel(tmp_path: Path) -> Iterator[Channel]:
    # Deeper than a socket's own path may be long.
    folder = tmp_path / ("d" * 100) / "control"
    folder.parent.mkdir()
    limits = Limits()
    knobs = Knobs(limits, cap="max_num_running_reqs")
    open_channel(str(folder), lambda request: answer(request, knobs, ABOUT))
    yield Channel(limits=limits, knobs=knobs, folder=folder)


def values(seqs: int | None = None, tokens: int | None = None) -> ParameterValues:
    named = {"max_num_seqs": seqs, "max_num_batched_tokens": tokens}
    return ParameterValues.of({name: n for name, n in named.items() if n is not None})


def test_an_idle_engine_is_changed_at_once_and_confirms_what_it_runs(channel: Channel) -> None:
    before = current_values(channel.folder)
    assert (before.change_id, before.in_force) == (0, values(16, 512))
    state = apply_values(channel.folder, values(2, 64), wait_s=1.0)
    assert (state.change_id, state.in_force, state.asked) == (1, values(2, 64), values(2, 64))
    assert (channel.limits.max_num_running_reqs, channel.limits.max_num_scheduled_tokens) == (2, 64)
    assert state.envelope == values(16, 512)
    assert (state.version, state.model, state.pid) == ("0.24.0", "m", 7)
    assert state.started_with == ParameterValues.of({"dtype": "float32"})
    again = apply_values(channel.folder, values(16), wait_s=1.0)
    assert (again.change_id, again.in_force) == (2, values(16, 64))


def test_a_lower_cap_sinks_with_the_running_requests_and_is_acknowledged_last(
    channel: Channel,
) -> None:
    channel.limits.running.extend(range(9))
    with pytest.raises(EngineNotReadyError, match="more requests run") as caught:
        apply_values(channel.folder, values(2, 4), wait_s=0.0)
    assert caught.value.code == "SWITCH_PENDING"
    # 9 run, so the cap is 9: nobody is admitted, and each of them still gets its token a step.
    state = current_values(channel.folder)
    assert (state.in_force, state.asked) == (values(9, 9), values(2, 4))

    confirmed: list[ParameterValues] = []

    def ask() -> None:
        confirmed.append(apply_values(channel.folder, values(2, 4), wait_s=30.0).in_force)

    asking = threading.Thread(target=ask)
    asking.start()
    for left in (5, 3):
        del channel.limits.running[left:]
        reached = values(left, max(4, left))
        assert within(lambda r=reached: current_values(channel.folder).in_force == r)  # type: ignore[misc]
        assert confirmed == []
    del channel.limits.running[2:]
    asking.join()
    assert confirmed == [values(2, 4)]


def test_a_later_change_takes_the_place_of_one_that_still_drains(channel: Channel) -> None:
    channel.limits.running.extend(range(9))
    codes: list[str] = []

    def ask() -> None:
        try:
            apply_values(channel.folder, values(2), wait_s=30.0)
        except EngineNotReadyError as error:
            codes.append(error.code)

    asking = threading.Thread(target=ask)
    asking.start()
    assert within(lambda: current_values(channel.folder).asked == values(2, 512))
    assert apply_values(channel.folder, values(12), wait_s=1.0).in_force == values(12, 512)
    asking.join()
    assert codes == ["SWITCH_SUPERSEDED"]


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"max_num_seqs": 17}, "max_num_seqs=17 needs a restart: this engine started with 16"),
        ({"max_num_batched_tokens": 513}, "needs a restart: this engine started with 512"),
        ({"max_num_seqs": 0}, "max_num_seqs=0 is not a whole number above 0"),
        ({"max_num_seqs": True}, "max_num_seqs=True is not a whole number"),
        ({"max_num_seqs": 8, "max_num_batched_tokens": 7}, "max_num_batched_tokens=7 is below 8"),
        ({"max_num_seqs": 8, "max_model_len": 9}, "max_model_len needs a restart"),
    ],
)
def test_a_refused_change_says_why_and_changes_nothing(
    channel: Channel, asked: dict[str, int], sentence: str
) -> None:
    with pytest.raises(InvalidParameterError, match=sentence) as caught:
        apply_values(channel.folder, ParameterValues.of(asked), wait_s=1.0)
    assert caught.value.code == "SWITCH_REFUSED"
    state = current_values(channel.folder)
    assert (state.change_id, state.in_force) == (0, values(16, 512))


def test_a_budget_that_could_starve_a_prompt_for_ever_is_refused() -> None:
    # Without chunked prefill a prompt needs a step of its own: 400 tokens must stay possible.
    knobs = Knobs(Limits(), cap="max_num_running_reqs", least_tokens=400)
    change_id, reasons = knobs.ask({"max_num_batched_tokens": 399})
    assert (change_id, list(reasons)) == (0, ["max_num_batched_tokens"])
    assert knobs.ask({"max_num_batched_tokens": 400}) == (1, {})


def test_nonsense_on_the_socket_ends_that_connection_alone(channel: Channel) -> None:
    for nonsense in (b"no json\n", b"[1]\n", b'{"values": 3}\n', b""):
        with socket.socket(socket.AF_UNIX) as raw:
            raw.settimeout(10.0)
            connect(raw, channel.folder)
            raw.sendall(nonsense)
            raw.shutdown(socket.SHUT_WR)
            assert raw.recv(100) == b""
    assert current_values(channel.folder).change_id == 0


def connect(raw: socket.socket, folder: Path) -> None:
    link = folder.parents[1] / "c"
    if not link.exists():
        link.symlink_to(folder)
    raw.connect(str(link / "engine.sock"))


def test_a_folder_that_others_may_enter_is_refused_on_both_sides(
    channel: Channel, tmp_path: Path
) -> None:
    channel.folder.chmod(0o750)
    with pytest.raises(ConfigError, match="mode=750") as caught:
        current_values(channel.folder)
    assert caught.value.code == "CONTROL_NOT_PRIVATE"
    other = tmp_path / "open"
    other.mkdir(mode=0o755)
    with pytest.raises(RuntimeError, match=r"retune_scheduler: .*mode 0700"):
        open_channel(str(other), lambda request: {})


def test_a_second_engine_in_one_folder_is_refused(channel: Channel) -> None:
    with pytest.raises(RuntimeError, match="already has a live engine"):
        open_channel(str(channel.folder), lambda request: {})
    assert current_values(channel.folder).model == "m"


def test_an_engine_that_is_gone_is_told(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    with pytest.raises(EngineNotReadyError, match="no engine answers") as caught:
        current_values(tmp_path)
    assert caught.value.code == "CONTROL_UNREACHABLE"
    with pytest.raises(ConfigError, match="cannot be opened"):
        current_values(tmp_path / "none")


def test_the_plugin_and_the_catalogue_agree_on_versions_and_names() -> None:
    assert tuple(retune_scheduler.TRIED) == TRIED_VERSIONS
    assert {retune_scheduler.SEQS, retune_scheduler.TOKENS} == set(LIVE_NAMES)


def test_the_control_folder_is_found_by_our_own_record_of_the_port(tmp_path: Path) -> None:
    me = process_name(1)
    assert me is not None
    lease = Lease(
        token="t", boot_id=boot_id(), owner_pid=1, owner_start_ticks=me.start_ticks, port=8123,
        served_name="m", argv_sha256="", log_path="", pid=1, pgid=1, start_ticks=me.start_ticks,
        control_dir="/c",
    )  # fmt: skip
    write_lease(tmp_path / "engine-a.json", lease)
    write_lease(tmp_path / "engine-b.json", replace(lease, port=8124, control_dir=None))
    write_lease(tmp_path / "engine-c.json", replace(lease, port=8125, start_ticks=0))
    assert control_dir_at("http://127.0.0.1:8123", tmp_path) == Path("/c")
    for url, words in (
        ("http://127.0.0.1:8124", "started without live_knobs"),
        ("http://127.0.0.1:8125", "no engine of"),
        ("http://elsewhere:8123", "no engine of"),
    ):
        with pytest.raises(ConfigError, match=words) as caught:
            control_dir_at(url, tmp_path)
        assert caught.value.code == "NO_LIVE_KNOBS"


def test_a_record_goes_with_its_control_folder(tmp_path: Path) -> None:
    path = tmp_path / "engine-a.json"
    path.write_text("{}")
    control_path(path).mkdir()
    (control_path(path) / "engine.lock").touch()
    remove_lease(path)
    assert list(tmp_path.iterdir()) == []


def within(condition: Callable[[], bool], *, limit_s: float = 20.0) -> bool:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline and not condition():
        time.sleep(0.01)
    return condition()
