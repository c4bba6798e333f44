"""Which process writes a run, as tags, and whether that process still lives."""

import os
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import psutil

PID_TAG = "retune.pid"
STARTED_TAG = "retune.process_started"
HOST_TAG = "retune.host"
BOOT_TAG = "retune.boot_id"
HEARTBEAT_TAG = "retune.heartbeat"


def boot_id() -> str:
    """Return the kernel's id of this boot, empty where the kernel gives none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def owner_tags(now_ms: int) -> dict[str, str]:
    """Return the tags that name this process as the writer of a run."""
    pid = os.getpid()
    return {
        PID_TAG: str(pid),
        STARTED_TAG: f"{psutil.Process(pid).create_time():.2f}",
        HOST_TAG: platform.node(),
        BOOT_TAG: boot_id(),
        HEARTBEAT_TAG: datetime.fromtimestamp(now_ms / 1000, UTC).isoformat(),
    }


def owner_lives(tags: Mapping[str, str], *, host: str, boot: str) -> bool | None:
    """Tell whether the process that these tags name lives; None where this host cannot know.

    The start time tells a process from a later one that was given the same pid.
    """
    if tags.get(HOST_TAG) != host:
        return None
    if boot and tags.get(BOOT_TAG) and tags[BOOT_TAG] != boot:
        return False
    try:
        process = psutil.Process(int(tags[PID_TAG]))
        started = tags.get(STARTED_TAG)
        return started is None or abs(process.create_time() - float(started)) < 1.0
    except psutil.NoSuchProcess:
        return False
    except (KeyError, ValueError, psutil.AccessDenied):
        return None


def heartbeat_ms(tags: Mapping[str, str]) -> int | None:
    """Return the Unix milliseconds of the last heartbeat, None where there is none to read."""
    try:
        moment = datetime.fromisoformat(tags[HEARTBEAT_TAG])
    except (KeyError, ValueError):
        return None
    return int(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() * 1000)
