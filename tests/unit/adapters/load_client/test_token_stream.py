import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.adapters.load_client.sse import EventFrames
from tasks.adapters.load_client.stream import TokenStream
from tasks.adapters.load_client.token_event import token_event
from tasks.adapters.load_client.verdict import stream_failure
from tests.fakes.stream_events import DONE, chat_event, completion_event, event, usage_event

WHOLE = (
    b": keep-alive\n\n"
    + completion_event("", counted=0)
    + completion_event(' "a\\\n', counted=1)
    + completion_event("héllo 😀", counted=4)
    + completion_event("\u2028", counted=5)
    + b'data: {"choices":[{"index":0,\ndata: "text":"two lines"}],\r\ndata: "usage":null}\r\n\r\n'
    + completion_event(".", counted=7, finish="length")
    + usage_event(5, 7)
    + DONE
)


def read(*pieces: bytes, at_ns: int = 1) -> TokenStream:
    stream = TokenStream()
    for piece in pieces:
        stream.feed(piece, at_ns)
    return stream


def state(stream: TokenStream) -> tuple[object, ...]:
    names = [name for name in TokenStream.__slots__ if not name.startswith("_")]
    return tuple(getattr(stream, name) for name in names)


@given(cuts=st.lists(st.integers(0, len(WHOLE)), max_size=12))
def test_a_stream_cut_anywhere_reads_the_same(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(WHOLE)]
    pieces = [WHOLE[a:b] for a, b in pairwise(edges)]
    whole = read(WHOLE)
    assert state(read(*pieces)) == state(whole)
    # Chunks: 1, then 4 - 1 = 3, then 1, then one without usage, then 7 - 6 = 1 token.
    assert list(whole.stamp_tokens) == [1, 3, 1, 1, 1]
    assert (whole.prompt_tokens, whole.completion_tokens, whole.done) == (5, 7, True)


@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b"\r"])
@given(cuts=st.lists(st.integers(0, 200), max_size=6))
def test_every_line_ending_gives_the_same_events_at_any_cut(ending: bytes, cuts: list[int]) -> None:
    lines = [b"\xef\xbb\xbfdata: a", b"data:b", b"", b": note", b"id: 7", b"data", b"data: c", b""]
    body = b"".join(line + ending for line in lines)
    edges = [0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]
    frames = EventFrames()
    events = [e for a, b in pairwise(edges) for e in frames.feed(body[a:b])]
    assert events == [b"a\nb", b"c"]


TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)


@settings(max_examples=300)
@given(text=TEXTS, counted=st.none() | st.integers(0, 10**9), escape=st.booleans())
def test_the_fast_check_agrees_with_json_on_every_text(
    text: str, counted: int | None, escape: bool
) -> None:
    data = completion_event(text, counted=counted)
    if escape:
        data = b"data: %s\n\n" % json.dumps(json.loads(data[6:]), separators=(",", ":")).encode()
    found = token_event(data)
    assert (found is not None) == bool(text)
    if found is not None:
        assert found.completion_tokens == counted
        assert found.prompt_tokens == (None if counted is None else 5)
    fast = read(completion_event("a", counted=0), data)
    slow = read(completion_event("a", counted=0), data[:9], data[9:])
    assert state(fast) == state(slow)


@pytest.mark.parametrize(
    "data",
    [
        completion_event("x", counted=2, finish="length"),
        completion_event("x").replace(b'"x"', b'"\\x"'),
        completion_event("x").replace(b'"created":', b'"created":0'),
        completion_event("x").replace(b'"golden"', b'"golden","error":"no"'),
        event({"error": {"message": "m"}}),
        completion_event("x", counted=2)[:-1],
        completion_event("x", counted=2) + completion_event("y", counted=3),
    ],
)
def test_the_fast_check_leaves_everything_else_to_json(data: bytes) -> None:
    assert token_event(data) is None


@pytest.mark.parametrize(
    "choice",
    [
        '"text":"a\\"\\n é","logprobs":null,"finish_reason":null,"stop_reason":null,'
        '"prompt_token_ids":null,"token_ids":null',
        '"delta":{"content":"x"},"logprobs":null,"finish_reason":null,"token_ids":null',
        '"delta":{"reasoning":"x"},"logprobs":null,"finish_reason":null,"token_ids":null',
    ],
)
@pytest.mark.parametrize("details", ["", ',"completion_tokens_details":null'])
def test_the_fast_check_knows_the_chunks_that_vllm_0_32_writes(choice: str, details: str) -> None:
    # Made with the protocol classes of vLLM 0.32.0.
    head = 'data: {"id":"c","object":"o","created":1,"model":"m","choices":[{"index":0,'
    usage = '"usage":{"prompt_tokens":1,"total_tokens":3,"completion_tokens":2'
    data = f"{head}{choice}}}],{usage}{details}}}}}\n\n".encode()
    found = token_event(data)
    assert found is not None
    assert (found.prompt_tokens, found.completion_tokens) == (1, 2)
    assert found.is_reasoning == ("reasoning" in choice)


