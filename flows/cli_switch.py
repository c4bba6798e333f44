"""The commands ``switch`` and ``live-scheduler``: a running engine moved without a restart."""

from pathlib import Path
from typing import Annotated

import typer

from flows.cli_options import JsonOption


def switch(
    source: Annotated[
        str,
        typer.Argument(metavar="SET.yaml", help="A set's file, or registry:MODEL.REGIME@champion."),
    ],
    url: Annotated[str, typer.Option(help="Base URL of the running engine.")],
    control: Annotated[
        Path | None,
        typer.Option(help="The engine's RETUNE_CONTROL_DIR; default: found by our own records."),
    ] = None,
    wait: Annotated[
        float, typer.Option(help="Seconds for running requests to drain to a lower cap.")
    ] = 120.0,
    accept: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD=FOUND",
            help="Go on though this field is not what the set needs, for example model=chat.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Move a running engine to a set, no restart: exit 0 all moved, 1 some need a restart.

    The set is the whole assignment: live values that it leaves open go back to those of the
    engine's start. An engine of another model or checkpoint is refused (exit 2).
    """
    from flows.commands.switch import switch_command

    code = switch_command(
        source, url=url, control=control, wait_s=wait, accepted=accept or (), as_json=as_json
    )
    raise typer.Exit(code)


def live_scheduler(as_json: JsonOption = False) -> None:
    """Print how an engine that somebody else starts loads the plug-in that `switch` needs."""
    from flows.commands.switch import live_scheduler_command

    raise typer.Exit(live_scheduler_command(as_json=as_json))
