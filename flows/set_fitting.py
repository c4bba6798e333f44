"""Fits a parameter set that was earned on another engine version to the one that is there."""

from dataclasses import replace

from flows.progress import Reporter
from tasks.domain.catalogue.translate import translate
from tasks.domain.errors import ConfigError
from tasks.domain.parameters import ParameterSet


def fitted_set(parameter_set: ParameterSet, version: str, reporter: Reporter) -> ParameterSet:
    """Return the set in the words of the engine that is there; every change is told.

    A set without an engine in its provenance is taken as it is.

    Raises:
        ConfigError: SET_OF_OTHER_ENGINE, with the reason of every value that cannot be carried.
    """
    earned_on = parameter_set.provenance.engine
    if earned_on is None or earned_on == version:
        return parameter_set
    translation = translate(parameter_set.values, earned_on, version)
    if translation.values is None:
        reasons = "; ".join(reason for _, reason in translation.refused)
        raise ConfigError(
            f"parameter set {parameter_set.name!r} was earned on vLLM {earned_on} and cannot be "
            f"said in {version}: {reasons}; run the study again on this engine",
            code="SET_OF_OTHER_ENGINE",
        )
    for name, reason in translation.changed:
        reporter.line(f"set {parameter_set.name}: {name} carried to vLLM {version}: {reason}")
    return replace(parameter_set, values=translation.values)