def test_a_chunk_of_k_tokens_is_k_tokens_with_continuous_usage_and_one_without() -> None:
    counted = read(completion_event("ab", counted=2), completion_event("cde", counted=5))
    assert list(counted.stamp_tokens) == [2, 3]
    assert list(read(completion_event("ab"), completion_event("cde")).stamp_tokens) == [1, 1]


def test_usage_that_comes_only_with_the_last_chunk_is_the_total_not_its_tokens() -> None:
    stream = read(completion_event("a"), completion_event("b"), completion_event("c", counted=9))
    assert list(stream.stamp_tokens) == [1, 1, 1]
    assert stream.completion_tokens == 9


def test_tokens_of_empty_text_are_counted_with_the_next_text() -> None:
    # Half a character is held back by the server: 1 token without text, then 2 tokens of text.
    stream = read(
        completion_event("a", counted=1),
        completion_event("", counted=2),
        completion_event("é", counted=3),
    )
    assert list(stream.stamp_tokens) == [1, 2]


def test_held_back_text_without_a_new_token_moves_the_end_and_counts_nothing() -> None:
    stream = TokenStream()
    stream.feed(completion_event("a", counted=2), 10)
    stream.feed(completion_event("b", counted=2), 20)
    assert (stream.last_token_ns, list(stream.stamp_tokens)) == (20, [2])


def test_the_role_chunk_and_empty_deltas_are_no_token_and_a_tool_call_is_one() -> None:
    stream = TokenStream()
    stream.feed(chat_event({"role": "assistant", "content": ""}, counted=0), 10)
    stream.feed(chat_event({}), 20)
    stream.feed(chat_event({"tool_calls": [{"index": 0, "function": {"arguments": ""}}]}), 30)
    before = stream.first_token_ns
    assert before is None
    stream.feed(chat_event({"tool_calls": [{"index": 0, "function": {"name": "f"}}]}), 40)
    stream.feed(chat_event({"reasoning_content": "hm"}), 50)
    times = (stream.first_token_ns, stream.last_token_ns, stream.first_content_ns)
    assert times == (40, 50, None)


def test_the_fast_check_tells_reasoning_from_content() -> None:
    stream = TokenStream()
    for at_ns, field in enumerate(("reasoning", "reasoning", "content"), start=1):
        stream.feed(chat_event({field: "a"}), at_ns)
    assert (stream.first_token_ns, stream.first_content_ns) == (1, 3)


def test_cached_tokens_are_read_from_the_last_usage() -> None:
    value = {"prompt_tokens": 64, "completion_tokens": 1, "total_tokens": 65}
    details = {**value, "prompt_tokens_details": {"cached_tokens": 48}}
    assert read(event({"choices": [], "usage": details})).cached_tokens == 48
    assert read(event({"choices": [], "usage": value})).cached_tokens is None


@pytest.mark.parametrize(
    ("pieces", "lost", "code"),
    [
        ([completion_event("a"), event({"error": "boom"}), DONE], None, "STREAM_ERROR"),
        ([completion_event("a", finish="abort"), DONE], None, "STREAM_ERROR"),
        ([b"data: {half\n\n"], None, "STREAM_ERROR"),
        ([completion_event("", finish="stop"), DONE], None, "EMPTY_STREAM"),
        ([], None, "EMPTY_STREAM"),
        ([], "reset", "STREAM_TRUNCATED"),
        ([completion_event("a")], None, "STREAM_TRUNCATED"),
        ([completion_event("a"), DONE], None, None),
        ([completion_event("a", finish="stop")], "reset", None),
    ],
)
def test_the_verdict_on_a_stream(pieces: list[bytes], lost: str | None, code: str | None) -> None:
    failure = stream_failure(read(*pieces), lost=lost)
    assert (failure and failure[0]) == code


def test_a_last_event_without_its_blank_line_counts_when_the_body_ended_cleanly() -> None:
    stream = read(completion_event("a"), b"data: [DONE]")
    assert not stream.done
    stream.end(2)
    assert stream.done


def test_nothing_after_an_error_event_is_a_token() -> None:
    stream = read(completion_event("a"), event({"error": {"message": "m", "code": 500}}))
    stream.feed(completion_event("b"), 2)
    assert list(stream.stamp_tokens) == [1]
    assert stream.error is not None and stream.error.code == 500
