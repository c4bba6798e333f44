import json
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tasks.adapters.lm_eval_harness import run_lm_eval as module
from tasks.adapters.lm_eval_harness.run_lm_eval import (
    has_task_file,
    last_error,
    run_lm_eval,
    tokenizer_sha256,
)
from tasks.domain.accuracy_run import AccuracyRun
from tasks.domain.endpoint import Endpoint
from tasks.domain.errors import ConfigError, EngineDiedError, EvaluationError

CONFIGS = Path(__file__).parents[4] / "configs" / "evaluation"
GIVE = """
import json, pathlib, sys
arguments = sys.argv[1:]
out = pathlib.Path(arguments[arguments.index("--out") + 1])
out.write_text(json.dumps({"answers": ANSWERS, "items_sha256": "i", "task_version": "1.0",
                           "n_shot": 0, "harness": " ".join(arguments)}))
"""


class Setting(NamedTuple):
    """Folders of one evaluation and the stand-in harness program."""

    tasks: Path
    tokenizer: Path
    work: Path
    program: Path


@pytest.fixture
def setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Setting:
    """Folders, a stand-in harness, and a server that is taken to give prompt logprobs."""
    made = Setting(tmp_path / "tasks", tmp_path / "tok", tmp_path / "work", tmp_path / "h.py")
    made.tasks.mkdir()
    made.tokenizer.mkdir()
    (made.tokenizer / "tokenizer.json").write_text("{}")
    monkeypatch.setattr(module, "PROGRAM", made.program)
    monkeypatch.setattr(module, "require_prompt_logprobs", lambda endpoint: None)
    return made


def evaluate(setting: Setting) -> AccuracyRun:
    return run_lm_eval(
        Endpoint(
            url="http://127.0.0.1:9", model="alias", owned=True, engine_version="0.32.0",
            max_model_len=512,
        ),
        task_dir=setting.tasks,
        task="everyday",
        tokenizer_dir=setting.tokenizer,
        limit=2,
        concurrency=3,
        work_dir=setting.work,
        python=Path(sys.executable),
    )  # fmt: skip


def give(setting: Setting, answers: list[dict[str, object]]) -> None:
    text = json.dumps(answers).replace("true", "True").replace("false", "False")
    setting.program.write_text(f"ANSWERS = {text}\n{GIVE}")


def test_answers_become_a_run_with_its_whole_protocol(setting: Setting) -> None:
    give(
        setting,
        [
            {"id": "a", "correct": True, "scores": [-1.0, -2.0]},
            {"id": "b", "correct": False, "scores": [-1.5, -1.0]},
        ],
    )
    run = evaluate(setting)
    assert run.item_ids == ("a", "b")
    assert run.item_correct == (True, False)
    assert run.choice_scores == ((-1.0, -2.0), (-1.5, -1.0))
    assert run.n_choices == 2
    protocol = run.protocol
    assert (protocol.task, protocol.task_version, protocol.n_shot) == ("everyday", "1.0", 0)
    assert (protocol.item_limit, protocol.concurrency) == (2, 3)
    assert protocol.engine == "0.32.0"
    assert protocol.tokenizer_sha256 == tokenizer_sha256(setting.tokenizer)


def test_the_harness_gets_the_tokenizers_path_and_never_the_alias(setting: Setting) -> None:
    (setting.tasks / "t.yaml").write_text("task: everyday\n")
    give(setting, [{"id": "a", "correct": True, "scores": [-1.0, -2.0]}])
    command = evaluate(setting).protocol.harness
    assert f"--tokenizer {setting.tokenizer.resolve()}" in command
    assert f"--task-dir {setting.tasks.resolve()}" in command
    assert "--max-length 512" in command and "--limit 2" in command


def test_a_task_that_is_not_in_the_folder_is_left_to_the_harness(setting: Setting) -> None:
    (setting.tasks / "t.yaml").write_text("task: everyday_hard\n")
    assert not has_task_file(setting.tasks, "everyday")
    give(setting, [{"id": "a", "correct": True, "scores": [-1.0, -2.0]}])
    assert "--task-dir" not in evaluate(setting).protocol.harness


def test_a_failure_while_the_engine_is_gone_is_the_engines(setting: Setting) -> None:
    setting.program.write_text("raise RuntimeError('Cannot connect to host')")
    with pytest.raises(EngineDiedError, match="stopped answering during everyday"):
        evaluate(setting)


def test_a_failure_while_the_engine_answers_is_the_evaluations(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_answers", lambda endpoint: True)
    setting.program.write_text("raise KeyError('no such task')")
    with pytest.raises(EvaluationError, match="status 1 on everyday: KeyError: 'no such task'"):
        evaluate(setting)


def test_the_last_exception_is_quoted_before_a_progress_bar_that_follows_it() -> None:
    log = (
        "KeyError: 'first'\n  File x\naiohttp.client_exceptions.ClientConnectorError: refused\n"
        "Requesting API: 0%|     | 0/32\n"
    )
    assert last_error(log) == "aiohttp.client_exceptions.ClientConnectorError: refused"
    assert last_error("one\nno task named mmlx\n 27%|##  | 4/16\n") == "no task named mmlx"
    assert last_error("") == "it wrote nothing"


def test_old_answers_are_never_taken_for_new_ones(setting: Setting) -> None:
    give(setting, [{"id": "a", "correct": True, "scores": [-1.0, -2.0]}])
    evaluate(setting)
    setting.program.write_text("pass")
    with pytest.raises(EvaluationError, match="left no answers"):
        evaluate(setting)


def test_items_with_different_numbers_of_choices_have_no_chance_level(setting: Setting) -> None:
    give(
        setting,
        [
            {"id": "a", "correct": True, "scores": [-1.0, -2.0]},
            {"id": "b", "correct": True, "scores": [-1.0, -2.0, -3.0]},
        ],
    )
    with pytest.raises(EvaluationError, match=r"items with \[2, 3\] choices"):
        evaluate(setting)


def test_a_folder_without_a_tokenizer_is_refused_before_anything_runs(setting: Setting) -> None:
    (setting.tokenizer / "tokenizer.json").unlink()
    with pytest.raises(ConfigError, match=r"no tokenizer\.json"):
        evaluate(setting)


def test_a_changed_chat_template_changes_the_tokenizers_hash(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    before = tokenizer_sha256(tmp_path)
    (tmp_path / "chat_template.jinja").write_text("{{ messages }}")
    assert tokenizer_sha256(tmp_path) != before


def test_shipped_items_have_four_different_choices_and_unique_ids() -> None:
    items = [json.loads(line) for line in (CONFIGS / "items.jsonl").read_text().splitlines()]
    assert len(items) >= 120
    assert len({item["id"] for item in items}) == len(items)
    assert len({item["question"] for item in items}) == len(items)
    for item in items:
        assert len(set(item["choices"])) == 4
        assert item["answer"] in range(4)
        assert item["id"].startswith(item["topic"])
        assert len(item["question"].split()) < 25


def test_right_answers_are_spread_over_the_positions() -> None:
    items = [json.loads(line) for line in (CONFIGS / "items.jsonl").read_text().splitlines()]
    shares = [sum(item["answer"] == k for item in items) / len(items) for k in range(4)]
    assert min(shares) > 0.15


def test_the_shipped_task_is_found_by_its_name() -> None:
    assert has_task_file(CONFIGS, "retune_everyday")
