"""Whether a concurrency curve that another study measured holds for an arm that is searched."""

from tasks.domain.inflection import Inflection
from tasks.domain.steps import TrialStatus
from tasks.domain.study_request import Arm, StudyRequest
from tasks.domain.trial import Trial


def known_inflection(
    request: StudyRequest, arm: Arm, *, other: StudyRequest, trial: Trial
) -> Inflection | None:
    """Return the inflection point of a trial of another study, None where it says nothing here.

    It holds where all that a measurement depends on is the same (model, traffic, base values,
    host, engine), the checkpoint's method and recipe too, and the trial's values are the ones
    that the search starts from. A curve without a knee, or of a trial that is not COMPLETE, says
    nothing.
    """
    same = (
        trial.status is TrialStatus.COMPLETE
        and other.measured_part == request.measured_part
        and (trial.arm.method, trial.arm.values) == (arm.method, arm.values)
        and (arm.method == "reference" or other.quantization == request.quantization)
    )
    if not same or trial.curve is None or trial.curve.inflection.knee is None:
        return None
    return trial.curve.inflection


def said_curve(trial: Trial) -> str:
    """Return the curve's name with its quantile: a short one does not cover p99."""
    quantile = "" if trial.curve is None else f" (TTFT p{100 * trial.curve.quantile:g})"
    return f"curve of {trial.arm.name}{quantile}"
