"""Options that several commands share."""

from typing import Annotated

import typer

JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]

WINDOW_HELP = "START:END in seconds from the trace's start; a ServeGen folder needs one."
