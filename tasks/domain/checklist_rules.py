"""The rules behind the checklist's items: evidence in, mark and sentence out."""

from tasks.domain.checklist_evidence import ChecklistEvidence, Mark
from tasks.domain.hardware import GIB, Flavour

Verdict = tuple[Mark, str]

THROTTLE_CELSIUS = 85.0
CANARY_FRAC = 0.05
OBSERVATION_S = 24 * 3600.0
LONG_PROMPT_TOKENS = 2048
REUSE_WORTH_FRAC = 0.1


def _unknown(what: str) -> Verdict:
    return Mark.UNKNOWN, f"{what} is not known; record it before the release"


def priority(e: ChecklistEvidence) -> Verdict:
    """A declared priority, and a cap on sequences that was chosen rather than inherited."""
    if e.priority is None:
        return _unknown("the priority, latency or throughput,")
    cap = e.values.get("max_num_seqs")
    if cap is None:
        return Mark.WARN, f"{e.priority} comes first, yet max_num_seqs is the engine's default"
    return Mark.PASS, f"{e.priority} comes first and max_num_seqs={cap} was set"


def lengths(e: ChecklistEvidence) -> Verdict:
    """The p99 prompt and output together stay within max_model_len."""
    if e.lengths is None:
        return _unknown("the distribution of lengths")
    longest = e.lengths.prompt_p99 + e.lengths.output_p99
    limit = None if e.plan is None else e.plan.effective.max_model_len
    if limit is None:
        return Mark.UNKNOWN, f"p99 prompt and output take {longest} tokens; max_model_len unknown"
    if longest > limit:
        return Mark.FAIL, f"p99 prompt and output take {longest} tokens, max_model_len is {limit}"
    if limit > 4 * longest:
        return Mark.WARN, f"max_model_len={limit} is over four times the p99 need of {longest}"
    return Mark.PASS, f"p99 prompt and output take {longest} of max_model_len={limit} tokens"


def reuse(e: ChecklistEvidence) -> Verdict:
    """The share of reusable prompt tokens is known at all."""
    if e.reuse_frac is None:
        return _unknown("prefix reuse of the traffic")
    return Mark.PASS, f"{e.reuse_frac:.0%} of prompt tokens lie in reusable prefixes"


def memory(e: ChecklistEvidence) -> Verdict:
    """The memory plan has no finding that stops the engine."""
    if e.plan is None:
        return _unknown("the memory plan")
    if not e.plan.fits:
        return Mark.FAIL, "; ".join(p.sentence for p in e.plan.problems)
    return Mark.PASS, f"weights, pool of {e.plan.kv_pool_tokens:,} tokens and buffers fit"


def sharing(e: ChecklistEvidence) -> Verdict:
    """What the engine asks for and what others hold is no more than the device."""
    if e.plan is not None and e.plan.flavour is Flavour.CPU:
        return Mark.PASS, "the engine runs on the CPU; no GPU is shared"
    if e.other_gpu_bytes is None or e.plan is None or e.plan.budget_bytes is None:
        return _unknown("what other processes hold on the GPU")
    share = e.plan.effective.gpu_memory_utilization
    total = e.plan.budget_bytes / share
    left = total - e.plan.budget_bytes
    held = f"others hold {e.other_gpu_bytes / GIB:.1f} GiB, {left / GIB:.1f} GiB are left to them"
    return (Mark.FAIL if e.other_gpu_bytes > left else Mark.PASS), held


def cooling(e: ChecklistEvidence) -> Verdict:
    """No throttling seen, and the hottest reading under 85 degrees."""
    if e.throttled:
        return Mark.FAIL, "the device throttled under load"
    if e.max_temperature_celsius is None:
        return _unknown("the temperature under load")
    seen = f"the hottest reading was {e.max_temperature_celsius:.0f} degrees Celsius"
    hot = e.max_temperature_celsius > THROTTLE_CELSIUS
    return (Mark.FAIL if hot else Mark.PASS), seen


