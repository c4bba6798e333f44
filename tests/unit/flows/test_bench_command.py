"""``retune bench`` against a real HTTP server: one rate, the sustainable rate, the curve."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from flows.cli import app
from tasks.domain import validity
from tasks.domain.errors import ConfigError
from tests.fakes.stream_events import completion_event
from tests.fakes.streaming_server import Script, Step, golden_server, steady


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home of its own, and a client that may be late: it shares a process with the server."""
    monkeypatch.setenv("RETUNE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(validity, "SEND_LAG_LIMIT_S", 60.0)
    monkeypatch.setattr(validity, "RECEIVE_ERROR_LIMIT_S", 60.0)
    monkeypatch.setattr(validity, "CLIENT_SHARE_OF_TTFT_FRAC", 1e6)


def traffic(folder: Path, *, gap_s: float = 0.1) -> str:
    rows = [{"arrival_s": i * gap_s, "prompt_tokens": 8, "output_tokens": 4} for i in range(40)]
    path = folder / "traffic.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return str(path)


def bench(url: str, *options: str, code: int = 0) -> dict:
    result = CliRunner().invoke(app, ["bench", "--url", url, "--json", *options])
    assert result.exit_code == code, result.output
    document: dict = json.loads(result.stdout)
    return document


def test_one_rate_gives_figures_and_a_parquet_of_every_request(tmp_path: Path) -> None:
    with golden_server(steady(4, gap_s=0.005, first_s=0.01)) as server:
        found = bench(server.url, "--traffic", traffic(tmp_path), "--rate", "20",
                      "--duration", "1.99", "--slo", "ttft=60")  # fmt: skip
    measured = found["measurement"]
    assert measured["n_requests"] == measured["n_good"] == 40
    (parquet,) = Path(found["folder"]).glob("*/requests.parquet")
    table = pq.read_table(parquet)
    assert table.num_rows == 40
    assert {"due_s", "sent_s", "first_token_s", "stamps"} <= set(table.column_names)


def test_the_sustainable_rate_is_searched_within_its_probes(tmp_path: Path) -> None:
    with golden_server(steady(4, gap_s=0.002, first_s=0.01)) as server:
        found = bench(server.url, "--traffic", traffic(tmp_path), "--duration", "1",
                      "--slo", "ttft=60", "--sustainable", "--max-probes", "3")  # fmt: skip
    rate = found["sustainable"]
    assert [probe["multiple"] for probe in rate["probes"]] == [1.0, 2.0, 4.0]
    assert rate["multiple"] == 4.0
    assert rate["fails_at"] is None
    assert all(probe["n"] > 0 and probe["low_frac"] is not None for probe in rate["probes"])
    assert "stopped after 3 probes" in rate["reason"]


def test_a_server_too_slow_for_any_rate_has_none(tmp_path: Path) -> None:
    with golden_server(steady(2, gap_s=0.002, first_s=0.3)) as server:
        found = bench(server.url, "--traffic", traffic(tmp_path, gap_s=0.05), "--duration", "1",
                      "--slo", "ttft=0.1", "--sustainable", "--max-probes", "2")  # fmt: skip
    assert found["sustainable"]["multiple"] is None
    assert "no multiple that was tried" in found["sustainable"]["reason"]


def test_the_curve_doubles_up_to_its_limit(tmp_path: Path) -> None:
    with golden_server(steady(4, gap_s=0.002, first_s=0.01)) as server:
        found = bench(server.url, "--traffic", traffic(tmp_path), "--duration", "0.6",
                      "--curve", "4")  # fmt: skip
    assert [m["load_point"]["concurrency"] for m in found["measurements"]] == [1, 2, 4]
    assert "no knee found up to 4" in found["curve"]["inflection"]["reason"]


def test_figures_not_to_be_believed_exit_with_1(tmp_path: Path) -> None:
    broken = Script(steps=(Step(data=completion_event("x")),), ending="cut")
    with golden_server(broken) as server:
        found = bench(server.url, "--traffic", traffic(tmp_path), "--duration", "1", code=1)
    assert "NO_SUCCESSFUL_REQUESTS" in [flag["code"] for flag in found["measurement"]["flags"]]


def test_a_trace_file_is_replayed_in_part_and_its_long_gaps_are_told(tmp_path: Path) -> None:
    # An hour of silence between 20 short prompts and 20 long ones.
    rows = [
        {"arrival_s": start + i * 0.05, "prompt_tokens": tokens, "output_tokens": 4}
        for start, tokens in ((0.0, 8), (3600.0, 16))
        for i in range(20)
    ]
    path = tmp_path / "day.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows))
    command = ["bench", "--traffic", str(path), "--duration", "0.99", "--json"]
    with golden_server(steady(4, gap_s=0.002, first_s=0.01)) as server:
        part = CliRunner().invoke(app, [*command, "--url", server.url, "--window", "3600:3700"])
        whole = CliRunner().invoke(app, [*command, "--url", server.url, "--rate", "40"])
    found = json.loads(part.stdout)
    assert found["measurement"]["n_requests"] == 20
    (parquet,) = Path(found["folder"]).glob("*/requests.parquet")
    assert set(pq.read_table(parquet)["asked_prompt_tokens"].to_pylist()) == {16}
    assert "GAP_COMPRESSED" not in part.stderr
    assert "1 gaps above 600 s compressed to 60 s" in " ".join(whole.stderr.split())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--window", "5"], "needed START:END in seconds"),
        (["--traffic", "configs/traffic/peak.yaml", "--window", "0:60"], "names its own part"),
        (["--sustainable"], "--sustainable needs --slo"),
        (["--sustainable", "--slo", "ttft=1", "--curve", "4"], "one at a time"),
        (["--chat"], "--tokenizer"),
    ],
)
def test_options_that_do_not_go_together_are_told(
    tmp_path: Path, options: list[str], said: str
) -> None:
    command = ["bench", "--url", "http://127.0.0.1:9", "--traffic", traffic(tmp_path), *options]
    result = CliRunner().invoke(app, command)
    assert isinstance(result.exception, ConfigError)
    assert said in str(result.exception)
