"""TCP ports: which is free, and which processes listen on one.

A bind test proves nothing: with SO_REUSEPORT a second bind succeeds and both servers answer.
"""

import socket
from contextlib import closing
from pathlib import Path

import psutil

from tasks.adapters.vllm_server.lease import leases
from tasks.adapters.vllm_server.process_tree import lives
from tasks.domain.errors import PortBusyError

CONNECT_TIMEOUT_S = 2.0
TRIES = 20


def listeners(port: int) -> frozenset[int | None]:
    """Return the pids that listen on a port, on any address; None for one that /proc hides."""
    return frozenset(
        connection.pid
        for connection in psutil.net_connections(kind="tcp")
        if connection.status == psutil.CONN_LISTEN
        and connection.laddr
        and connection.laddr.port == port
    )


def answers(host: str, port: int) -> bool:
    """Tell whether a TCP connect is anything but refused."""
    with closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as probe:
        probe.settimeout(CONNECT_TIMEOUT_S)
        try:
            probe.connect((host, port))
        except ConnectionRefusedError:
            return False
        except OSError:
            return True
    return True


def ensure_free(host: str, port: int, *, lease_dir: Path) -> None:
    """Return if nobody listens on the port and no living engine of ours has been given it.

    Raises:
        PortBusyError: somebody does; the message names the pid where it can be known.
    """
    owners = listeners(port)
    if not owners and not answers(host, port):
        owners = _promised(port, lease_dir)
        if not owners:
            return
    known = sorted(pid for pid in owners if pid is not None)
    who = f"owner_pid={known[0]}" if known else "owner_pid unknown (another user's process)"
    raise PortBusyError(
        f"port={port} on {host} is taken, {who}; a second engine there would share its requests: "
        "end that process or choose another port"
    )


def _promised(port: int, lease_dir: Path) -> frozenset[int | None]:
    """Return the pid of an engine of ours that was given the port and does not listen yet."""
    for _, lease in leases(lease_dir):
        holder = lease.tree.leader or lease.owner
        if lease.port == port and lives(holder):
            return frozenset({holder.pid})
    return frozenset()


def free_port(host: str, *, lease_dir: Path) -> int:
    """Return a port that nobody has.

    Raises:
        PortBusyError: the system gave none that is free.
    """
    for _ in range(TRIES):
        with closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as probe:
            probe.bind((host, 0))
            port = int(probe.getsockname()[1])
        try:
            ensure_free(host, port, lease_dir=lease_dir)
        except PortBusyError:
            continue
        return port
    raise PortBusyError(f"no free port on {host} in {TRIES} tries; end servers that are not needed")
