"""Entry of a load worker process: job in, start instant in, samples and the result out."""

import asyncio
import sys
from multiprocessing.connection import Connection

from tasks.adapters.load_client.event_loop import run_to_end
from tasks.adapters.load_client.load_job import LoadJob, LoadResult, LoadSample
from tasks.adapters.load_client.load_run import run_load
from tasks.adapters.load_client.workers import READY


def main() -> None:
    """Serve one job over the pipe whose descriptor is the first argument."""
    with Connection(int(sys.argv[1])) as pipe:
        job = pipe.recv()
        pipe.send(run_to_end(lambda: _serve(job, pipe)))


async def _serve(job: LoadJob, pipe: Connection) -> LoadResult:
    async def start() -> int:
        pipe.send(READY)
        start_ns: int = await asyncio.to_thread(pipe.recv)
        return start_ns

    def tick(sample: LoadSample) -> bool:
        pipe.send(sample)
        # Anything readable now is CANCEL, or the end of a parent that is gone.
        return pipe.poll()

    return await run_load(job, start=start, tick=tick)


if __name__ == "__main__":
    main()
