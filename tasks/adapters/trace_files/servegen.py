"""ServeGen folders: per-client rates and length distributions, from which arrivals are drawn.

Format (alibaba/ServeGen, arXiv 2505.09999): chunk-N-trace.csv without header, a row each 600 s:
start_s, rate (req/s), cv of the gaps, pattern, shape, scale; chunk-N-dataset.json: start of a 6 h
window -> distributions as text holding a dict {tokens: probability}.
"""

import ast
import csv
import hashlib
import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tasks.adapters.trace_files.options import TraceOptions
from tasks.domain.errors import TraceError
from tasks.domain.renewal import Segment, renewal_arrivals
from tasks.domain.trace import Trace, TraceNotes

DATASET_WINDOW_S = 21_600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window:
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Drawn:
    arrival_s: NDArray[np.float64]
    prompt: NDArray[np.int64]
    output: NDArray[np.int64]


def is_servegen(folder: Path) -> bool:
    """Return whether a folder holds at least one client with rates and lengths."""
    return any(_dataset_of(path).is_file() for path in _rate_files(folder))


def load_servegen(folder: Path, options: TraceOptions) -> Trace:
    """Draw the requests of all clients in the window that the options name.

    Raises:
        TraceError: if the window is not given, has no traffic or no length distribution.
    """
    if options.window_start_s is None or options.window_duration_s is None:
        raise TraceError(
            f"ServeGen folder {folder} describes rates, not requests, and window_start_s="
            f"{options.window_start_s} with window_duration_s={options.window_duration_s} do not "
            f"say what to draw; needed both (seconds since day 0; --window START:END); length "
            f"distributions start at {', '.join(str(start) for start in _known_windows(folder))}"
        )
    start = options.window_start_s
    window = _Window(start_s=start, end_s=start + options.window_duration_s)
    digest = hashlib.sha256(f"{window.start_s}:{window.end_s}:{options.seed}".encode())
    drawn: list[_Drawn] = []
    silent: list[str] = []
    files = [path for path in _rate_files(folder) if _dataset_of(path).is_file()]
    for client, path in enumerate(files):
        digest.update(path.read_bytes())
        digest.update(_dataset_of(path).read_bytes())
        rng = np.random.default_rng([options.seed, client])
        requests = _client(path, window, rng)
        if requests is None:
            silent.append(path.name.removesuffix("-trace.csv"))
        elif requests.arrival_s.size:
            drawn.append(requests)
    if not drawn:
        raise TraceError(
            f"ServeGen folder {folder} has no request between {window.start_s:g} s and "
            f"{window.end_s:g} s; needed a window with traffic and a length distribution; "
            f"distributions start at {', '.join(str(s) for s in _known_windows(folder))}"
        )
    return _trace(folder, drawn, silent, digest.hexdigest(), window, options)


def _trace(
    folder: Path,
    drawn: list[_Drawn],
    silent: list[str],
    sha256: str,
    window: _Window,
    options: TraceOptions,
) -> Trace:
    arrival = np.concatenate([part.arrival_s for part in drawn])
    order = np.argsort(arrival, kind="stable")
    arrival = arrival[order]
    text = (
        f"requests were drawn from rates and distributions of {len(drawn)} clients between "
        f"{window.start_s:g} s and {window.end_s:g} s with seed {options.seed}"
    )
    warnings = [("ARRIVALS_DRAWN", text)]
    if silent:
        text = f"clients with traffic but no length distribution left out: {', '.join(silent)}"
        warnings.append(("CLIENTS_WITHOUT_LENGTHS", text))
    return Trace(
        arrival_s=arrival - arrival[0],
        prompt_tokens=np.concatenate([part.prompt for part in drawn])[order],
        output_tokens=np.concatenate([part.output for part in drawn])[order],
        source=str(folder),
        sha256=sha256,
        notes=TraceNotes(format="servegen", rows=int(arrival.size), warnings=tuple(warnings)),
    )


