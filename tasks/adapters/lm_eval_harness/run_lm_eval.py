"""Runs the lm-eval harness against an endpoint in a child process and reads its answers."""

import hashlib
import json
import os
import re
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

from tasks.adapters.lm_eval_harness.prompt_logprobs import request_headers, require_prompt_logprobs
from tasks.domain.accuracy_run import AccuracyRun, Protocol
from tasks.domain.endpoint import Endpoint
from tasks.domain.errors import ConfigError, EngineDiedError, EvaluationError, StorageError

PROGRAM = Path(__file__).with_name("harness_program.py")
ANSWERS, LOG = "answers.json", "lm-eval.log"
TIMEOUT_S = 4 * 3600.0
GRACE_S = 5.0
SAMPLING = "loglikelihood of each choice, temperature 0"
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "SSL_CERT_FILE", "HTTPS_PROXY", "NO_PROXY")
_ERROR_LINE = re.compile(r"^(?:[a-z_][\w.]*\.)?[A-Z]\w*(?:Error|Exception|Exit)\b")
_OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    """One evaluation: where, what and how, with the folder for its files."""

    endpoint: Endpoint
    task_dir: Path
    task: str
    tokenizer_dir: Path
    limit: int | None
    concurrency: int
    work_dir: Path
    python: Path
    add_bos: bool


def run_lm_eval(
    endpoint: Endpoint,
    *,
    task_dir: Path,
    task: str,
    tokenizer_dir: Path,
    limit: int | None,
    concurrency: int,
    work_dir: Path,
    python: Path,
    add_bos: bool = False,
) -> AccuracyRun:
    """Return the answers of the served model to a multiple-choice task.

    A task whose file lies in ``task_dir`` is read from there; any other name is looked up among
    lm-eval's own, whose data must lie in the local Hugging Face cache. ``tokenizer_dir`` is a
    path, never the served alias, and should be the same for every arm.

    Raises:
        EvaluationError: NO_PROMPT_LOGPROBS, or lm-eval failed, with its cause.
        EngineDiedError: if the engine no longer answers. ConfigError: if a file is missing.
        StorageError: if the disk is full.
    """
    question = _Question(
        endpoint=endpoint, task_dir=task_dir, task=task, tokenizer_dir=tokenizer_dir, limit=limit,
        concurrency=concurrency, work_dir=work_dir, python=python, add_bos=add_bos,
    )  # fmt: skip
    if not (tokenizer_dir / "tokenizer.json").is_file():
        raise ConfigError(f"{tokenizer_dir} has no tokenizer.json; give the checkpoint's folder")
    require_prompt_logprobs(endpoint)
    work_dir.mkdir(parents=True, exist_ok=True)
    (work_dir / ANSWERS).unlink(missing_ok=True)
    began = time.monotonic()
    status = _run_to_the_end(question)
    if status != 0:
        _raise_failure(question, status)
    return read_answers(question, seconds=time.monotonic() - began)


def read_answers(question: _Question, *, seconds: float) -> AccuracyRun:
    """Return the run out of the answers that the harness program wrote.

    Raises:
        EvaluationError: if there are no answers, or items with different numbers of choices.
    """
    path = question.work_dir / ANSWERS
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError) as error:
        raise EvaluationError(f"lm-eval left no answers in {path}: {error}; see {LOG}") from error
    answers = found["answers"]
    sizes = {len(answer["scores"]) for answer in answers}
    if len(sizes) != 1 or sizes <= {0, 1}:
        raise EvaluationError(
            f"task {question.task} has items with {sorted(sizes)} choices; chance is known only "
            "if all have the same number, at least two; give such a task"
        )
    return AccuracyRun(
        item_ids=tuple(str(answer["id"]) for answer in answers),
        item_correct=tuple(bool(answer["correct"]) for answer in answers),
        choice_scores=tuple(tuple(map(float, answer["scores"])) for answer in answers),
        n_choices=sizes.pop(),
        protocol=Protocol(
            task=question.task,
            task_version=str(found["task_version"]),
            n_shot=int(found["n_shot"]),
            add_bos=question.add_bos,
            chat_template_sha256=None,
            tokenizer_sha256=tokenizer_sha256(question.tokenizer_dir),
            items_sha256=str(found["items_sha256"]),
            sampling=SAMPLING,
            endpoint_kind="completions",
            item_limit=question.limit,
            concurrency=question.concurrency,
            harness=str(found["harness"]),
            engine=question.endpoint.engine_version,
        ),
        seconds=seconds,
    )


