"""The command line ``retune``; every command imports what it needs only when it runs."""

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from flows.cli_bench import bench, bench_import
from flows.cli_options import JsonOption
from flows.cli_sets import render, sets_app
from flows.cli_switch import live_scheduler, switch
from flows.cli_trace import trace_app
from tasks.domain.errors import TuningError

app = typer.Typer(
    name="retune",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Scheduled tuning experiments for vLLM serving: measure, look, change, verify.",
)
app.add_typer(trace_app, name="trace")
app.command()(bench)
app.command("bench-import")(bench_import)
app.add_typer(sets_app, name="sets")
app.command()(render)
app.command()(switch)
app.command("live-scheduler")(live_scheduler)

ERROR_EXIT = 2

StudyArgument = Annotated[Path, typer.Argument(metavar="STUDY.yaml", help="The study's file.")]


@app.command()
def tune(
    study: StudyArgument,
    offline: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Without Prefect and MLflow, everything below DIR; `retune record DIR` follows.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Run a study: quantize, deploy, benchmark, evaluate, profile, decide."""
    from flows.commands.tune import tune_command

    raise typer.Exit(tune_command(study, offline=offline, as_json=as_json))


@app.command()
def search(
    study: StudyArgument,
    offline: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Everything below DIR instead of the home.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Find the live knobs of a study's searched arms; `tune` confirms them, nothing done twice."""
    from flows.commands.search import search_command

    raise typer.Exit(search_command(study, offline=offline, as_json=as_json))


@app.command()
def nightly(
    config: Annotated[Path, typer.Argument(metavar="NIGHTLY.yaml")] = Path("configs/nightly.yaml"),
    regime: Annotated[
        str | None, typer.Option(help="Only this regime (peak, off_peak or failover).")
    ] = None,
    url: Annotated[
        str | None, typer.Option(help="Measure on this running engine instead of starting one.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Hold the parameter sets in force against fresh traffic: exit 0 KEEP, 1 not, 2 cannot tell."""
    from flows.commands.nightly import nightly_command

    raise typer.Exit(nightly_command(config, regime=regime, url=url, as_json=as_json))


@app.command()
def release(
    study: StudyArgument,
    url: Annotated[
        str | None, typer.Option(help="Gate this running engine instead of starting one.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Gate a release of the study's parameter set: exit 0 go, 1 no-go, 2 could not tell."""
    from flows.commands.release import release_command

    raise typer.Exit(release_command(study, url=url, as_json=as_json))


@app.command()
def plan(study: StudyArgument, as_json: JsonOption = False) -> None:
    """Plan a study without an engine: memory, roofline, infeasible arms, the checklist."""
    from flows.commands.plan import plan_command

    raise typer.Exit(plan_command(study, as_json=as_json))


@app.command()
def parameters(
    engine: Annotated[
        str, typer.Option(help="'installed', or a version such as vllm==0.24.0.")
    ] = "installed",
    as_json: JsonOption = False,
) -> None:
    """Print the catalogue of engine parameters for one engine version."""
    from flows.commands.parameters import parameters_command

    raise typer.Exit(parameters_command(engine, as_json=as_json))


@app.command()
def doctor(as_json: JsonOption = False) -> None:
    """Say what this host has and lacks, each with the fix; exit 1 if a needed thing is missing."""
    from flows.commands.doctor import doctor_command

    raise typer.Exit(doctor_command(as_json=as_json))


@app.command("search-replay")
def search_replay(
    table: Annotated[Path, typer.Argument(metavar="TABLE.json.gz", help="A measured table.")],
    policy: Annotated[str, typer.Option(help="ours, tpe, gp, random or grid.")] = "ours",
    seeds: Annotated[int, typer.Option(help="How many seeds to replay.")] = 20,
    slo: Annotated[
        str | None, typer.Option(help="Limits in seconds, for example ttft=1.0,tpot=0.03.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Replay a search policy offline on a measured table."""
    from flows.commands.search_replay import search_replay_command

    code = search_replay_command(table, policy=policy, seeds=seeds, slo=slo, as_json=as_json)
    raise typer.Exit(code)


@app.command()
def record(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER", help="A run's evidence folder, or a home with several of them."
        ),
    ],
    as_json: JsonOption = False,
) -> None:
    """Record a run's evidence in MLflow: the same runs once, however often it is called."""
    from flows.commands.record import record_command

    raise typer.Exit(record_command(folder, as_json=as_json))


@app.command()
def ui(
    port: Annotated[int, typer.Option(help="Port on loopback.")] = 5000,
    url_only: Annotated[bool, typer.Option(help="Print the address and start nothing.")] = False,
) -> None:
    """Serve MLflow on loopback and say where the newest study's runs are."""
    from flows.commands.ui import ui_command

    raise typer.Exit(ui_command(port=port, url_only=url_only))


def main() -> None:
    """Run the command line; our own errors become one message and exit code 2.

    SIGTERM ends the process as an exit does: without that, what is registered for the exit (the
    embedded Prefect server's end) would not run.
    """
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        app()
    except TuningError as error:
        typer.echo(f"error {error.code}: {error}", err=True)
        sys.exit(ERROR_EXIT)
    except KeyboardInterrupt:
        typer.echo(
            "interrupted; what was measured is kept, run the same command to go on", err=True
        )
        sys.exit(130)


if __name__ == "__main__":
    main()
