"""Asks lm-eval one task through a completions endpoint and writes the answers as JSON.

A program of its own: it runs in a child process of the controller's environment, imports lm_eval
and tokenizers and nothing of this product. It differs from ``python -m lm_eval`` in two ways: the
tokenizer is read from tokenizer.json (the command needs the whole of transformers for that), and
a task that lies in the task folder is found without reading the thousands that lm-eval ships.
"""

import argparse
import hashlib
import json
import os
import threading
import time
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

from lm_eval import simple_evaluate
from lm_eval.models.openai_completions import LocalCompletionsAPI
from lm_eval.tasks import TaskManager
from tokenizers import Tokenizer


class FileTokenizerCompletions(LocalCompletionsAPI):  # type: ignore[misc]
    """lm-eval's completions client with a tokenizer out of a tokenizer.json."""

    def __init__(self, *, tokenizer_dir: Path, add_bos: bool, **options: object) -> None:
        """Build the client without a tokenizer, then give it ours."""
        tokenizer = Tokenizer.from_file(str(tokenizer_dir / "tokenizer.json"))
        bos, eos = special_tokens(tokenizer_dir)
        first = tokenizer.token_to_id(bos or eos or "")
        super().__init__(
            tokenizer_backend="None", eos_string=eos, custom_prefix_token_id=first, **options
        )
        self.tokenizer = tokenizer
        self.tokenizer_backend = "tokenizers"
        self.tokenized_requests = True
        self._bos = [first] if add_bos and first is not None else []
        self._eos_id = tokenizer.token_to_id(eos) if eos else first

    @property
    def eot_token_id(self) -> int | None:
        """Return the id of the end-of-text token."""
        return self._eos_id

    def tok_encode(self, string: str, **_: object) -> list[int]:
        """Return the ids of a text, after the beginning-of-text token where one is wanted."""
        ids: list[int] = self.tokenizer.encode(string, add_special_tokens=False).ids
        return self._bos + ids

    def decode_batch(self, tokens: list[list[int]]) -> list[str]:
        """Return the texts of lists of ids."""
        texts: list[str] = self.tokenizer.decode_batch(tokens, skip_special_tokens=False)
        return texts


def special_tokens(tokenizer_dir: Path) -> tuple[str | None, str | None]:
    """Return the beginning- and end-of-text tokens that tokenizer_config.json names."""
    path = tokenizer_dir / "tokenizer_config.json"
    if not path.is_file():
        return None, None
    config = json.loads(path.read_text(encoding="utf-8"))
    names = []
    for key in ("bos_token", "eos_token"):
        token = config.get(key)
        names.append(token.get("content") if isinstance(token, dict) else token)
    return names[0], names[1]


def answers_of(samples: dict[str, list[dict[str, object]]]) -> list[dict[str, object]]:
    """Return id, correctness and scores of every item, tasks and items in a fixed order."""
    answers: list[dict[str, object]] = []
    for task in sorted(samples):
        for sample in sorted(samples[task], key=lambda s: int(str(s["doc_id"]))):
            if "acc" not in sample:
                raise SystemExit(f"task {task} has no metric acc; give a multiple-choice task")
            doc = sample["doc"]
            own = doc.get("id") if isinstance(doc, dict) else None
            scores = sample["filtered_resps"]
            if not isinstance(scores, Iterable):
                raise SystemExit(f"task {task} has no scores for item {sample['doc_id']}")
            answers.append(
                {
                    "id": str(own) if own is not None else f"{task}/{sample['doc_id']}",
                    "correct": bool(sample["acc"]),
                    "scores": [float(score[0]) for score in scores],
                    "asked": [sample[f"{part}_hash"] for part in ("doc", "prompt", "target")],
                }
            )
    return answers


def evaluate(args: argparse.Namespace) -> dict[str, object]:
    """Run the task and return its answers with what the protocol needs to know."""
    model = FileTokenizerCompletions(
        tokenizer_dir=args.tokenizer,
        add_bos=args.add_bos,
        model=args.model,
        base_url=f"{args.url}/v1/completions",
        num_concurrent=args.concurrency,
        max_length=args.max_length,
        max_retries=args.retries,
        timeout=args.timeout,
        batch_size=1,
    )
    ours = args.task_dir is not None
    results = simple_evaluate(
        model=model,
        tasks=[args.task],
        limit=args.limit,
        batch_size=1,
        bootstrap_iters=0,
        task_manager=TaskManager(include_path=args.task_dir, include_defaults=not ours),
    )
    if results is None:
        raise SystemExit("lm-eval returned no results")
    answers = answers_of(results["samples"])
    digest = hashlib.sha256(json.dumps([a.pop("asked") for a in answers]).encode())
    versions, shots = results["versions"], results["n-shot"]
    return {
        "answers": answers,
        "items_sha256": digest.hexdigest(),
        "task_version": str(versions.get(args.task, sorted({str(v) for v in versions.values()}))),
        "n_shot": int(shots.get(args.task, max(shots.values()))),
        "harness": f"lm_eval {version('lm_eval')}",
    }


def end_with_parent() -> None:
    """End this process when the controller is gone, however it went."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(3)

    threading.Thread(target=watch, daemon=True).start()


def main() -> None:
    """Parse the command line, evaluate, and write the answers all at once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--task", required=True)
    parser.add_argument("--task-dir", type=Path)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--concurrency", type=int, default=4)
    parser.add_argument("--max-length", type=int, default=2048)
    parser.add_argument("--retries", type=int, default=3)
    parser.add_argument("--timeout", type=int, default=300)
    parser.add_argument("--add-bos", action="store_true")
    args = parser.parse_args()
    end_with_parent()
    result = evaluate(args)
    partial = args.out.with_name(args.out.name + ".partial")
    partial.write_text(json.dumps(result), encoding="utf-8")
    partial.rename(args.out)


if __name__ == "__main__":
    main()
