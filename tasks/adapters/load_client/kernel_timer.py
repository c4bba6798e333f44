"""A timer that the kernel makes readable at an exact instant of perf_counter_ns.

asyncio rounds timers to a millisecond; a Linux timerfd is a descriptor that becomes ready like a
socket does, so what it measures is what a socket's bytes meet. Elsewhere asyncio's timer is used.
"""

import asyncio
import ctypes
import os
import sys
import time
from collections.abc import Callable

CLOCK_MONOTONIC = 1
TFD_TIMER_ABSTIME = 1
NS_PER_S = 1_000_000_000


class _Timespec(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]


class _TimerSpec(ctypes.Structure):
    _fields_ = [("interval", _Timespec), ("value", _Timespec)]


def _libc() -> ctypes.CDLL | None:
    """Return the C library where it has timerfd and perf_counter is CLOCK_MONOTONIC."""
    if not sys.platform.startswith("linux"):
        return None
    if "CLOCK_MONOTONIC" not in time.get_clock_info("perf_counter").implementation:
        return None
    library = ctypes.CDLL(None, use_errno=True)
    return library if hasattr(library, "timerfd_create") else None


LIBC = _libc()


class KernelTimer:
    """Calls ``callback`` once after each ``arm``, at or just after the armed instant."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback = callback
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.TimerHandle | None = None
        self._descriptor = -1
        if LIBC is not None:
            flags = os.O_NONBLOCK | os.O_CLOEXEC
            self._descriptor = LIBC.timerfd_create(CLOCK_MONOTONIC, flags)
        if self._descriptor >= 0:
            self._loop.add_reader(self._descriptor, self._ready)

    def arm(self, at_ns: int) -> None:
        """Set the instant, in perf_counter_ns; one that has passed calls back at once."""
        if self._descriptor < 0 or LIBC is None:
            delay_s = (at_ns - time.perf_counter_ns()) / NS_PER_S
            self._handle = self._loop.call_later(max(delay_s, 0.0), self._callback)
            return
        seconds, nanoseconds = divmod(max(at_ns, 1), NS_PER_S)
        spec = _TimerSpec(_Timespec(0, 0), _Timespec(seconds, nanoseconds))
        LIBC.timerfd_settime(self._descriptor, TFD_TIMER_ABSTIME, ctypes.byref(spec), None)

    def close(self) -> None:
        """Disarm and give the descriptor back."""
        if self._handle is not None:
            self._handle.cancel()
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _ready(self) -> None:
        try:
            os.read(self._descriptor, 8)
        except BlockingIOError:
            return
        self._callback()
