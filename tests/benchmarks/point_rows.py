"""Rows of load points that were measured in passes: kept as JSON lines, compared in a table."""

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from tasks.domain.measurement import Measurement
from tasks.domain.percentiles import Latency


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One point of one pass; latencies in ms, p99 the largest where the sample is too small."""

    pass_no: int
    kind: str
    seqs: int
    tokens: int
    n: int
    failed: int
    attainment: float
    goodput: float
    ttft_p50: float | None
    ttft_p99: float | None
    tpot_p50: float | None
    tpot_p99: float | None
    output_tok_s: float
    startup_s: float | None
    schedule: str
    flags: str


def row_of(
    m: Measurement, which: tuple[int, str], point: list[int], startup_s: float | None
) -> Row:
    """Return a measurement as a row."""
    return Row(
        pass_no=which[0],
        kind=which[1],
        seqs=point[0],
        tokens=point[1],
        n=m.n_requests,
        failed=m.n_requests - m.n_ok,
        attainment=m.attainment_frac,
        goodput=m.goodput_req_s,
        ttft_p50=ms(m.ttft, 0.5),
        ttft_p99=ms(m.ttft, 0.99),
        tpot_p50=ms(m.tpot, 0.5),
        tpot_p99=ms(m.tpot, 0.99),
        output_tok_s=m.output_tok_s,
        startup_s=startup_s,
        schedule=(m.schedule_sha256 or "")[:8],
        flags=",".join(flag.code for flag in m.flags),
    )


def ms(latency: Latency, quantile: float) -> float | None:
    """Return a percentile in ms, or the largest sample where too few cover it."""
    value = latency.p(quantile).value_s
    value = latency.max_s if value is None else value
    return None if value is None else 1e3 * value


def keep(file: Path, row: Row) -> None:
    with file.open("a", encoding="utf-8") as handle:
        handle.write(json.dumps(asdict(row)) + "\n")
    print(f"# {time.strftime('%H:%M:%S')} {line(row)}", flush=True)  # noqa: T201


def rows_in(file: Path) -> list[Row]:
    if not file.exists():
        return []
    return [Row(**json.loads(text)) for text in file.read_text(encoding="utf-8").splitlines()]


def line(row: Row) -> str:
    ttft, tpot = (pair(row.ttft_p50, row.ttft_p99, 0), pair(row.tpot_p50, row.tpot_p99, 1))
    return (
        f"{row.seqs:>5} {row.tokens:>6} {row.pass_no}:{row.kind:8} {row.n:>5} {row.failed:>3} "
        f"{row.attainment:>7.3f} {row.goodput:>7.2f} {ttft:>15} {tpot:>13} "
        f"{row.output_tok_s:>8.0f} {row.startup_s or 0:>5.0f} {row.flags}"
    )


def pair(middle: float | None, tail: float | None, digits: int) -> str:
    return " / ".join("-" if v is None else f"{v:.{digits}f}" for v in (middle, tail))


def table(rows: list[Row]) -> str:
    """Return all rows by point, and the difference of each pass to the first live one."""
    head = (
        "  cap budget pass           n bad  in SLO goodput TTFT p50 / p99 TPOT p50 / p99   "
        "tok/s start (ms, req/s, s)"
    )
    lines = [head]
    for seqs, tokens in sorted({(r.seqs, r.tokens) for r in rows}, reverse=True):
        here = [r for r in rows if (r.seqs, r.tokens) == (seqs, tokens)]
        first = next((r for r in here if r.kind == "live"), here[0])
        for row in sorted(here, key=lambda r: r.pass_no):
            lines.append(line(row))
            if row is not first:
                lines.append(f"{'':13}minus the first live pass: {difference(row, first)}")
    return "\n".join(lines)


def difference(row: Row, first: Row) -> str:
    """Return what a pass gave more or less than another at the same point."""
    parts = [f"in SLO {row.attainment - first.attainment:+.3f}"]
    for name in ("ttft_p50", "ttft_p99", "tpot_p50", "tpot_p99", "output_tok_s"):
        new, old = getattr(row, name), getattr(first, name)
        if new is not None and old:
            parts.append(f"{name} {new / old - 1:+.1%}")
    return ", ".join(parts)
