"""One engine's share of a trace file: the part that is named or found, thinned and scaled."""

import json
from pathlib import Path

import numpy as np
import pytest

from flows.traffic import read_part, traffic_of
from tasks.adapters.config_files.loading import load_traffic
from tasks.adapters.trace_files.options import TraceOptions
from tasks.domain.trace import Trace


def traffic(folder: Path, arrivals: list[float], regime: str, **trace: object) -> Trace:
    rows = [{"arrival_s": at, "prompt_tokens": 10, "output_tokens": 5} for at in arrivals]
    (folder / "trace.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    keys = "".join(f"  {name}: {value}\n" for name, value in trace.items())
    path = folder / "traffic.yaml"
    path.write_text(
        f"name: t\nregime: {regime}\nsource: a test\ntrace:\n  file: trace.jsonl\n{keys}"
    )
    return traffic_of(load_traffic(path))


# 100 s at 1 req/s, 100 s at 4 req/s, 100 s at 2 req/s.
DAY = [*np.arange(0, 100, 1.0), *np.arange(100, 200, 0.25), *np.arange(200, 300.5, 0.5)]


@pytest.mark.parametrize(("regime", "rate"), [("peak", 4.0), ("failover", 4.0), ("off_peak", 1.0)])
def test_a_regimes_window_is_found_by_its_rate(tmp_path: Path, regime: str, rate: float) -> None:
    found = traffic(tmp_path, DAY, regime, find_s=80)
    assert len(found) / 80 == pytest.approx(rate, rel=0.02)
    assert found.duration_s <= 80


def test_failover_takes_the_share_of_one_engine_fewer(tmp_path: Path) -> None:
    arrivals = [float(i) for i in range(600)]
    peak = traffic(tmp_path, arrivals, "peak", replicas=4)
    failover = traffic(tmp_path, arrivals, "failover", replicas=4)
    assert len(peak) == 150  # 1/4
    assert len(failover) == 200  # 1/3 = 4/3 of the peak's share


def test_a_night_without_traffic_is_not_waited_for_and_that_is_said(tmp_path: Path) -> None:
    found = traffic(tmp_path, [0.0, 10.0, 32_410.0, 32_420.0], "peak")
    assert found.arrival_s.tolist() == [0.0, 10.0, 70.0, 80.0]
    assert "GAP_COMPRESSED" in dict(found.notes.warnings)


def test_the_part_of_a_servegen_folder_is_drawn(shared_dir: Path) -> None:
    folder = shared_dir / "traces" / "servegen_m-large"
    part = read_part(folder, start_s=64_800, end_s=65_400, options=TraceOptions(seed=3))
    assert part.notes.format == "servegen"
    assert part.duration_s <= 600


def test_an_open_part_keeps_the_last_request(tmp_path: Path) -> None:
    assert len(traffic(tmp_path, [0.0, 1.0, 2.0, 3.0], "peak", start_s=1)) == 3
