"""``retune parameters``: the catalogue, as far as one engine version has it."""

from dataclasses import replace

from flows.environment import home
from flows.host import device_of_host, find_host
from flows.output import print_json, print_lines, print_table
from tasks.domain.catalogue.installed import EngineArgument, InstalledEngine
from tasks.domain.catalogue.lookup import for_engine, rows
from tasks.domain.catalogue.row import Change, Recommended, Row
from tasks.domain.errors import ConfigError
from tasks.domain.live_values import change_in


def parameters_command(engine: str, *, as_json: bool) -> int:
    """Print every parameter that the engine has, and a sentence for each that it lacks."""
    installed = _engine(engine)
    known, dropped = for_engine(rows(), installed)
    kept = [replace(row, change=change_in(row, installed.version)) for row in known]
    if as_json:
        print_json(
            {
                "engine": installed.version,
                "flavour": installed.flavour.value,
                "parameters": kept,
                "absent": [{"name": name, "reason": reason} for name, reason in dropped],
            }
        )
        return 0
    device, _, _, _ = device_of_host()
    print_table(
        f"vLLM {installed.version} ({installed.flavour.value}), defaults of {device.name}",
        ("parameter", "default", "range", "change", "acts on", "guide recommends", "impact"),
        (
            (
                row.name,
                str(row.default_for(device.device_class)),
                _range(row),
                "live (plug-in)" if row.change is Change.LIVE else row.change.value,
                ", ".join(row.acts_on),
                "; ".join(_recommended(item) for item in row.recommended) or "-",
                row.impact or "-",
            )
            for row in kept
        ),
    )
    print_lines(f"{name}: {reason}" for name, reason in dropped)
    return 0


def _engine(text: str) -> InstalledEngine:
    if text == "installed":
        return find_host(home()).installed
    name, separator, version = text.partition("==")
    if name != "vllm" or not separator or not version[:1].isdigit():
        raise ConfigError(
            f"--engine {text!r} is not known; needed 'installed' or a version such as vllm==0.24.0"
        )
    device, _, _, _ = device_of_host()
    names = [row.name for row in rows() if row.exists_in(version)]
    return InstalledEngine(
        version=version,
        flavour=device.flavour,
        arguments=tuple(EngineArgument(name=known) for known in sorted(names)),
    )


def _range(row: Row) -> str:
    parts = [str(value) for value, _ in row.special] + list(row.choices)
    if row.low is not None or row.high is not None:
        low = "" if row.low is None else f"{row.low:g}"
        high = "" if row.high is None else f"{row.high:g}"
        parts.insert(0, f"{low}..{high}")
    return ", ".join(parts) or row.kind.value


def _recommended(item: Recommended) -> str:
    if item.value is not None:
        return f"{item.scenario.value}: {item.value}"
    low = "" if item.low is None else f"{item.low:g}"
    high = "" if item.high is None else f"{item.high:g}"
    return f"{item.scenario.value}: {low if low == high else f'{low}..{high}'}"