def inflection(e: ChecklistEvidence) -> Verdict:
    """The cap is no higher than the last concurrency with a flat p99."""
    cap = e.values.get("max_num_seqs")
    if cap is None and e.plan is not None:
        cap = e.plan.effective.max_num_seqs
    if e.inflection_concurrency is None or not isinstance(cap, int):
        return _unknown("the concurrency at which p99 rises")
    sentence = f"max_num_seqs={cap}, p99 is flat up to {e.inflection_concurrency} requests"
    return (Mark.PASS if cap <= e.inflection_concurrency else Mark.WARN), sentence


def worst_case(e: ChecklistEvidence) -> Verdict:
    """The product against the pool; beyond it is a warning, because KV is paged, not reserved."""
    if e.plan is None:
        return _unknown("the memory plan")
    ratio = e.plan.worst_case_tokens / max(1, e.plan.kv_pool_tokens)
    sentence = f"the worst case is {ratio:.2f} times the pool; vLLM preempts beyond it"
    if ratio <= 1:
        return Mark.PASS, sentence
    safe, cap = e.plan.concurrency_safe, e.plan.effective.max_num_seqs
    if safe is not None and safe >= cap:
        return Mark.PASS, f"{sentence}, but {cap} requests of p99 length fit"
    return Mark.WARN, sentence


def headroom(e: ChecklistEvidence) -> Verdict:
    """At most 0.9 of the memory; vLLM's own default of 0.92 earns a warning."""
    if e.plan is None:
        return _unknown("gpu_memory_utilization")
    if e.plan.flavour is Flavour.CPU and e.plan.kv_exact:
        return Mark.PASS, "the KV pool on the CPU is sized explicitly"
    share = e.plan.effective.gpu_memory_utilization
    sentence = f"gpu_memory_utilization={share:g} leaves {1 - share:.0%} of the memory"
    return (Mark.PASS if share <= 0.9 else Mark.WARN), sentence


def no_swap(e: ChecklistEvidence) -> Verdict:
    """swap_space must not be asked for, and no request was preempted under load."""
    asked = e.values.get("swap_space")
    if asked not in (None, 0) and e.online is not False:
        return Mark.FAIL, f"swap_space={asked}: removed in vLLM 0.18, and never for online use"
    if e.preemptions is None:
        return _unknown("the number of preemptions under load")
    sentence = f"{e.preemptions} preemptions under load"
    return (Mark.PASS if e.preemptions == 0 else Mark.WARN), sentence


def prefix_caching(e: ChecklistEvidence) -> Verdict:
    """On (the default) where reuse is worth it."""
    if e.reuse_frac is None:
        return _unknown("prefix reuse of the traffic")
    off = e.values.get("enable_prefix_caching") is False
    state = "off" if off else "on"
    sentence = f"{e.reuse_frac:.0%} of prompt tokens are reusable and prefix caching is {state}"
    return (Mark.FAIL if off and e.reuse_frac >= REUSE_WORTH_FRAC else Mark.PASS), sentence


def chunked_prefill(e: ChecklistEvidence) -> Verdict:
    """On (the default) where the p99 prompt is long."""
    if e.lengths is None:
        return _unknown("the distribution of lengths")
    off = e.values.get("enable_chunked_prefill") is False
    state = "off" if off else "on"
    sentence = f"the p99 prompt has {e.lengths.prompt_p99} tokens and chunked prefill is {state}"
    long_prompts = e.lengths.prompt_p99 >= LONG_PROMPT_TOKENS
    return (Mark.FAIL if off and long_prompts else Mark.PASS), sentence


def reference(e: ChecklistEvidence) -> Verdict:
    """The reference has an accuracy report."""
    if e.reference_evaluated is None:
        return _unknown("whether the bf16 reference was evaluated")
    if not e.reference_evaluated:
        return Mark.FAIL, "the bf16 reference has no accuracy report"
    return Mark.PASS, "the bf16 reference has an accuracy report"