def tokenizer_sha256(folder: Path) -> str:
    """Return one hash of the tokenizer's files, the chat template included."""
    digest = hashlib.sha256()
    for name in _TOKENIZER_FILES:
        if (folder / name).is_file():
            digest.update(name.encode() + b"\0" + (folder / name).read_bytes() + b"\0")
    return digest.hexdigest()


def has_task_file(task_dir: Path, task: str) -> bool:
    """Whether a YAML file directly in the folder names the task."""
    wanted = f"task: {task}"
    return any(
        wanted in path.read_text(encoding="utf-8").splitlines() for path in task_dir.glob("*.yaml")
    )


def last_error(log: str) -> str:
    """Return the last line of a log that names an exception, else the last but progress bars."""
    lines = [line.strip() for line in log.splitlines() if line.strip() and "%|" not in line]
    errors = [line for line in lines if _ERROR_LINE.match(line)]
    return (errors or lines or ["it wrote nothing"])[-1]


def _command(question: _Question) -> list[str]:
    command = [
        str(question.python), "-I", "-u", str(PROGRAM),
        "--url", question.endpoint.url,
        "--model", question.endpoint.model,
        "--task", question.task,
        "--tokenizer", str(question.tokenizer_dir.resolve()),
        "--out", str((question.work_dir / ANSWERS).resolve()),
        "--concurrency", str(question.concurrency),
        "--max-length", str(question.endpoint.max_model_len or 2048),
    ]  # fmt: skip
    if has_task_file(question.task_dir, question.task):
        command += ["--task-dir", str(question.task_dir.resolve())]
    if question.limit is not None:
        command += ["--limit", str(question.limit)]
    return [*command, "--add-bos"] if question.add_bos else command


def _environment(question: _Question) -> dict[str, str]:
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    if has_task_file(question.task_dir, question.task):
        kept["HF_HOME"] = str((question.work_dir / "hf").resolve())
    elif "HF_HOME" in os.environ:
        kept["HF_HOME"] = os.environ["HF_HOME"]
    key = question.endpoint.api_key_env
    if key is not None and key in os.environ:
        kept["OPENAI_API_KEY"] = os.environ[key]
    return {**kept, **_OFFLINE}


def _run_to_the_end(question: _Question) -> int:
    with (question.work_dir / LOG).open("wb") as log:
        try:
            process = subprocess.Popen(
                _command(question),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=question.task_dir,  # the task names its data relative to its own folder
                env=_environment(question),
                start_new_session=True,
            )
        except OSError as error:
            raise EvaluationError(
                f"lm-eval's interpreter {question.python} cannot be started: {error}"
            ) from error
    try:
        return process.wait(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise EvaluationError(
            f"{question.task} took more than {TIMEOUT_S / 3600:.0f} hours; ask fewer items"
        ) from error
    finally:
        _end_tree(process)


def _end_tree(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    try:
        root = psutil.Process(process.pid)
        family = [*root.children(recursive=True), root]
    except psutil.NoSuchProcess:
        family = []
    for member in family:
        if member.is_running():
            member.terminate()
    _, alive = psutil.wait_procs(family, timeout=GRACE_S)
    for member in alive:
        if member.is_running():
            member.kill()
    process.wait()


def _raise_failure(question: _Question, status: int) -> None:
    log = question.work_dir / LOG
    text = log.read_text(encoding="utf-8", errors="replace").replace("\r", "\n")
    last = last_error(text)
    if "No space left on device" in text:
        raise StorageError(f"lm-eval could not write below {question.work_dir}: {last}; free space")
    if not _answers(question.endpoint):
        raise EngineDiedError(
            f"the engine at {question.endpoint.url} stopped answering during {question.task}; "
            f"lm-eval said: {last}; see the engine's log"
        )
    raise EvaluationError(f"lm-eval ended with status {status} on {question.task}: {last}; {log}")


def _answers(endpoint: Endpoint) -> bool:
    try:
        url = f"{endpoint.url}/v1/models"
        return httpx.get(url, headers=request_headers(endpoint), timeout=10.0).is_success
    except httpx.HTTPError:
        return False
