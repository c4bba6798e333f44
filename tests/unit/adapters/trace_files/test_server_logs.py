"""Server logs as traces: what they tell is read, what they do not tell is asked for."""

from pathlib import Path

import numpy as np
import pytest

from tasks.adapters.trace_files.loading import load_trace
from tasks.adapters.trace_files.options import TraceOptions
from tasks.domain.errors import TraceError
from tasks.domain.trace import Trace
from tests.conftest import REPOSITORY

STATED = TraceOptions(prompt_tokens=100, output_tokens=20)
PARAMS = (
    "SamplingParams(n=1, temperature=0.0, stop=[], ignore_eos={eos}, max_tokens={limit}, "
    "min_tokens=0)"
)


def loaded(folder: Path, text: str, options: TraceOptions = STATED) -> Trace:
    path = folder / "server.log"
    path.write_bytes(text.encode())
    return load_trace(path, options=options)


def access(stamp: str, path: str = "/v1/completions", status: str = "200 OK") -> str:
    return f'{stamp} INFO:     10.0.0.7:4242 - "POST {path} HTTP/1.1" {status}\n'


def received(stamp: str, request: str, *, limit: str = "8", eos: str = "True") -> str:
    params = PARAMS.format(eos=eos, limit=limit)
    return (
        f"(APIServer pid=9) INFO {stamp} [request_logger.py:65] Received request {request}: "
        f"params: {params}, lora_request: None.\n"
    )


def details(stamp: str, request: str, tokens: int, prompt: str = "'x'") -> str:
    ids = ", ".join(str(7 * i) for i in range(tokens))
    return (
        f"(APIServer pid=9) DEBUG {stamp} [request_logger.py:55] Request {request} details: "
        f"prompt: {prompt}, prompt_token_ids: [{ids}], prompt_embeds shape: None.\n"
    )


def codes(trace: Trace) -> list[str]:
    return [code for code, _ in trace.notes.warnings]


def test_an_access_log_without_stamps_says_what_to_turn_on(tmp_path: Path) -> None:
    text = 'INFO:     127.0.0.1:1234 - "POST /v1/completions HTTP/1.1" 200 OK\n' * 3
    with pytest.raises(TraceError, match=r"formatter json.*docker logs --timestamps") as raised:
        loaded(tmp_path, text)
    assert raised.value.code == "STAMPS_NOT_LOGGED"
    assert "3 requests" in str(raised.value)


@pytest.mark.parametrize(
    "stamps",
    [
        ("2026-12-01 02:36:29,250", "2026-12-01 02:36:31,750"),  # logging's asctime
        ("2026-12-01T02:36:29.250000000Z", "2026-12-01T02:36:31.750000000Z"),  # docker, kubectl
        ("[2026-12-01 03:36:29.25+01:00]", "[2026-12-01 03:36:31.75+01:00]"),
    ],
)
def test_a_stamped_access_log_gives_arrivals(tmp_path: Path, stamps: tuple[str, str]) -> None:
    text = access(stamps[0]) + access(stamps[1], "/v1/chat/completions")
    trace = loaded(tmp_path, text)
    assert trace.arrival_s.tolist() == [0.0, 2.5]
    assert trace.origin_utc == "2026-12-01T02:36:29.250000Z"
    assert trace.notes.format == "access-log"
    assert {"ACCESS_LOG_STAMPS", "PROMPT_LENGTHS_ASSUMED", "OUTPUT_LENGTHS_ASSUMED"} <= set(
        codes(trace)
    )
    assert (trace.prompt_tokens.tolist(), trace.output_tokens.tolist()) == ([100] * 2, [20] * 2)


def test_a_gateways_common_log_format_is_read(tmp_path: Path) -> None:
    line = '10.1.2.3 - - [{}] "POST /v1/completions HTTP/1.1" 200 512 "-" "client/1.0"\n'
    text = line.format("31/Dec/2026:23:59:58 +0000") + line.format("01/Jan/2027:01:00:03 +0100")
    trace = loaded(tmp_path, text, TraceOptions(prompt_tokens=1, output_tokens=1, seed=1))
    # 23:59:58Z and 00:00:03Z, each spread inside its own second
    assert 4.0 < trace.arrival_s[1] < 6.0
    assert trace.notes.out_of_order_rows == 0


def test_only_answered_generating_requests_are_traffic(tmp_path: Path) -> None:
    stamp = "2026-12-01 02:36:29,250"
    text = (
        access(stamp)
        + access(stamp, "/tokenize")
        + access(stamp, "/v1/embeddings")
        + access(stamp, "/v1/completions", "400 Bad Request")
        + stamp
        + ' INFO:     10.0.0.7:4242 - "GET /metrics HTTP/1.1" 200 OK\n'
    )
    trace = loaded(tmp_path, text)
    assert len(trace) == 1
    assert dict(trace.notes.dropped) == {"failed": 1}


