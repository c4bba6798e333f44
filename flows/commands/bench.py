"""``retune bench``: offer traffic to any endpoint and report what it gave."""

import datetime as dt
import uuid
from dataclasses import replace
from pathlib import Path

from flows.environment import home
from flows.output import print_json, print_lines
from flows.progress import Reporter
from flows.traffic import traffic_of
from tasks import benchmark, deploy
from tasks.adapters.config_files.loading import load_traffic
from tasks.adapters.trace_files.loading import load_trace
from tasks.domain.errors import ConfigError
from tasks.domain.load_point import LoadKind, LoadPoint
from tasks.domain.measurement_metrics import FORMULAS
from tasks.domain.prompts import PromptVocabulary
from tasks.domain.scheduling import build_schedule
from tasks.domain.slo import Slo
from tasks.domain.study_report import load_table
from tasks.domain.trace import Trace

SEED = 0
WINDOW_S = 30.0
# Ids that hold ordinary text in every tokenizer of 20,000 pieces or more; special ids lie outside.
COMMON_TOKEN_IDS = range(1_000, 20_000)
_LIMITS = ("ttft", "tpot", "e2e")


def bench_command(
    url: str,
    traffic: Path,
    *,
    model: str | None,
    rate: float | None,
    duration: float,
    slo: str | None,
    api_key_env: str | None,
    as_json: bool,
) -> int:
    """Measure the endpoint at one rate and print the figures; 1 where they must not be believed."""
    limits = parse_slo(slo)
    endpoint = deploy.attach_engine(url, model=model, api_key_env=api_key_env)
    trace = _trace(traffic)
    own_rate = len(trace) / trace.duration_s if trace.duration_s > 0 else 1.0
    scale = 1.0 if rate is None else rate / own_rate
    point = LoadPoint(kind=LoadKind.OPEN, rate_scale=scale, duration_s=duration)
    schedule = build_schedule(
        trace,
        duration_s=duration,
        rate_scale=scale,
        seed=SEED,
        max_model_len=endpoint.max_model_len,
    )
    stamp = f"{dt.datetime.now(dt.UTC):%Y%m%dT%H%M%SZ}-{uuid.uuid4().hex[:4]}"
    folder = home().root / "bench" / stamp
    reporter = Reporter()
    measurement, _ = benchmark.measure_load(
        endpoint,
        benchmark.Load(
            point=point,
            schedule=schedule,
            vocabulary=PromptVocabulary(token_ids=tuple(COMMON_TOKEN_IDS)),
            salt=uuid.uuid4().hex,
        ),
        slo=limits,
        window_s=min(WINDOW_S, duration),
        evidence_dir=folder,
        on_progress=lambda p: reporter.load(point.name, duration, p),
    )
    if as_json:
        print_json({"url": url, "measurement": measurement, "folder": str(folder)})
    else:
        print_lines([load_table([measurement])])
        print_lines(f"{flag.code}: {flag.sentence}" for flag in measurement.flags)
        print_lines(f"{name}: {formula}" for name, formula in FORMULAS.items())
        print_lines([f"every request: {folder / 'requests.parquet'}"])
    return 1 if measurement.invalid else 0


def parse_slo(text: str | None) -> Slo:
    """Return the limits in ``ttft=1.0,tpot=0.03``; without text, limits that nothing breaks.

    Raises:
        ConfigError: names the part that is not understood and what is allowed.
    """
    if text is None:
        return Slo()
    limits = Slo()
    for part in text.split(","):
        name, _, value = part.partition("=")
        try:
            seconds = float(value)
        except ValueError:
            seconds = 0.0
        if name not in _LIMITS or not 0 < seconds < float("inf"):
            raise ConfigError(
                f"--slo {text!r}: part {part!r} is not understood; needed {', '.join(_LIMITS)} "
                "with seconds above 0, for example ttft=1.0,tpot=0.03"
            )
        limits = replace(limits, **{f"{name}_s": seconds})
    return limits


def _trace(path: Path) -> Trace:
    if path.suffix in (".yaml", ".yml"):
        return traffic_of(load_traffic(path))
    return load_trace(path)
