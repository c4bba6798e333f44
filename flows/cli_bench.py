"""The commands ``retune bench`` and ``retune bench-import``: options and their help."""

from pathlib import Path
from typing import Annotated

import typer

from flows.cli_options import WINDOW_HELP, JsonOption


def bench(
    url: Annotated[
        str, typer.Option(help="Base URL of the endpoint, for example http://host:8000.")
    ],
    traffic: Annotated[
        Path,
        typer.Option(help="A traffic YAML or a trace file; its gaps above 10 min are compressed."),
    ],
    window: Annotated[str | None, typer.Option(help=f"Of a trace file: {WINDOW_HELP}")] = None,
    model: Annotated[str | None, typer.Option(help="Served name; default: the only one.")] = None,
    rate: Annotated[
        float | None, typer.Option(help="Offered rate in req/s; default: the traffic's own.")
    ] = None,
    duration: Annotated[float, typer.Option(help="Seconds of load, of each load if several.")] = 60,
    slo: Annotated[
        str | None, typer.Option(help="Limits in seconds, for example ttft=1.0,tpot=0.03.")
    ] = None,
    sustainable: Annotated[
        bool,
        typer.Option("--sustainable", help="Search the largest rate with 99 % inside the SLO."),
    ] = False,
    max_probes: Annotated[int, typer.Option(min=2, help="Loads of --sustainable at most.")] = 8,
    curve: Annotated[
        int | None, typer.Option(min=2, help="Closed loop: concurrency-p99 curve up to this many.")
    ] = None,
    workers: Annotated[
        int, typer.Option(min=1, help="Client processes, where one core is not enough.")
    ] = 1,
    tokenizer: Annotated[
        Path | None, typer.Option(help="The served model's folder: checks the server's counts.")
    ] = None,
    chat: Annotated[bool, typer.Option("--chat", help="Send chats; needs --tokenizer.")] = False,
    plain: Annotated[
        bool, typer.Option("--plain", help="Send none of vLLM's own fields (other servers).")
    ] = False,
    api_key_env: Annotated[
        str | None, typer.Option(help="Environment variable that holds the API key.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Offer traffic to any OpenAI-compatible endpoint and report what it gave."""
    from flows.commands.bench import BenchPlan, bench_command

    plan = BenchPlan(
        window=window, rate=rate, duration=duration, sustainable=sustainable,
        max_probes=max_probes, curve=curve, workers=workers, tokenizer=tokenizer, chat=chat,
        plain=plain,
    )  # fmt: skip
    code = bench_command(
        url, traffic, plan, model=model, slo=slo, api_key_env=api_key_env, as_json=as_json
    )
    raise typer.Exit(code)


def bench_import(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...", help="Results of `vllm bench serve --save-result` or guidellm."
        ),
    ],
    as_json: JsonOption = False,
) -> None:
    """Read other tools' results with distrust: exit 1 where one must not be believed."""
    from flows.commands.bench_import import bench_import_command

    raise typer.Exit(bench_import_command(files, as_json=as_json))
