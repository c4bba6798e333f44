"""Runs a coroutine to its end from plain code: uvloop where it is installed, else asyncio's."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """Return uvloop's factory, or asyncio's where uvloop is missing."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def run_to_end(main: Callable[[], Coroutine[None, None, Result]]) -> Result:
    """Return what the coroutine returns; inside a running loop a thread of its own runs it."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _run(main)
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="load-client") as executor:
        return executor.submit(_run, main).result()


def _run(main: Callable[[], Coroutine[None, None, Result]]) -> Result:
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(main())
