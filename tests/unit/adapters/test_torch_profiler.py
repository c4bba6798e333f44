"""The torch profiler's window and its traces, against torch's own table."""

import gzip
import json
import re
from pathlib import Path

import pytest

from tasks.adapters.torch_profiler import profile_window, read_trace
from tasks.domain.endpoint import Endpoint
from tasks.domain.kernel_table import KernelTable, MissingTable
from tests.fakes.canned_server import Answer, CannedServer

WORKER = "dp0_pp0_tp0_rank0.1790.pt.trace.json.gz"


def endpoint(url: str) -> Endpoint:
    return Endpoint(url=url, model="m", owned=True)


def write_trace(path: Path, *names: str) -> None:
    rows = [
        {"ph": "X", "cat": "kernel", "name": n, "pid": 0, "tid": 7, "ts": 5e12 + 10 * i, "dur": 5.0}
        for i, n in enumerate(names)
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": rows}).encode()))


def ok() -> Answer:
    return 200, ""


def torch_table(path: Path) -> dict[str, tuple[float, int]]:
    """Name -> (self CPU share, calls) of torch's printed table."""
    row = re.compile(r"^\s*(\S+)\s+([\d.]+)%\s.*\s(\d+)\s*$")
    found = [match for line in path.read_text().splitlines() if (match := row.match(line))]
    return {m.group(1): (float(m.group(2)) / 100, int(m.group(3))) for m in found}


def test_a_real_cpu_trace_gives_torchs_own_table(shared_dir: Path) -> None:
    table = read_trace(shared_dir / "samples/torch-profiler-cpu.trace.json.gz")
    wanted = torch_table(shared_dir / "samples/torch-profiler-cpu-table.txt")
    assert isinstance(table, KernelTable)
    assert table.kind == "cpu"
    assert table.total_s == pytest.approx(2.574, abs=0.001)
    assert table.rows[0].name == "_C::onednn_mm"
    assert table.rows[0].share_frac == pytest.approx(0.5975, abs=0.0001)
    for row in table.rows:
        assert row.share_frac == pytest.approx(wanted[row.name][0], abs=0.0001), row.name
        assert row.calls == wanted[row.name][1], row.name
    assert dict(table.categories)["matmul"] == pytest.approx(0.5975, abs=0.0005)


def test_gpu_kernels_are_taken_where_there_are_any(tmp_path: Path) -> None:
    write_trace(tmp_path / WORKER, "gemm", "attn")
    table = read_trace(tmp_path / WORKER)
    assert isinstance(table, KernelTable)
    assert table.kind == "gpu"
    assert table.busy_s == pytest.approx(10e-6)  # two kernels of 5 us
    assert table.span_s == pytest.approx(15e-6)  # starts 10 us apart


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x1f\x8b not gzip",
        gzip.compress(b'{"traceEvents": [{"ph": '),
        gzip.compress(b'{"traceEvents": [1, 2]}'),
        gzip.compress(b"{}"),
        gzip.compress(b'{"traceEvents": []}' * 40)[:-12],
    ],
    # gzip stamps the time, and every test worker must give a case the same name
    ids=["empty", "not gzip", "cut JSON", "rows of another kind", "no rows", "cut gzip"],
)
def test_a_broken_trace_is_a_reason_and_not_an_exception(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "t.trace.json.gz"
    path.write_bytes(content)
    missing = read_trace(path)
    assert isinstance(missing, MissingTable)
    assert missing.code == "PROFILE_CORRUPT"


def test_a_trace_too_large_to_read_is_a_reason(tmp_path: Path) -> None:
    write_trace(tmp_path / WORKER, "gemm")
    missing = read_trace(tmp_path / WORKER, max_bytes=10)
    assert isinstance(missing, MissingTable)
    assert missing.code == "TRACE_TOO_LARGE"


def test_a_trace_with_nothing_in_it_says_so(tmp_path: Path) -> None:
    write_trace(tmp_path / WORKER)
    missing = read_trace(tmp_path / WORKER)
    assert isinstance(missing, MissingTable)
    assert missing.code == "NO_KERNEL_DATA"


def test_a_window_reads_the_workers_new_trace_and_runs_the_load(tmp_path: Path) -> None:
    write_trace(tmp_path / f"old_{WORKER}", "old")
    ran: list[str] = []

    def stop() -> Answer:
        write_trace(tmp_path / "sub" / WORKER, "new", "new")
        write_trace(tmp_path / "host_1.async_llm.9999.pt.trace.json.gz", "frontend")
        return 200, ""

    with CannedServer({"POST /start_profile": ok, "POST /stop_profile": stop}) as server:
        table = profile_window(
            endpoint(server.url), seconds=0.0, trace_dir=tmp_path, load=lambda: ran.append("load")
        )
    assert isinstance(table, KernelTable)
    assert [(row.name, row.calls) for row in table.rows] == [("new", 2)]
    assert ran == ["load"]
    assert server.asked == ["POST /start_profile", "POST /stop_profile"]


def test_an_engine_without_the_flag_answers_404_and_no_load_is_run(tmp_path: Path) -> None:
    ran: list[str] = []
    with CannedServer({}) as server:
        missing = profile_window(
            endpoint(server.url), seconds=0.0, trace_dir=tmp_path, load=lambda: ran.append("load")
        )
    assert isinstance(missing, MissingTable)
    assert missing.code == "PROFILER_NOT_ENABLED"
    assert "--profiler-config" in missing.reason
    assert ran == []


def test_a_profiler_that_fails_to_stop_is_a_reason(tmp_path: Path) -> None:
    routes = {"POST /start_profile": ok, "POST /stop_profile": lambda: (500, "boom")}
    with CannedServer(routes) as server:
        missing = profile_window(endpoint(server.url), seconds=0.0, trace_dir=tmp_path)
    assert isinstance(missing, MissingTable)
    assert (missing.code, "boom" in missing.reason) == ("PROFILER_FAILED", True)


def test_an_unreachable_engine_is_a_reason(tmp_path: Path) -> None:
    with CannedServer({}) as server:
        gone = server.url
    missing = profile_window(endpoint(gone), seconds=0.0, trace_dir=tmp_path / "absent")
    assert isinstance(missing, MissingTable)
    assert missing.code == "PROFILER_NO_REPLY"


def test_a_session_of_somebody_else_is_left_running(tmp_path: Path) -> None:
    with CannedServer({"POST /start_profile": lambda: (409, "already active")}) as server:
        missing = profile_window(endpoint(server.url), seconds=0.0, trace_dir=tmp_path)
    assert isinstance(missing, MissingTable)
    assert (missing.code, server.asked) == ("PROFILER_FAILED", ["POST /start_profile"])


def test_a_trace_written_elsewhere_is_not_found(tmp_path: Path) -> None:
    with CannedServer({"POST /start_profile": ok, "POST /stop_profile": ok}) as server:
        missing = profile_window(
            endpoint(server.url), seconds=0.0, trace_dir=tmp_path, file_timeout_s=0.0
        )
    assert isinstance(missing, MissingTable)
    assert missing.code == "TRACE_NOT_FOUND"


def test_a_load_that_fails_still_stops_the_profiler(tmp_path: Path) -> None:
    def broken() -> None:
        raise ValueError("load broke")

    with (
        CannedServer({"POST /start_profile": ok, "POST /stop_profile": ok}) as server,
        pytest.raises(ValueError, match="load broke"),
    ):
        profile_window(endpoint(server.url), seconds=0.0, trace_dir=tmp_path, load=broken)
    assert "POST /stop_profile" in server.asked
