"""``retune bench``: offer traffic to any endpoint and report what it gave."""

import datetime as dt
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from flows.bench_run import BenchRun
from flows.commands.trace import parse_window
from flows.environment import home
from flows.output import print_json, print_lines
from flows.progress import Reporter
from flows.traffic import doubt_lines, replayed_part, traffic_of
from tasks import deploy
from tasks.adapters.client_tokenizer import ClientTokenizer
from tasks.adapters.config_files.loading import load_traffic
from tasks.adapters.model_files import read_vocabulary
from tasks.check_tokens import check_tokens
from tasks.domain.concurrency_curve import ConcurrencyCurve
from tasks.domain.errors import ConfigError
from tasks.domain.measurement import Measurement
from tasks.domain.measurement_metrics import FORMULAS
from tasks.domain.prompts import PromptVocabulary
from tasks.domain.slo import Slo
from tasks.domain.study_report import load_table
from tasks.domain.sustainable_rate import SustainableRate, rate_table
from tasks.domain.token_check import TokenCheck
from tasks.domain.trace import Trace

# Ids that hold ordinary text in every tokenizer of 20,000 pieces or more; special ids lie outside.
COMMON_TOKEN_IDS = range(1_000, 20_000)
_LIMITS = ("ttft", "tpot", "e2e")


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchPlan:
    """What to measure: a rate for ``duration`` seconds, or a curve, or the sustainable rate.

    window: START:END of a trace file. rate: req/s, None for the traffic's own. curve: largest
    concurrency, None for no curve.
    tokenizer: the served model's folder, for prompts of its own tokens and to check its counts.
    plain: none of vLLM's own request fields. chat: the chat route, which needs the tokenizer.
    """

    window: str | None = None
    rate: float | None = None
    duration: float = 60.0
    sustainable: bool = False
    max_probes: int = 8
    curve: int | None = None
    workers: int = 1
    tokenizer: Path | None = None
    chat: bool = False
    plain: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOutcome:
    """What was measured; None for what was not asked for."""

    measurements: tuple[Measurement, ...] = ()
    sustainable: SustainableRate | None = None
    curve: ConcurrencyCurve | None = None
    tokens: TokenCheck | None = None

    @property
    def believed(self) -> bool:
        """Tell whether nothing forbids believing it."""
        probes = () if self.sustainable is None else self.sustainable.probes
        doubted = any(p.attainment_frac is None and not p.diverged for p in probes)
        return not doubted and not any(m.invalid for m in self.measurements)


def bench_command(
    url: str,
    traffic: Path,
    plan: BenchPlan,
    *,
    model: str | None,
    slo: str | None,
    api_key_env: str | None,
    as_json: bool,
) -> int:
    """Measure the endpoint and print the figures; 1 where they must not be believed."""
    limits = parse_slo(slo)
    _check(plan, slo)
    trace = _trace(traffic, plan.window)
    endpoint = deploy.attach_engine(url, model=model, api_key_env=api_key_env)
    tokenizer = None if plan.tokenizer is None else ClientTokenizer(plan.tokenizer)
    stamp = f"{dt.datetime.now(dt.UTC):%Y%m%dT%H%M%SZ}-{uuid.uuid4().hex[:4]}"
    run = BenchRun(
        endpoint=endpoint,
        trace=trace,
        slo=limits,
        folder=home().root / "bench" / stamp,
        reporter=Reporter(),
        vocabulary=_vocabulary(plan.tokenizer),
        workers=plan.workers,
        extensions=not plan.plain,
        decode=tokenizer.decode if tokenizer is not None and plan.chat else None,
    )
    for line in doubt_lines(run.trace.notes):
        run.reporter.line(f"traffic: {line}")
    outcome = _measured(run, plan)
    if tokenizer is not None and not plan.chat:
        told = check_tokens(endpoint, tokenizer, run.vocabulary, salt=stamp)
        outcome = replace(outcome, tokens=told)
    if as_json:
        single = outcome.measurements[0] if len(outcome.measurements) == 1 else None
        print_json({"url": url, "measurement": single, "measurements": [*outcome.measurements],
                    "sustainable": outcome.sustainable, "curve": outcome.curve,
                    "tokens": outcome.tokens, "folder": str(run.folder)})  # fmt: skip
    else:
        print_lines(_lines(outcome, run.folder))
    return 0 if outcome.believed else 1


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


def _check(plan: BenchPlan, slo: str | None) -> None:
    if plan.sustainable and slo is None:
        raise ConfigError(
            "--sustainable needs --slo: the sustainable rate is the largest at which 99 % of "
            "requests keep it; for example --slo ttft=1.0,tpot=0.03"
        )
    if plan.sustainable and plan.curve is not None:
        raise ConfigError("--sustainable and --curve are two measurements; ask for one at a time")
    if plan.chat and plan.tokenizer is None:
        raise ConfigError(
            "--chat sends text of exact token counts; name the served model's folder with "
            "--tokenizer DIR (it holds tokenizer.json)"
        )


def _measured(run: BenchRun, plan: BenchPlan) -> BenchOutcome:
    scale = 1.0 if plan.rate is None else plan.rate / run.own_rate_req_s
    if plan.curve is not None:
        measurements, curve = run.curve(plan.curve, duration_s=plan.duration)
        return BenchOutcome(measurements=measurements, curve=curve)
    if plan.sustainable:
        found = run.sustainable(scale, probe_s=plan.duration, max_probes=plan.max_probes)
        return BenchOutcome(sustainable=found)
    return BenchOutcome(measurements=(run.at_scale(scale, plan.duration),))


def _lines(outcome: BenchOutcome, folder: Path) -> Sequence[str]:
    lines: list[str] = []
    if outcome.measurements:
        lines.append(load_table(outcome.measurements))
        lines += [
            f"{m.load_point.name} {flag.code}: {flag.sentence}"
            for m in outcome.measurements
            for flag in m.flags
        ]
    found = outcome.sustainable
    if found is not None:
        head = "no sustainable rate"
        if found.multiple is not None and found.req_s is not None:
            head = f"sustainable rate {found.req_s:.2f} req/s, x{found.multiple:.3g}"
        lines += [rate_table(found), f"{head} ({found.reason})"]
    if outcome.curve is not None:
        lines.append(f"inflection: {outcome.curve.inflection.reason}")
    if outcome.tokens is not None:
        lines.append(f"tokens: {outcome.tokens.sentence}")
    lines += [f"{name}: {formula}" for name, formula in FORMULAS.items()]
    return [*lines, f"every request: {folder}/*/requests.parquet"]


def _vocabulary(folder: Path | None) -> PromptVocabulary:
    if folder is None:
        return PromptVocabulary(token_ids=tuple(COMMON_TOKEN_IDS))
    return read_vocabulary(folder)


def _trace(path: Path, window: str | None) -> Trace:
    """Return the traffic of a YAML, which names its own part, or of a trace file and a part."""
    if path.suffix not in (".yaml", ".yml"):
        return replayed_part(path, part=None if window is None else parse_window(window))
    if window is not None:
        raise ConfigError(
            f"--window {window} is for a trace file; {path} names its own part: set trace.start_s "
            "and trace.end_s there"
        )
    return traffic_of(load_traffic(path))
