"""What a study's searches start from, with real files: the model, the home, other studies."""

from dataclasses import replace
from pathlib import Path

import pytest

from flows.environment import Home
from flows.materials import Host, Materials
from flows.preparation import prepare_study
from flows.progress import Reporter
from flows.search_starts import kept_start
from flows.searching import searchers_of
from flows.study_folder import StudyFolder
from tasks.adapters.config_files.loading import load_study
from tasks.domain.catalogue.installed import InstalledEngine
from tasks.domain.catalogue.row import Scenario
from tasks.domain.codec import to_text
from tasks.domain.concurrency_curve import ConcurrencyCurve
from tasks.domain.hardware import gpu
from tasks.domain.inflection import Inflection
from tasks.domain.parameters import ParameterValues
from tasks.domain.search.ours import OurPolicy
from tasks.domain.search.space import SEQS
from tasks.domain.steps import TrialStatus
from tasks.domain.study_request import Arm, SearchPlan, StudyRequest
from tasks.domain.trial import Trial
from tests.fakes.serving_engine import write_checkpoint
from tests.fakes.study_script import study_request, two_arms

TUNED = Arm(name="tuned", method="reference", values=ParameterValues(), searched=True)
STUDY = """
name: searched
model: model.yaml
regime: {regime}
slo: slo.yaml
traffic: traffic.yaml
arms:
  - {{name: defaults, checkpoint: reference, reference: true}}
  - {{name: tuned, checkpoint: reference, search: true}}
search: {{max_points: 4{search}}}
load: {{rate_scales: [1.0], duration_s: 60}}
profile_s: 0
"""
TRAFFIC = """
name: even
regime: {regime}
source: made for a test
model:
  rate_req_s: 4
  prompt_tokens: {{mean: 8, p50: 8, min: 4, max: 12}}
  output_tokens: {{mean: 6, p50: 6, min: 3, max: 9}}
  draw_s: 60
"""


def knee(choose: int) -> Inflection:
    return Inflection(
        knee=2 * choose, choose=choose, low=choose, high=2 * choose, reason=f"p99 from {choose} on"
    )


def keep_curve(
    folder: StudyFolder, request: StudyRequest, arm: Arm, inflection: Inflection
) -> Path:
    """Keep what a study with a curve leaves on disk."""
    curve = ConcurrencyCurve(quantile=0.9, points=(), inflection=inflection)
    trial = Trial(arm=arm, status=TrialStatus.COMPLETE, curve=curve)
    folder.write("report/request.json", to_text(request))
    return folder.write(f"trials/{arm.name}/trial.json", to_text(trial))


def test_the_curve_that_another_study_measured_last_is_found_and_kept(tmp_path: Path) -> None:
    place, reference = Home(root=tmp_path), two_arms()[1]
    own = StudyFolder.of(place, "unit", "own")
    request = study_request()
    first = keep_curve(StudyFolder.of(place, "demo", "1"), request, reference, knee(16))
    last = keep_curve(StudyFolder.of(place, "demo", "2"), request, reference, knee(24))
    first.touch()
    last.touch()
    unlike = replace(request, trace_sha256="another")
    keep_curve(StudyFolder.of(place, "demo", "3"), unlike, reference, knee(99)).touch()
    keep_curve(own, request, reference, knee(77)).touch()
    broken = StudyFolder.of(place, "demo", "4")
    broken.write("report/request.json", to_text(request))
    broken.write("trials/reference/trial.json", '{"type": "Tri')

    found = kept_start(own, request, TUNED, SearchPlan())
    assert found.inflection == knee(24)
    assert found.inflection_source == "curve of reference (TTFT p90) in demo-2"
    keep_curve(StudyFolder.of(place, "demo", "5"), request, reference, knee(48)).touch()
    assert kept_start(own, request, TUNED, SearchPlan()) == found


def test_where_no_curve_is_known_none_is_claimed(tmp_path: Path) -> None:
    own = StudyFolder.of(Home(root=tmp_path), "unit", "own")
    found = kept_start(own, study_request(), TUNED, SearchPlan())
    assert (found.inflection, found.inflection_source) == (None, "")
    assert found.scenario is Scenario.ONLINE_BATCH


def materials_of(folder: Path, regime: str, search: str = "") -> Materials:
    source = write_checkpoint(folder / "checkpoint")
    (folder / "study.yaml").write_text(STUDY.format(regime=regime, search=search))
    (folder / "model.yaml").write_text(f"name: tiny\nsource: {source}\nsynthetic: true\n")
    (folder / "slo.yaml").write_text("ttft_s: 1.0\ntpot_s: 0.03\n")
    (folder / "traffic.yaml").write_text(TRAFFIC.format(regime=regime))
    device = gpu("NVIDIA H200")
    host = Host(
        device=device,
        device_count=1,
        driver=None,
        installed=InstalledEngine(version="0.32.0", flavour=device.flavour, arguments=()),
        engine_python=folder / "engine-python",
        lock_name="gpu",
    )
    place = Home(root=folder / "home")
    return prepare_study(load_study(folder / "study.yaml"), place, Reporter(quiet=True), host=host)


@pytest.mark.parametrize(
    ("regime", "search", "starts", "least"),
    [
        # The catalogue: an H200 runs 1024 sequences unasked, performance_mode=throughput 2048.
        # The guide: online batch 64 to 128, online chat 16 to 32, nothing for failover.
        ("peak", "", {64, 128, 2048}, 64),
        ("off_peak", "", {16, 32, 2048}, 16),
        ("failover", "", {2048}, 64),
        ("peak", ", scenario: online chat", {16, 32, 2048}, 16),
    ],
)
def test_a_searched_arm_starts_from_the_guides_values_for_its_scenario(
    tmp_path: Path, regime: str, search: str, starts: set[int], least: int
) -> None:
    materials = materials_of(tmp_path, regime, search)
    request = materials.request
    folder = StudyFolder.of(materials.place, request.name, request.study_id)
    searcher = searchers_of(materials, folder)["tuned"]
    assert isinstance(searcher.policy, OurPolicy)
    assert {point.max_num_seqs for point, _ in searcher.policy.starts} == starts
    assert searcher.space.levels(SEQS)[0] == least
    assert (folder.path / "report/search-start-tuned.json").is_file()


def test_a_searched_arm_starts_from_the_knee_that_another_study_measured(tmp_path: Path) -> None:
    materials = materials_of(tmp_path, "peak")
    request = materials.request
    defaults = next(arm for arm in request.arms if arm.is_reference)
    keep_curve(StudyFolder.of(materials.place, "curves", "1"), request, defaults, knee(256))
    folder = StudyFolder.of(materials.place, request.name, request.study_id)
    policy = searchers_of(materials, folder)["tuned"].policy
    assert isinstance(policy, OurPolicy)
    point, use = policy.starts[0]
    assert point.max_num_seqs == 256
    assert use.source == "inflection point: curve of defaults (TTFT p90) in curves-1"
    assert use.sentence == "p99 from 256 on"
