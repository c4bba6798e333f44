"""``retune render``: a parameter set as arguments, environment, compose file or manifests."""

import datetime as dt
import hashlib
from enum import StrEnum

import typer

from flows.environment import home
from flows.output import print_json
from flows.set_source import SetSource, read_source
from tasks.adapters.config_files.writing import yaml_documents
from tasks.domain.errors import ConfigError
from tasks.domain.manifests import compose_document, kubernetes_objects
from tasks.domain.rendering import (
    Deployment,
    argument_line,
    arguments,
    default_model_path,
    environment,
    environment_file,
    provenance,
    refuse_unknown_values,
)


class RenderFormat(StrEnum):
    """What a set is rendered as."""

    ARGS = "args"
    ENV = "env"
    COMPOSE = "compose"
    K8S = "k8s"


def render_command(
    source: str,
    *,
    render_as: str,
    image: str | None,
    model: str | None,
    as_json: bool,
) -> int:
    """Print the rendered set; what a person should know goes to standard error."""
    wanted = _format(render_as)
    found = read_source(source, home())
    deployment = Deployment(
        parameter_set=found.parameter_set,
        model=model or default_model_path(found.parameter_set),
        image=image,
        sha256=hashlib.sha256(found.text.encode()).hexdigest(),
    )
    warnings = [*refuse_unknown_values(deployment), *_doubts(found, deployment, named=model)]
    text = _rendered(deployment, wanted)
    for warning in warnings:
        typer.echo(f"warning: {warning}", err=True)
    if as_json:
        print_json(
            {
                "as": wanted.value,
                "arguments": list(arguments(deployment)),
                "environment": dict(environment(deployment)),
                "provenance": dict(provenance(deployment)),
                "warnings": warnings,
                "text": text,
            }
        )
        return 0
    if wanted is RenderFormat.ARGS:  # standard output is the arguments alone, for a command line
        for name, value in provenance(deployment):
            typer.echo(f"# {name}: {value}", err=True)
    typer.echo(text, nl=not text.endswith("\n"))
    return 0


def _format(text: str) -> RenderFormat:
    try:
        return RenderFormat(text)
    except ValueError as error:
        known = ", ".join(item.value for item in RenderFormat)
        raise ConfigError(f"--as {text!r} is not known; needed one of {known}") from error


def _rendered(deployment: Deployment, render_as: RenderFormat) -> str:
    if render_as is RenderFormat.ARGS:
        return argument_line(deployment)
    if render_as is RenderFormat.ENV:
        return environment_file(deployment)
    head = [f"{name}: {value}" for name, value in provenance(deployment)]
    if render_as is RenderFormat.COMPOSE:
        return yaml_documents([compose_document(deployment)], comments=head)
    return yaml_documents(kubernetes_objects(deployment), comments=head)


def _doubts(found: SetSource, deployment: Deployment, *, named: str | None) -> list[str]:
    """Return what a person should know before this set is served."""
    origin = found.parameter_set.provenance
    doubts: list[str] = []
    today = dt.datetime.now(dt.UTC).date().isoformat()
    if origin.expires_on is not None and origin.expires_on < today:
        doubts.append(
            f"the set expired on {origin.expires_on}: traffic and engine may have changed since; "
            "run its study again"
        )
    if origin.synthetic:
        doubts.append("the set was measured on dummy weights: its accuracy is unknown")
    if origin.engine is None:
        doubts.append(
            "the set names no engine and no values that the model itself needs; rendered for "
            f"{deployment.flavour.value}: check the arguments"
        )
    cores = dict(environment(deployment)).get("VLLM_CPU_OMP_THREADS_BIND")
    if cores is not None:
        doubts.append(
            f"threads are bound to cores {cores} as on the measured host; change "
            "VLLM_CPU_OMP_THREADS_BIND where the engine is given others"
        )
    if named is None:
        doubts.append(f"no --model was given; {deployment.model} is expected to hold the weights")
    return doubts
