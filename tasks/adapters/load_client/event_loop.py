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
    """Run the coroutine; what a signal handler raises inside the loop ends the run and is raised.

    asyncio and uvloop report such an exception and go on: Prefect's cancellation would be lost.
    """
    raised: list[BaseException] = []

    async def guarded() -> Result:
        task = asyncio.current_task()

        def on_exception(loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
            error = context.get("exception")
            if isinstance(error, BaseException) and not isinstance(error, Exception):
                raised.append(error)
                if task is not None:
                    task.cancel()
                return
            loop.default_exception_handler(context)

        asyncio.get_running_loop().set_exception_handler(on_exception)
        return await main()

    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            result = runner.run(guarded())
    except asyncio.CancelledError:
        if raised:
            raise raised[0] from None
        raise
    if raised:
        raise raised[0]
    return result
