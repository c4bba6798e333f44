"""What a search starts from besides vLLM's defaults: the guide's scenario and a known inflection.

Fixed when a search begins and kept with it, so that a search that is run again asks the same.
"""

from dataclasses import dataclass

from tasks.domain.catalogue.row import Scenario
from tasks.domain.inflection import Inflection
from tasks.domain.parameters import Regime
from tasks.domain.slo import Slo


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchStart:
    """The scenario and the inflection point, each with where it comes from; None is not known."""

    scenario: Scenario | None = None
    scenario_source: str = ""
    inflection: Inflection | None = None
    inflection_source: str = ""


NO_START = SearchStart()


def search_start(
    regime: Regime,
    slo: Slo,
    *,
    asked: Scenario | None = None,
    inflection: Inflection | None = None,
    inflection_source: str = "",
) -> SearchStart:
    """Return the start of a search: the scenario that was asked for, else the regime's."""
    scenario, source = asked, "the study's search part names the scenario"
    if asked is None:
        scenario, source = scenario_of(regime, slo)
    return SearchStart(
        scenario=scenario,
        scenario_source=source,
        inflection=inflection,
        inflection_source=inflection_source,
    )


def scenario_of(regime: Regime, slo: Slo) -> tuple[Scenario | None, str]:
    """Return the guide's scenario for a regime under an SLO and why, None where it has none.

    The guide (section 1.2) puts throughput first in the daytime peak and latency first in the
    night's trough; its table of max_num_seqs (section 2.1) calls the two online batch and online
    chat. A chat's reader waits for tokens, so an SLO on E2E alone is none. For failover the guide
    changes gpu_memory_utilization only, which no live knob is.
    """
    if regime is Regime.PEAK:
        return Scenario.ONLINE_BATCH, "regime peak: throughput first (guide section 1.2)"
    if regime is Regime.OFF_PEAK and (slo.ttft_s is not None or slo.tpot_s is not None):
        return (
            Scenario.ONLINE_CHAT,
            "regime off_peak, an SLO on tokens: latency first (guide section 1.2)",
        )
    return None, ""
