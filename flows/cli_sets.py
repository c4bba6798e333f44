"""The command line's part on parameter sets in service: render, sets list, show, promote."""

from typing import Annotated

import typer

from flows.cli_options import JsonOption

sets_app = typer.Typer(
    no_args_is_help=True, help="Registered parameter sets: list, show, promote, roll back."
)

NameArgument = Annotated[
    str, typer.Argument(metavar="MODEL.REGIME", help="For example llama-3-8b.peak.")
]


def render(
    source: Annotated[
        str,
        typer.Argument(metavar="SET.yaml", help="A set's file, or registry:MODEL.REGIME@champion."),
    ],
    render_as: Annotated[str, typer.Option("--as", help="args, env, compose or k8s.")] = "args",
    image: Annotated[
        str | None, typer.Option(help="Container image; default: vLLM's own of the set's version.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="Folder or hub name of the checkpoint, as the engine sees it."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Render a parameter set as what a deployment needs; warnings go to standard error."""
    from flows.commands.render import render_command

    code = render_command(source, render_as=render_as, image=image, model=model, as_json=as_json)
    raise typer.Exit(code)


@sets_app.command("list")
def sets_list(name: NameArgument, as_json: JsonOption = False) -> None:
    """List the registered versions and what points at them."""
    from flows.commands.sets import list_command

    raise typer.Exit(list_command(name, as_json=as_json))


@sets_app.command("show")
def sets_show(
    name: NameArgument,
    alias: Annotated[str | None, typer.Option(help="candidate or champion (the default).")] = None,
    version: Annotated[str | None, typer.Option(help="A version's number instead.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Print a version's YAML as it was registered; its SHA-256 is checked."""
    from flows.commands.sets import show_command

    raise typer.Exit(show_command(name, alias=alias, version=version, as_json=as_json))


@sets_app.command("promote")
def sets_promote(
    name: NameArgument,
    version: Annotated[str, typer.Argument(metavar="VERSION")],
    as_json: JsonOption = False,
) -> None:
    """Put a version in force: champion points at it."""
    from flows.commands.sets import promote_command

    raise typer.Exit(promote_command(name, version, as_json=as_json))


@sets_app.command("rollback")
def sets_rollback(
    name: NameArgument,
    to: Annotated[
        str | None, typer.Option(metavar="VERSION", help="Default: the champion before.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Put the champion before in force again."""
    from flows.commands.sets import rollback_command

    raise typer.Exit(rollback_command(name, to=to, as_json=as_json))