def test_a_request_log_counts_logged_ids_and_exact_limits(tmp_path: Path) -> None:
    tricky = "'say max_tokens=9, min_tokens=0, prompt_token_ids: [1, 2]'"
    text = (
        received("12-01 10:00:00", "cmpl-a-0", limit="8")
        + details("12-01 10:00:00", "cmpl-a-0", 130)
        + details("12-01 10:00:02", "cmpl-b-0", 150, tricky)  # either order of the two lines
        + received("12-01 10:00:02", "cmpl-b-0", limit="5")
        + 'INFO:     127.0.0.1:1234 - "POST /v1/completions HTTP/1.1" 200 OK\n'
    )
    trace = loaded(tmp_path, text, TraceOptions(spread_quantised=False))
    assert trace.notes.format == "vllm-request-log"
    assert trace.arrival_s.tolist() == [0.0, 2.0]
    assert trace.prompt_tokens.tolist() == [130, 150]
    assert trace.output_tokens.tolist() == [8, 5]
    # Equal ids make equal blocks of 64 tokens: both prompts begin with the same two.
    assert trace.prefix_blocks is not None
    assert trace.prefix_blocks[0] == trace.prefix_blocks[1]
    assert len(trace.prefix_blocks[0]) == 2
    assert trace.origin_utc is None
    assert "YEAR_NOT_LOGGED" in codes(trace)


def test_the_one_line_form_of_older_versions_is_read(tmp_path: Path) -> None:
    params = PARAMS.format(eos="True", limit="16")
    text = (
        "INFO 07-29 02:12:45 [logger.py:41] Received request cmpl-1-0: prompt: 'Hi', params: "
        f"{params}, prompt_token_ids: [1, 2, 3], prompt_embeds shape: None, lora_request: None.\n"
        "INFO 07-29 02:12:46 logger.py:41] Received request cmpl-2-0: prompt: 'Hi', params: "
        f"{params}, prompt_token_ids: [4], lora_request: None.\n"
    )
    trace = loaded(tmp_path, text, TraceOptions())
    assert trace.prompt_tokens.tolist() == [3, 1]
    assert trace.output_tokens.tolist() == [16, 16]


def test_a_limit_is_no_length_and_a_stated_one_stays_below_it(tmp_path: Path) -> None:
    text = received("12-01 10:00:00", "chatcmpl-a", limit="8", eos="False") + received(
        "12-01 10:00:01", "chatcmpl-b", limit="900", eos="False"
    )
    with pytest.raises(TraceError, match=r"2 of them without prompt .* 2 without output") as raised:
        loaded(tmp_path, text, TraceOptions())
    assert raised.value.code == "LENGTHS_NOT_LOGGED"
    assert "--enable-log-outputs" in str(raised.value)
    trace = loaded(tmp_path, text, STATED)
    assert trace.output_tokens.tolist() == [8, 20]
    text = "2 output lengths are not logged and count as 20 tokens, as stated"
    assert ("OUTPUT_LENGTHS_ASSUMED", text) in trace.notes.warnings


def test_answers_give_lengths_and_ends_that_were_none_are_dropped(tmp_path: Path) -> None:
    answer = "(APIServer pid=9) DEBUG 12-01 10:00:03 [request_logger.py:99] Generated response {}"
    text = (
        received("12-01 10:00:00", "chatcmpl-a", limit="100", eos="False")
        + details("12-01 10:00:00", "chatcmpl-a", 5)
        + answer.format("chatcmpl-a details: output_token_ids: [4, 5, 6]\n")
        + received("12-01 10:00:01", "chatcmpl-b", limit="100", eos="False")
        + details("12-01 10:00:01", "chatcmpl-b", 6)
        + answer.format("chatcmpl-b (streaming delta) details: output_token_ids: [4, 5]\n")
        + answer.format("chatcmpl-b (streaming delta) details: output_token_ids: [6]\n")
        + answer.format("chatcmpl-b (streaming complete) details: output_token_ids: None\n")
        + received("12-01 10:00:02", "chatcmpl-c")
        + "(APIServer pid=9) INFO 12-01 10:00:04 [async_llm.py:783] Request chatcmpl-c aborted.\n"
    )
    trace = loaded(tmp_path, text, TraceOptions())
    assert trace.output_tokens.tolist() == [3, 3]
    assert dict(trace.notes.dropped) == {"failed": 1}
    assert "OUTPUT_FROM_DELTAS" in codes(trace)


def test_prompts_cut_by_max_log_len_have_no_length(tmp_path: Path) -> None:
    start = "(APIServer pid=9) INFO 12-01 09:59:00 [utils.py:2] non-default args: {'model': 'm', "
    text = (
        start
        + "'max_log_len': 4}\n"
        + received("12-01 10:00:00", "a")
        + details("12-01 10:00:00", "a", 4)
        + received("12-01 10:00:00", "b")
        + details("12-01 10:00:00", "b", 3)
    )
    with pytest.raises(TraceError, match="1 of them without prompt length and 0 without output"):
        loaded(tmp_path, text, TraceOptions())


