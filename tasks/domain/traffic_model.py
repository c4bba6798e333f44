"""Traffic described in a few numbers, and traces drawn from it with a seed.

For sites that have no trace yet, for load points and for tests. Every number carries its source
text, because a drawn trace is an assumption and must not pass for a measurement.
"""

import hashlib
import json
import math
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.domain.errors import TraceError
from tasks.domain.renewal import Segment, renewal_arrivals
from tasks.domain.trace import Trace, TraceNotes

Z90 = 1.2815515655446004  # standard normal quantile of 0.9
BLOCK_IDS_PER_PREFIX = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthDistribution:
    """Token counts, clipped to [min_tokens, max_tokens]: lognormal, or a weighted histogram.

    Either ``histogram`` holds (tokens, weight) pairs, or exp(normal(log_mean, log_sigma)) is
    rounded to whole tokens. Clipping lowers the mean of a long tail.
    """

    min_tokens: int = 1
    max_tokens: int
    log_mean: float | None = None
    log_sigma: float | None = None
    histogram: tuple[tuple[int, float], ...] = ()

    def draw(self, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return ``count`` lengths in tokens.

        Raises:
            TraceError: if the distribution is not one of the two kinds, or its limits cross.
        """
        if not 1 <= self.min_tokens <= self.max_tokens:
            raise TraceError(
                f"min_tokens={self.min_tokens} and max_tokens={self.max_tokens} leave no length; "
                f"needed 1 <= min_tokens <= max_tokens"
            )
        if self.histogram:
            tokens = np.array([t for t, _ in self.histogram], dtype=np.int64)
            weights = np.array([w for _, w in self.histogram], dtype=np.float64)
            if (weights < 0).any() or weights.sum() <= 0:
                raise TraceError("histogram weights must be at least 0 and not all 0; correct them")
            drawn = rng.choice(tokens, size=count, p=weights / weights.sum())
        elif self.log_mean is not None and self.log_sigma is not None:
            drawn = np.rint(rng.lognormal(self.log_mean, self.log_sigma, size=count))
        else:
            raise TraceError(
                "a length distribution has neither histogram nor log_mean and log_sigma; give one"
            )
        return np.asarray(np.clip(drawn, self.min_tokens, self.max_tokens), dtype=np.int64)


def lognormal_lengths(
    *,
    p50_tokens: float,
    max_tokens: int,
    mean_tokens: float | None = None,
    p90_tokens: float | None = None,
    min_tokens: int = 1,
) -> LengthDistribution:
    """Return the lognormal with this median and this mean or 90th percentile (before clipping).

    log_mean = ln p50; log_sigma = sqrt(2 ln(mean / p50)) or ln(p90 / p50) / 1.28155.

    Raises:
        TraceError: if not exactly one of mean and p90 is given, or it is below the median.
    """
    given = mean_tokens if p90_tokens is None else p90_tokens
    if (mean_tokens is None) == (p90_tokens is None) or given is None or given < p50_tokens:
        raise TraceError(
            f"p50_tokens={p50_tokens}, mean_tokens={mean_tokens}, p90_tokens={p90_tokens} make no "
            f"lognormal; needed exactly one of mean and p90, not below p50"
        )
    ratio = math.log(given / p50_tokens)
    sigma = math.sqrt(2.0 * ratio) if p90_tokens is None else ratio / Z90
    return LengthDistribution(
        min_tokens=min_tokens,
        max_tokens=max_tokens,
        log_mean=math.log(p50_tokens),
        log_sigma=sigma,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficModel:
    """A regime's traffic.

    burstiness: coefficient of variation of the gaps between arrivals (Gamma); 1 is Poisson.
    prefix_reuse_frac: share (0..1) of prompt tokens that one of ``shared_prefixes`` supplies.
    source: where the numbers come from, in words.
    """

    rate_req_s: float
    prompt: LengthDistribution
    output: LengthDistribution
    source: str
    burstiness: float = 1.0
    prefix_reuse_frac: float = 0.0
    shared_prefixes: int = 1
    prefix_block_tokens: int = 64


def draw_trace(model: TrafficModel, *, duration_s: float, seed: int) -> Trace:
    """Return a trace of the model's traffic; the same model, duration and seed give the same.

    Raises:
        TraceError: if a number of the model cannot be, or no request falls into the duration.
    """
    _check(model, duration_s)
    rng = np.random.default_rng(seed)
    segment = Segment(
        start_s=0.0,
        end_s=duration_s,
        rate_req_s=model.rate_req_s,
        family="gamma",
        shape=1.0 / model.burstiness**2,
    )
    arrival = renewal_arrivals((segment,), rng=rng)
    if arrival.size == 0:
        raise TraceError(
            f"rate_req_s={model.rate_req_s:g} over duration_s={duration_s:g} drew no request; "
            f"needed at least one; raise either"
        )
    prompt = model.prompt.draw(arrival.size, rng)
    text = json.dumps([asdict(model), duration_s, seed], sort_keys=True)
    said = f"drawn from a traffic model ({model.source}) with seed {seed}"
    return Trace(
        arrival_s=arrival - arrival[0],
        prompt_tokens=prompt,
        output_tokens=model.output.draw(arrival.size, rng),
        source=f"traffic model: {model.source}",
        sha256=hashlib.sha256(text.encode()).hexdigest(),
        notes=TraceNotes(
            format="traffic-model",
            rows=int(arrival.size),
            warnings=(("ARRIVALS_DRAWN", said),),
        ),
        prefix_blocks=_prefixes(model, prompt, rng),
        prefix_block_tokens=model.prefix_block_tokens,
    )


def _prefixes(
    model: TrafficModel, prompt: NDArray[np.int64], rng: np.random.Generator
) -> tuple[tuple[int, ...], ...]:
    size = model.prefix_block_tokens
    wanted = model.prefix_reuse_frac * prompt / size
    # Rounding up with the fraction's probability keeps the mean share where rounding would not.
    blocks = np.floor(wanted + rng.random(prompt.size)).astype(np.int64)
    blocks = np.minimum(blocks, prompt // size)
    prefix = rng.integers(model.shared_prefixes, size=prompt.size)
    first = prefix * BLOCK_IDS_PER_PREFIX
    return tuple(
        tuple(range(start, start + count))
        for start, count in zip(first.tolist(), blocks.tolist(), strict=True)
    )


def _check(model: TrafficModel, duration_s: float) -> None:
    for name, value, right in (
        ("duration_s", duration_s, duration_s > 0),
        ("rate_req_s", model.rate_req_s, model.rate_req_s > 0),
        ("burstiness", model.burstiness, model.burstiness > 0),
        ("prefix_reuse_frac", model.prefix_reuse_frac, 0 <= model.prefix_reuse_frac <= 1),
        ("shared_prefixes", model.shared_prefixes, model.shared_prefixes >= 1),
        ("prefix_block_tokens", model.prefix_block_tokens, model.prefix_block_tokens >= 1),
    ):
        if not right:
            raise TraceError(
                f"traffic model has {name}={value}; needed a positive number (a share between 0 "
                f"and 1 for prefix_reuse_frac); correct it"
            )
