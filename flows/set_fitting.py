"""Fits a parameter set that was earned on another engine version to the installed one."""

from dataclasses import replace

from flows.materials import Host
from flows.progress import Reporter
from tasks.domain.catalogue.translate import translate
from tasks.domain.errors import ConfigError
from tasks.domain.parameters import ParameterSet


def fitted_set(parameter_set: ParameterSet, host: Host, reporter: Reporter) -> ParameterSet:
    """Return the set in the installed engine's words; every change is told.

    A set without an engine in its provenance is taken as it is.

    Raises:
        ConfigError: SET_OF_OTHER_ENGINE, with the reason of every value that cannot be carried.
    """
    earned_on, installed = parameter_set.provenance.engine, host.installed.version
    if earned_on is None or earned_on == installed:
        return parameter_set
    translation = translate(parameter_set.values, earned_on, installed)
    if translation.values is None:
        reasons = "; ".join(reason for _, reason in translation.refused)
        raise ConfigError(
            f"parameter set {parameter_set.name!r} was earned on vLLM {earned_on} and cannot be "
            f"said in {installed}: {reasons}; run the study again on this engine",
            code="SET_OF_OTHER_ENGINE",
        )
    for name, reason in translation.changed:
        reporter.line(f"set {parameter_set.name}: {name} carried to vLLM {installed}: {reason}")
    return replace(parameter_set, values=translation.values)