def test_the_years_turn_keeps_the_order_and_a_late_line_its_place(tmp_path: Path) -> None:
    stamps = ("12-31 23:59:50", "01-01 00:00:10", "12-31 23:59:59", "01-01 00:00:20")
    text = "".join(received(stamp, f"r{i}", limit=str(i + 1)) for i, stamp in enumerate(stamps))
    trace = loaded(tmp_path, text, TraceOptions(prompt_tokens=4, spread_quantised=False))
    assert trace.arrival_s.tolist() == [0.0, 9.0, 20.0, 30.0]
    assert trace.output_tokens.tolist() == [1, 3, 2, 4]
    said = dict(trace.notes.warnings)["YEAR_NOT_LOGGED"]
    assert "1 turn of the year" in said
    assert "cannot be applied" not in said
    zoned = TraceOptions(prompt_tokens=4, timezone="Europe/Berlin")
    told = dict(loaded(tmp_path, text, zoned).notes.warnings)["YEAR_NOT_LOGGED"]
    assert "time zone given cannot be applied" in told


def test_the_29th_of_february_exists_in_a_log_without_year(tmp_path: Path) -> None:
    text = received("02-28 23:59:59", "a") + received("02-29 00:00:01", "b")
    trace = loaded(tmp_path, text, TraceOptions(prompt_tokens=4, spread_quantised=False))
    assert trace.arrival_s.tolist() == [0.0, 2.0]
    assert trace.notes.rejected_rows == 0


def test_an_hour_back_is_the_end_of_summer_time_and_less_is_a_clock_set_back(
    tmp_path: Path,
) -> None:
    options = TraceOptions(prompt_tokens=4, spread_quantised=False)
    fold = received("10-25 02:59:50", "a") + received("10-25 02:00:10", "b")
    trace = loaded(tmp_path, fold, options)
    assert trace.arrival_s.tolist() == [0.0, 20.0]
    assert "DST_FOLD_INFERRED" in codes(trace)
    set_back = received("10-25 12:05:00", "a") + received("10-25 12:00:00", "b")
    trace = loaded(tmp_path, set_back, options)
    assert trace.arrival_s.tolist() == [0.0, 300.0]  # sorted by stamp, and said
    assert "300 s at line 2" in dict(trace.notes.warnings)["CLOCK_WENT_BACK"]
    assert trace.notes.out_of_order_rows == 1


def test_whole_seconds_are_spread_inside_their_second(tmp_path: Path) -> None:
    text = "".join(received(f"12-01 10:{i // 60:02d}:{i % 60:02d}", f"r{i}") for i in range(300))
    trace = loaded(tmp_path, text, TraceOptions(prompt_tokens=4))
    assert "QUANTISED_STAMPS_SPREAD" in codes(trace)
    assert np.unique(trace.arrival_s % 1.0).size > 250
    assert 298.0 < trace.duration_s < 300.0


def test_a_log_without_a_request_says_so(tmp_path: Path) -> None:
    text = "(APIServer pid=9) INFO 12-01 04:12:00 [api_server.py:1] vLLM version\n"
    with pytest.raises(TraceError, match="--enable-log-requests") as raised:
        loaded(tmp_path, text)
    assert raised.value.code == "NO_REQUESTS_LOGGED"


@pytest.mark.parametrize(("form", "end_s"), [("text", 9.0), ("json", 8.87)])
def test_a_real_engines_log_gives_the_requests_that_were_sent(form: str, end_s: float) -> None:
    path = REPOSITORY / "tests" / "golden" / "server_logs" / f"vllm-0.32.0-cpu-requests-{form}.log"
    trace = load_trace(path)
    # Six completions of these lengths, three whole chats (usage: 60, 34, 43 prompt tokens and
    # 12, 12, 8 of the answer), one streamed chat; one more was given up by its client.
    assert trace.prompt_tokens.tolist() == [20, 140, 200, 33, 150, 64, 60, 34, 43, 33]
    assert trace.output_tokens.tolist() == [5, 8, 3, 12, 1, 7, 12, 12, 8, 6]
    assert dict(trace.notes.dropped) == {"failed": 1}
    assert trace.notes.rejected_rows == 0
    assert trace.prefix_blocks is not None
    assert trace.prefix_blocks[1] == trace.prefix_blocks[2][:2]  # 130 ids in common
    assert trace.duration_s == pytest.approx(end_s, abs=1.0 if form == "text" else 0.01)
    stamped = form == "json"
    assert (trace.origin_utc is not None) is stamped
    assert ("QUANTISED_STAMPS_SPREAD" in codes(trace)) is not stamped
    assert "OUTPUT_FROM_DELTAS" in codes(trace)


def test_a_real_servers_default_log_has_neither_stamps_nor_lengths(shared_dir: Path) -> None:
    with pytest.raises(TraceError) as raised:
        load_trace(shared_dir / "samples" / "vllm-0.32.0-cpu-server.log", options=STATED)
    assert raised.value.code == "STAMPS_NOT_LOGGED"
