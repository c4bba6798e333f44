"""The real lm-eval in its child process against a server whose log-probabilities are known."""

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from tasks.adapters.lm_eval_harness.run_lm_eval import run_lm_eval
from tasks.domain.accuracy_run import AccuracyRun
from tasks.domain.endpoint import Endpoint
from tasks.domain.errors import EvaluationError

WORDS = ("<end>", "ice", "is", "cold", "hot", "green", "loud", "fire", "very")
# One token's log-probability is minus its index: a choice scores the sum over its own tokens.
ITEMS = (
    {"id": "ice", "question": "ice is", "choices": ["hot", "cold", "green", "loud"], "answer": 1},
    {"id": "fire", "question": "fire is", "choices": ["loud", "green", "very cold", "hot"],
     "answer": 2},
)  # fmt: skip


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    echo = True

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        prompt = body["prompt"]
        rows = prompt if isinstance(prompt[0], list) else [[1] * 5]
        choices = []
        for index, ids in enumerate(rows):
            scores = [None, *(-float(i) for i in ids[1:]), -1.0] if self.echo else [-1.0]
            tops = [None if s is None else {"x": s} for s in scores]
            logprobs = {"token_logprobs": scores, "top_logprobs": tops}
            choices.append({"index": index, "text": "", "logprobs": logprobs})
        self._send({"choices": choices, "usage": {"prompt_tokens": len(rows[0])}})

    def do_GET(self) -> None:
        self._send({"data": []})

    def _send(self, value: object) -> None:
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        return


class WithoutEcho(Handler):
    echo = False


@pytest.fixture
def task_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "task"
    folder.mkdir()
    (folder / "items.jsonl").write_text("".join(json.dumps(item) + "\n" for item in ITEMS))
    shipped = Path(__file__).parents[2] / "configs" / "evaluation" / "retune_everyday.yaml"
    task = yaml.safe_load(shipped.read_text())
    (folder / "task.yaml").write_text(yaml.safe_dump(task, sort_keys=False))
    tokenizer = Tokenizer(WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="<end>"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"eos_token": "<end>"}')
    return folder


def serve(handler: type[Handler]) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def url() -> Iterator[str]:
    yield from serve(Handler)


@pytest.fixture
def url_without_echo() -> Iterator[str]:
    yield from serve(WithoutEcho)


def evaluate(url: str, task_dir: Path, *, task: str = "retune_everyday") -> AccuracyRun:
    return run_lm_eval(
        Endpoint(url=url, model="served", owned=False),
        task_dir=task_dir,
        task=task,
        tokenizer_dir=task_dir,
        limit=None,
        concurrency=2,
        work_dir=task_dir.parent / "work",
        python=Path(sys.executable),
    )


def test_scores_are_summed_over_the_choices_own_tokens(url: str, task_dir: Path) -> None:
    run = evaluate(url, task_dir)
    assert run.item_ids == ("ice", "fire")
    assert run.choice_scores == ((-4.0, -3.0, -5.0, -6.0), (-6.0, -5.0, -11.0, -4.0))
    assert run.item_correct == (True, False)  # "cold" wins the first, "hot" (wrong) the second
    assert run.n_choices == 4
    assert run.protocol.task_version == "1.0"
    assert run.protocol.harness.startswith("lm_eval 0.4")


def test_a_server_without_prompt_logprobs_is_found_before_lm_eval_starts(
    url_without_echo: str, task_dir: Path
) -> None:
    with pytest.raises(EvaluationError) as caught:
        evaluate(url_without_echo, task_dir)
    assert caught.value.code == "NO_PROMPT_LOGPROBS"
    assert not (task_dir.parent / "work").exists()
