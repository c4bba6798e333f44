"""Fetches a vLLM server's /metrics, once or every second in a thread, and keeps what came.

A scrape that fails is a snapshot with an error, never an exception: metrics are evidence beside
the measurement, not the measurement.
"""

import gzip
import json
import math
import threading
import time
import zlib
from pathlib import Path
from types import TracebackType

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tasks.domain.engine_metrics import PROCESS_START, MetricSample, MetricsSnapshot, Note

_PREFIX = "vllm:"
_DROPPED = ("_bucket", "_created")


def parse_metrics(text: str, *, at_s: float) -> MetricsSnapshot:
    """Return the vLLM samples of an exposition; an unreadable or foreign text gives an error.

    Buckets, creation times and values that are not finite are left out: unknown is not 0.
    """
    # Most lines are buckets: leaving them out first keeps the parser's share of the interpreter
    # (and so the disturbance of a load client in this process) at a few milliseconds.
    lines = (line for line in text.split("\n") if _is_kept(line.partition("{")[0].split(" ")[0]))
    samples: list[MetricSample] = []
    try:
        for family in text_string_to_metric_families("\n".join(lines) + "\n"):
            for sample in family.samples:
                if math.isfinite(sample.value):
                    labels = tuple(sorted(sample.labels.items()))
                    samples.append(
                        MetricSample(name=sample.name, labels=labels, value=float(sample.value))
                    )
    except (ValueError, KeyError, IndexError) as error:
        return MetricsSnapshot(at_s=at_s, error=f"the reply is no Prometheus text: {error!r}")
    if not any(sample.name.startswith(_PREFIX) for sample in samples):
        return MetricsSnapshot(at_s=at_s, error="the reply holds no vllm: metric")
    return MetricsSnapshot(at_s=at_s, samples=tuple(samples))


def scrape(url: str, *, timeout_s: float = 5.0) -> MetricsSnapshot:
    """Fetch ``url``/metrics once; at_s is time.perf_counter() when the reply was whole.

    url: the server's base without path. A failure is a snapshot with an error.
    """
    with httpx.Client(trust_env=False, timeout=timeout_s) as client:
        return _scrape(client, url)


class MetricsScraper:
    """Scrapes every ``period_s`` seconds between enter and exit, first and last included.

    path: each snapshot is appended there at once as a line of gzip JSONL, so that a killed run
    keeps what it saw; a disk that refuses is noted in ``notes`` and scraping goes on.
    """

    def __init__(
        self, url: str, period_s: float = 1.0, *, path: Path | None = None, timeout_s: float = 5.0
    ) -> None:
        """Remember what to scrape; nothing is fetched before the block is entered."""
        self._url = url
        self._period_s = period_s
        self._path = path
        self._client = httpx.Client(trust_env=False, timeout=timeout_s)
        self._file: gzip.GzipFile | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="metrics-scraper", daemon=True)
        self._snapshots: list[MetricsSnapshot] = []
        self._notes: list[Note] = []

    @property
    def snapshots(self) -> tuple[MetricsSnapshot, ...]:
        """The snapshots so far, in time order."""
        return tuple(self._snapshots)

    @property
    def notes(self) -> tuple[Note, ...]:
        """What went wrong with the file, as (code, sentence)."""
        return tuple(self._notes)

    def __enter__(self) -> "MetricsScraper":
        """Take the baseline and start the thread."""
        if self._path is not None:
            try:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._file = gzip.open(self._path, "wb", compresslevel=6)
            except OSError as error:
                self._give_up_file(error)
        self._take()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the thread, take the last snapshot and close the file."""
        self._stop.set()
        self._thread.join()
        self._take()
        self._client.close()
        if self._file is not None:
            try:
                self._file.close()
            except OSError as error:
                self._give_up_file(error)

    def _run(self) -> None:
        due = time.perf_counter() + self._period_s
        while not self._stop.wait(max(0.0, due - time.perf_counter())):
            self._take()
            # A scrape slower than the period skips ticks rather than bunching them.
            due += self._period_s * max(1, math.ceil((time.perf_counter() - due) / self._period_s))

    def _take(self) -> None:
        snapshot = _scrape(self._client, self._url)
        self._snapshots.append(snapshot)
        if self._file is None:
            return
        try:
            self._file.write((_line(snapshot) + "\n").encode())
            self._file.flush()
        except OSError as error:
            self._give_up_file(error)

    def _give_up_file(self, error: OSError) -> None:
        self._file = None
        self._notes.append(("METRICS_NOT_WRITTEN", f"{self._path}: {error}; kept in memory only"))


def read_snapshots(path: Path) -> tuple[MetricsSnapshot, ...]:
    """Return the snapshots of a file that MetricsScraper wrote.

    A file cut short by a kill gives the whole lines before the cut.
    """
    snapshots: list[MetricsSnapshot] = []
    try:
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            snapshots.extend(_snapshot(line) for line in lines)
    except (EOFError, zlib.error, json.JSONDecodeError):
        return tuple(snapshots)
    return tuple(snapshots)


def _scrape(client: httpx.Client, url: str) -> MetricsSnapshot:
    try:
        reply = client.get(f"{url.rstrip('/')}/metrics")
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return MetricsSnapshot(at_s=time.perf_counter(), error=f"{type(error).__name__}: {error}")
    at_s = time.perf_counter()
    if reply.status_code != httpx.codes.OK:
        return MetricsSnapshot(at_s=at_s, error=f"HTTP {reply.status_code} from {reply.url}")
    return parse_metrics(reply.text, at_s=at_s)


def _is_kept(name: str) -> bool:
    return (name.startswith(_PREFIX) and not name.endswith(_DROPPED)) or name == PROCESS_START


def _line(snapshot: MetricsSnapshot) -> str:
    rows = [[s.name, dict(s.labels), s.value] for s in snapshot.samples]
    return json.dumps({"at_s": snapshot.at_s, "error": snapshot.error, "samples": rows})


def _snapshot(line: str) -> MetricsSnapshot:
    row = json.loads(line)
    return MetricsSnapshot(
        at_s=float(row["at_s"]),
        error=row["error"],
        samples=tuple(
            MetricSample(name=name, labels=tuple(sorted(labels.items())), value=float(value))
            for name, labels, value in row["samples"]
        ),
    )
