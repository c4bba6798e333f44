"""Several load workers: fresh interpreters that start at one common instant.

Spawned through a module of our own, not multiprocessing: that would import the caller's main
module again in each worker.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Pipe, wait

from tasks.adapters.load_client.load_job import LoadJob, LoadResult, LoadSample
from tasks.domain.errors import MeasurementInvalidError

WORKER_MODULE = "tasks.adapters.load_client.worker_main"
# perf_counter_ns is the host's monotonic clock, so one number starts every process at once.
START_AHEAD_NS = 100_000_000
EXIT_TIMEOUT_S = 5.0
POLL_S = 0.25

READY = "ready"
CANCEL = "cancel"

Message = LoadResult | LoadSample | str
Take = Callable[[LoadSample, int], bool]


class Worker:
    """One worker process and the pipe to it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.pipe, far = Pipe()
        descriptor = far.fileno()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        # A session of its own: Ctrl-C reaches the parent, which then cancels the run in order.
        self.process = subprocess.Popen(
            [sys.executable, "-m", WORKER_MODULE, str(descriptor)],
            pass_fds=(descriptor,),
            env=environment,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        far.close()

    def receive(self) -> Message:
        """Return the worker's next message.

        Raises:
            MeasurementInvalidError: LOAD_WORKER_DIED when the process ended without one.
        """
        try:
            message: Message = self.pipe.recv()
        except (EOFError, ConnectionError) as error:
            code = self.process.wait(EXIT_TIMEOUT_S)
            raise MeasurementInvalidError(
                f"load worker {self.number} pid={self.process.pid} ended with status {code} "
                "before its result; its traceback is on stderr; run again with fewer workers",
                code="LOAD_WORKER_DIED",
            ) from error
        return message

    def close(self) -> None:
        """Close the pipe, which ends a worker that still runs, and wait for the process."""
        self.pipe.close()
        try:
            self.process.wait(EXIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def run_workers(jobs: Sequence[LoadJob], *, take: Take) -> tuple[LoadResult, ...]:
    """Run every job in a process of its own and return their results in order.

    ``take`` gets each worker's samples; when it returns True all workers are cancelled.

    Raises:
        MeasurementInvalidError: LOAD_WORKER_DIED.
    """
    workers: list[Worker] = []
    try:
        for number, job in enumerate(jobs):
            worker = Worker(number)
            workers.append(worker)
            worker.pipe.send(job)
        for worker in workers:
            worker.receive()
        start_ns = time.perf_counter_ns() + START_AHEAD_NS
        for worker in workers:
            worker.pipe.send(start_ns)
        return _collected(workers, take)
    finally:
        for worker in workers:
            worker.close()


def _collected(workers: Sequence[Worker], take: Take) -> tuple[LoadResult, ...]:
    results: dict[int, LoadResult] = {}
    running = {worker.pipe.fileno(): worker for worker in workers}
    cancelled = False
    while running:
        ready = wait(list(running), POLL_S)
        for worker in [running[descriptor] for descriptor in running if descriptor in ready]:
            message = worker.receive()
            if isinstance(message, LoadResult):
                results[worker.number] = message
                del running[worker.pipe.fileno()]
            elif isinstance(message, LoadSample) and take(message, worker.number) and not cancelled:
                cancelled = True
                for other in running.values():
                    other.pipe.send(CANCEL)
    return tuple(results[worker.number] for worker in workers)