def quantized(e: ChecklistEvidence) -> Verdict:
    """The quantized checkpoint has one too, where one is to be released."""
    if e.quantized is False:
        return Mark.PASS, "the checkpoint to release is not quantized"
    if e.quantized is None or e.quantized_evaluated is None:
        return _unknown("whether the quantized checkpoint was evaluated")
    if not e.quantized_evaluated:
        return Mark.FAIL, "the quantized checkpoint has no accuracy report"
    return Mark.PASS, "the quantized checkpoint has an accuracy report"


def accuracy_drop(e: ChecklistEvidence) -> Verdict:
    """The upper bound of the drop, not its mean, is under the margin."""
    if e.quantized is False:
        return Mark.PASS, "the checkpoint to release is not quantized"
    if e.accuracy_drop_upper is None:
        return _unknown("the upper bound of the accuracy drop")
    sentence = (
        f"the drop is at most {100 * e.accuracy_drop_upper:.2f} points, "
        f"the margin is {100 * e.accuracy_margin:.2f}"
    )
    return (Mark.PASS if e.accuracy_drop_upper < e.accuracy_margin else Mark.FAIL), sentence


def _alert(e: ChecklistEvidence, name: str, wanted: float, *, at_most: bool) -> Verdict:
    if e.alerts is None:
        return _unknown("the list of alert rules")
    threshold = e.alert(name)
    if threshold is None:
        return Mark.FAIL, f"there is no alert {name}"
    good = threshold <= wanted if at_most else threshold >= wanted
    sentence = f"alert {name} fires at {threshold:g}, the guide asks for {wanted:g}"
    return (Mark.PASS if good else Mark.WARN), sentence


def temperature_alert(e: ChecklistEvidence) -> Verdict:
    """Alert gpu_temperature_celsius at 85 or below."""
    return _alert(e, "gpu_temperature_celsius", THROTTLE_CELSIUS, at_most=True)


def preemption_alert(e: ChecklistEvidence) -> Verdict:
    """Alert preemptions at 0: any preemption."""
    return _alert(e, "preemptions", 0.0, at_most=True)


def p99_alert(e: ChecklistEvidence) -> Verdict:
    """Alert p99_slo_frac at 0.6 or below."""
    return _alert(e, "p99_slo_frac", 0.6, at_most=True)


def hit_rate_alert(e: ChecklistEvidence) -> Verdict:
    """Alert prefix_hit_rate_frac at 0.5 or above; without reuse it would only cry wolf."""
    if e.reuse_frac is not None and e.reuse_frac < REUSE_WORTH_FRAC:
        return Mark.PASS, f"only {e.reuse_frac:.0%} of prompt tokens are reusable; no alert needed"
    return _alert(e, "prefix_hit_rate_frac", 0.5, at_most=False)


def canary(e: ChecklistEvidence) -> Verdict:
    """The first share of traffic is 5 % or less, and not nothing."""
    if e.canary_frac is None:
        return _unknown("the first share of traffic")
    good = 0 < e.canary_frac <= CANARY_FRAC
    return (Mark.PASS if good else Mark.FAIL), f"the new set takes {e.canary_frac:.0%} first"


def observation(e: ChecklistEvidence) -> Verdict:
    """At least 24 hours of watching are planned or done."""
    if e.observation_s is None:
        return _unknown("the time of observation")
    good = e.observation_s >= OBSERVATION_S
    sentence = f"{e.observation_s / 3600:.1f} hours of observation"
    return (Mark.PASS if good else Mark.FAIL), sentence


def rollback(e: ChecklistEvidence) -> Verdict:
    """A set to return to is named."""
    if e.rollback_set is None:
        return _unknown("the parameter set to roll back to")
    return Mark.PASS, f"{e.rollback_set} is ready to be rolled back to"
