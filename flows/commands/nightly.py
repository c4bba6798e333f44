"""``retune nightly``: does what is in force still hold on today's traffic."""

from pathlib import Path

from flows.environment import home
from flows.output import print_json, print_lines
from flows.prefect_server import prepare_prefect
from tasks.domain.nightly import NightOutcome

EXIT_CODES = {NightOutcome.KEEP: 0, NightOutcome.RETUNE: 1, NightOutcome.INCONCLUSIVE: 2}
WORST_FIRST = (NightOutcome.RETUNE, NightOutcome.INCONCLUSIVE, NightOutcome.KEEP)


def nightly_command(config: Path, *, regime: str | None, url: str | None, as_json: bool) -> int:
    """Run the night and print each regime's verdict; the worst of them is the exit code."""
    prepare_prefect(home())
    from flows.prefect_flows import nightly

    reports = nightly(config=str(config), regime=regime, url=url)
    if as_json:
        print_json(
            [
                {
                    "verdict": report.verdict,
                    "folder": str(report.folder),
                    "run_ids": [run.run_id for run in report.recording.runs],
                    "recording_error": report.recording.error,
                }
                for report in reports
            ]
        )
    else:
        for report in reports:
            verdict = report.verdict
            print_lines([f"{verdict.outcome.value}: {verdict.regime.value} ({report.folder})"])
            print_lines(f"- {reason}" for reason in verdict.reasons)
            if report.recording.error is not None:
                print_lines([f"- not recorded: {report.recording.error}"])
    outcomes = {report.verdict.outcome for report in reports}
    return EXIT_CODES[next(outcome for outcome in WORST_FIRST if outcome in outcomes)]
