"""The strict reader of measured tables, and our policy on the real one."""

import gzip
import json
import math
from pathlib import Path

import pytest

from tasks.adapters.measured_table import load_measured_table
from tasks.domain.errors import ConfigError
from tasks.domain.search.objective import Objective
from tasks.domain.search.replay import good_points, table_worths
from tasks.domain.slo import Slo
from tasks.propose import make_policy, replay_policy

TABLE = "h200-bf16-azure-conv-r18.json.gz"
COLUMNS = ["index", "due_s", "prompt_tokens", "output_tokens", "ttft_s", "tpot_s", "e2e_s"]


def document(**changes: object) -> dict[str, object]:
    row = [0, 0.0, 10, 5, 0.1, 0.01, 0.14]
    one = {"max_num_seqs": 8, "max_num_batched_tokens": 64, "order": 0, "wall_s": 9.0}
    made = {"schema": 1, "rate_req_s": 2.0, "columns": COLUMNS, "points": [{**one, "rows": [row]}]}
    return {**made, **changes}


def written(tmp_path: Path, content: object) -> Path:
    path = tmp_path / "table.json.gz"
    path.write_bytes(gzip.compress(json.dumps(content).encode()))
    return path


def point_with(**changes: object) -> dict[str, object]:
    (one,) = document()["points"]  # type: ignore[misc]
    return document(points=[{**one, **changes}])


def test_a_table_is_read_with_its_load_and_latencies(tmp_path: Path) -> None:
    table = load_measured_table(written(tmp_path, document()))
    (one,) = table.points
    assert (one.max_num_seqs, one.max_num_batched_tokens, one.wall_s) == (8, 64, 9.0)
    assert one.rows.ttft_s.tolist() == [0.1]
    assert one.rows.duration_s == 0.5  # one request at 2 req/s


def test_a_failed_request_is_null_and_becomes_nan(tmp_path: Path) -> None:
    rows = [[0, 0.0, 10, 5, None, None, None]]
    table = load_measured_table(written(tmp_path, point_with(rows=rows)))
    assert math.isnan(table.points[0].rows.ttft_s[0])


@pytest.mark.parametrize(
    ("content", "place"),
    [
        ([], "the document"),
        (document(schema=2), "schema is 2"),
        (document(rate_req_s=0), "rate_req_s is 0"),
        (document(columns=["due_s"]), "columns"),
        (document(points=[]), "points"),
        (point_with(max_num_seqs=True), r"points\[0\].max_num_seqs is True"),
        (point_with(wall_s=None), r"points\[0\].wall_s is None"),
        (point_with(rows=[[0, 0.0]]), r"points\[0\].rows\[0\]"),
        (point_with(rows=[[0, 0.0, 10, 5, "x", 0.01, 1]]), r"rows\[0\].ttft_s is 'x'"),
        (point_with(rows=[[0, 0.0, 10, 5, -1, 0.01, 1]]), r"rows\[0\].ttft_s is -1"),
        (point_with(rows=[[0, 0.0, 0, 5, 1, 0.01, 1]]), "prompt_tokens"),
        (point_with(rows=[[0, 1.0, 9, 5, 1, 1, 1], [1, 0.5, 9, 5, 1, 1, 1]]), "due_s falls"),
    ],
)
def test_a_doubtful_table_is_refused_with_the_place(
    tmp_path: Path, content: object, place: str
) -> None:
    with pytest.raises(ConfigError, match=place):
        load_measured_table(written(tmp_path, content))


def test_what_is_no_gzip_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "table.json.gz"
    path.write_text("{}")
    with pytest.raises(ConfigError, match="cannot be read as gzip JSON"):
        load_measured_table(path)


def test_the_measured_table_judges_as_it_was_reported(shared_dir: Path) -> None:
    table = load_measured_table(shared_dir / "tables" / TABLE)
    worths = table_worths(table, Objective(slo=Slo(ttft_s=1.0, tpot_s=0.03)))
    share = {(p.max_num_seqs, p.max_num_batched_tokens): w / 18.0 for p, w in worths.items()}
    assert len(share) == 20
    assert share[1024, 8192] == pytest.approx(0.766, abs=0.001)
    assert share[256, 1024] == pytest.approx(0.980, abs=0.001)
    assert share[32, 2048] == pytest.approx(0.556, abs=0.001)
    assert share[16, 512] == pytest.approx(0.294, abs=0.001)


def test_ours_reaches_a_good_point_of_the_measured_table_within_four(shared_dir: Path) -> None:
    table = load_measured_table(shared_dir / "tables" / TABLE)
    objective = Objective(slo=Slo(ttft_s=1.0, tpot_s=0.03))
    (made,) = replay_policy(table, objective, name="ours", seeds=1)
    assert made.reached
    assert 1 <= made.points <= 4
    assert made.asked[made.points] in good_points(table_worths(table, objective))


def test_an_unknown_policy_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    space = load_measured_table(written(tmp_path, document())).space()
    with pytest.raises(ConfigError, match="ours, tpe, gp, random, grid"):
        make_policy("best", space, Objective(slo=Slo()))
