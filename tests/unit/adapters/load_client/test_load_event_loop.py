"""A signal that ends the run must end it inside the event loop too."""

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest

from tasks.adapters.load_client import event_loop


class CancelledByWorkerError(BaseException):
    """Stands for what Prefect's SIGTERM handler raises: no Exception."""


@pytest.fixture
def raising_signal() -> Iterator[int]:
    def end(number: int, frame: object) -> None:
        raise CancelledByWorkerError

    before = signal.signal(signal.SIGUSR1, end)
    yield signal.SIGUSR1
    signal.signal(signal.SIGUSR1, before)


async def interrupted(number: int) -> str:
    asyncio.get_running_loop().call_later(0.05, os.kill, os.getpid(), number)
    await asyncio.sleep(30)
    return "slept through it"


@pytest.mark.parametrize("plain", [False, True], ids=["uvloop", "asyncio"])
def test_what_a_signal_handler_raises_ends_the_load(
    raising_signal: int, plain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if plain:
        monkeypatch.setattr(event_loop, "loop_factory", lambda: asyncio.new_event_loop)
    with pytest.raises(CancelledByWorkerError):
        event_loop.run_to_end(lambda: interrupted(raising_signal))


def test_a_result_is_returned() -> None:
    async def answer() -> int:
        return 7

    assert event_loop.run_to_end(answer) == 7
