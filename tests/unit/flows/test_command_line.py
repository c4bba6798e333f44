"""The command line: light to start, one clear error, results on standard output alone."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli import app, main
from flows.commands.bench import parse_slo
from flows.commands.tune import tune_command
from tasks.domain.errors import ConfigError
from tests.conftest import REPOSITORY

HEAVY = (
    "prefect",
    "mlflow",
    "pandas",
    "pyarrow",
    "numpy",
    "scipy",
    "httpx",
    "optuna",
    "matplotlib",
)


def test_help_imports_none_of_the_heavy_libraries() -> None:
    program = (
        "import sys, flows.cli\n"
        "from typer.testing import CliRunner\n"
        "result = CliRunner().invoke(flows.cli.app, ['--help'])\n"
        "assert result.exit_code == 0, result.output\n"
        f"print(sorted(set(sys.modules) & set({HEAVY!r})))\n"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=REPOSITORY, check=True
    )
    assert answer.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "command",
    ["tune", "nightly", "release", "plan", "parameters", "doctor", "bench", "switch", "ui"],
)
def test_every_command_explains_itself(command: str) -> None:
    result = CliRunner().invoke(app, [command, "--help"])
    assert result.exit_code == 0
    assert "Usage" in result.output


def test_our_own_errors_are_one_line_and_exit_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "study.yaml"
    path.write_text("name: [")
    monkeypatch.setattr(sys, "argv", ["retune", "tune", str(path)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error CONFIG_ERROR: ")
    assert "Traceback" not in captured.err


def test_an_offline_study_with_an_accuracy_gate_needs_lm_eval_before_any_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.commands.tune.find_spec", lambda name: None)
    study = REPOSITORY / "configs/studies/smoke.yaml"
    with pytest.raises(ConfigError, match="lm-eval is not installed") as caught:
        tune_command(study, offline=tmp_path / "home", as_json=True)
    assert caught.value.code == "EVALUATION_NOT_INSTALLED"
    assert not (tmp_path / "home" / "models").exists()


def test_a_trace_prints_its_profile_as_json(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    rows = [{"arrival_s": i * 0.5, "prompt_tokens": 10, "output_tokens": 5} for i in range(100)]
    path.write_text("\n".join(json.dumps(row) for row in rows))
    result = CliRunner().invoke(app, ["trace", "show", str(path), "--json"])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["profile"]["requests"] == 100
    assert document["profile"]["mean_rate_req_s"] == pytest.approx(2.0)


def test_the_schedulers_plug_in_is_found_where_the_command_says() -> None:
    result = CliRunner().invoke(app, ["live-scheduler", "--json"])
    assert result.exit_code == 0, result.output
    how = json.loads(result.stdout)
    module, name = how["argument"].removeprefix("--scheduler-cls ").split(".")
    source = (Path(how["PYTHONPATH"]) / f"{module}.py").read_text()
    assert f'"{name}"' in source


def test_slo_text_is_read_and_a_wrong_part_is_named() -> None:
    slo = parse_slo("ttft=1.0,tpot=0.03")
    assert (slo.ttft_s, slo.tpot_s, slo.e2e_s) == (1.0, 0.03, None)
    for wrong in ("ttft", "ttft=x", "ttft=-1", "p99=1", "ttft=nan", "ttft=inf"):
        with pytest.raises(ConfigError, match="is not understood"):
            parse_slo(wrong)
