"""The commands ``retune trace show`` and ``retune trace drift``: options and their help."""

from pathlib import Path
from typing import Annotated

import typer

from flows.cli_options import WINDOW_HELP, JsonOption

trace_app = typer.Typer(no_args_is_help=True, help="Look at traffic traces.")

TimezoneOption = Annotated[
    str | None, typer.Option(help="IANA zone of stamps that name none; default: UTC, and said.")
]
PromptTokensOption = Annotated[
    int | None, typer.Option(min=1, help="What a request counts as whose prompt is not logged.")
]
OutputTokensOption = Annotated[
    int | None, typer.Option(min=1, help="What a request counts as whose output is not logged.")
]


@trace_app.command("show")
def trace_show(
    file: Path,
    window: Annotated[str | None, typer.Option(help=WINDOW_HELP)] = None,
    timezone: TimezoneOption = None,
    prompt_tokens: PromptTokensOption = None,
    output_tokens: OutputTokensOption = None,
    as_json: JsonOption = False,
) -> None:
    """Profile a trace file: rate, burstiness, lengths, reuse, bad rows."""
    from flows.commands.trace import show_command, trace_options

    options = trace_options(
        timezone=timezone, prompt_tokens=prompt_tokens, output_tokens=output_tokens
    )
    raise typer.Exit(show_command(file, window=window, options=options, as_json=as_json))


@trace_app.command("drift")
def trace_drift(
    reference: Path,
    new: Path,
    window: Annotated[str | None, typer.Option(help=f"Of the reference: {WINDOW_HELP}")] = None,
    new_window: Annotated[str | None, typer.Option(help=f"Of the new: {WINDOW_HELP}")] = None,
    timezone: TimezoneOption = None,
    prompt_tokens: PromptTokensOption = None,
    output_tokens: OutputTokensOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare two traces: exit 0 when nothing drifted, 1 when something did."""
    from flows.commands.trace import drift_command, trace_options

    options = trace_options(
        timezone=timezone, prompt_tokens=prompt_tokens, output_tokens=output_tokens
    )
    code = drift_command(
        reference, new, windows=(window, new_window), options=options, as_json=as_json
    )
    raise typer.Exit(code)