def _client(path: Path, window: _Window, rng: np.random.Generator) -> _Drawn | None:
    """Return one client's requests, or None if it has traffic but no lengths."""
    arrival = renewal_arrivals(_segments(path, window), rng=rng)
    if arrival.size == 0:
        return _Drawn(arrival_s=arrival, prompt=arrival.astype(int), output=arrival.astype(int))
    which = np.floor(arrival / DATASET_WINDOW_S) * DATASET_WINDOW_S
    starts = [int(start) for start in np.unique(which).tolist()]
    lengths = _lengths(_dataset_of(path), starts)
    prompt = np.zeros(arrival.size, dtype=np.int64)
    output = np.zeros(arrival.size, dtype=np.int64)
    for start in starts:
        inside = which == start
        pair = lengths.get(start)
        if pair is None:
            continue
        for column, (tokens, weight) in zip((prompt, output), pair, strict=True):
            column[inside] = rng.choice(tokens, size=int(inside.sum()), p=weight)
    keep = (prompt > 0) & (output > 0)
    if not keep.any():
        return None
    return _Drawn(arrival_s=arrival[keep], prompt=prompt[keep], output=output[keep])


def _segments(path: Path, window: _Window) -> tuple[Segment, ...]:
    starts, rows = [], []
    with path.open(encoding="utf-8", newline="") as file:
        for number, row in enumerate(csv.reader(file), start=1):
            try:
                starts.append(float(row[0]))
                rows.append((float(row[1]), float(row[2]), row[3].strip(), float(row[4] or 0)))
            except (ValueError, IndexError) as error:
                raise TraceError(
                    f"ServeGen file {path} line {number}: {','.join(row)!r} is not start_s, rate, "
                    f"cv, pattern, shape, scale; correct the line"
                ) from error
    step = starts[1] - starts[0] if len(starts) > 1 else window.end_s - window.start_s
    segments = []
    for start, (rate, cv, pattern, shape) in zip(starts, rows, strict=True):
        begin, end = max(start, window.start_s), min(start + step, window.end_s)
        if begin < end and rate > 0:
            gaps = _gap_shape(pattern, cv, shape)
            segments.append(
                Segment(start_s=begin, end_s=end, rate_req_s=rate, family=gaps[0], shape=gaps[1])
            )
    return tuple(segments)


def _gap_shape(pattern: str, cv: float, shape: float) -> tuple[str, float]:
    """Return family and shape of the gaps; a Gamma's shape is 1 / cv**2, a Weibull's is given."""
    if pattern == "Weibull" and shape > 0:
        return "weibull", shape
    return ("gamma", 1.0 / cv**2) if cv > 0 else ("gamma", 1.0)


Distribution = tuple[NDArray[np.int64], NDArray[np.float64]]


def _lengths(path: Path, starts: list[int]) -> dict[int, tuple[Distribution, Distribution]]:
    found = {}
    windows = _windows(path)
    try:
        for start in starts:
            fields = windows.get(str(start), {"input_tokens": "{}", "output_tokens": "{}"})
            prompt = _distribution(fields["input_tokens"])
            output = _distribution(fields["output_tokens"])
            if prompt is not None and output is not None:
                found[start] = (prompt, output)
    except (ValueError, KeyError, TypeError, SyntaxError, AttributeError) as error:
        raise _not_a_dataset(path, error) from error
    return found


def _windows(path: Path) -> dict[str, dict[str, str]]:
    try:
        windows = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _not_a_dataset(path, error) from error
    if not isinstance(windows, dict) or not all(key.isdigit() for key in windows):
        raise _not_a_dataset(path, "a key is no start in seconds")
    return windows


def _not_a_dataset(path: Path, what: object) -> TraceError:
    return TraceError(
        f"ServeGen file {path} is not {{start_s: {{input_tokens, output_tokens}}}} ({what}); "
        f"copy it again from its source"
    )


def _distribution(text: str) -> Distribution | None:
    weights = {int(k): float(v) for k, v in ast.literal_eval(text).items() if int(k) >= 1}
    total = math.fsum(weights.values())
    if not weights or total <= 0:
        return None
    tokens = np.array(sorted(weights), dtype=np.int64)
    return tokens, np.array([weights[t] for t in tokens.tolist()]) / total


def _rate_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("chunk-*-trace.csv"))


def _dataset_of(path: Path) -> Path:
    return path.with_name(path.name.replace("-trace.csv", "-dataset.json"))


def _known_windows(folder: Path) -> list[int]:
    files = (_dataset_of(path) for path in _rate_files(folder))
    return sorted({int(start) for path in files if path.is_file() for start in _windows(path)})
