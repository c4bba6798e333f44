"""``retune release``: the gate before a release, its answer as the exit code."""

from pathlib import Path

from flows.environment import home
from flows.output import print_json, print_lines
from flows.prefect_server import prepare_prefect


def release_command(study: Path, *, url: str | None, as_json: bool) -> int:
    """Run the gate and print every gate's answer; 0 go, 1 no-go, 2 could not tell."""
    prepare_prefect(home())
    from flows.prefect_flows import release
    from flows.release_run import ReleaseReport

    state = release(study=str(study), url=url, return_state=True)
    report = state.result(raise_on_failure=False)
    if isinstance(report, BaseException):
        raise report
    if not isinstance(report, ReleaseReport):
        raise TypeError(f"the release flow returned {type(report).__name__}, not its report")
    verdict = report.verdict
    if as_json:
        print_json(
            {
                "answer": verdict.answer.name,
                "exit_code": int(verdict.answer),
                "verdict": verdict,
                "folder": str(report.folder),
                "run_ids": [run.run_id for run in report.recording.runs],
                "recording_error": report.recording.error,
            }
        )
    else:
        print_lines([f"{verdict.answer.name}: set {verdict.parameter_set} ({report.folder})"])
        print_lines(f"- {r.gate}: {r.answer.name}: {r.sentence}" for r in verdict.reasons)
        if report.recording.error is not None:
            print_lines([f"- not recorded: {report.recording.error}"])
    return int(verdict.answer)
