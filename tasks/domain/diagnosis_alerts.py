"""The alerts of the guide's checklist (its section 6.5), as rules over the same facts."""

from tasks.domain.diagnosis_rule import Rule, When

ALERTS: tuple[Rule, ...] = tuple(
    Rule(
        id=f"alert-{name}",
        source="guide section 6.5",
        layer="alert",
        when=when,
        finding=text,
        try_next=(),
        cause=False,
    )
    for name, when, text in (
        ("temperature", (When(fact="gpu_temperature_c", op=">", limit=85.0),), "above 85 C"),
        ("preemption", (When(fact="preemptions_per_min", op=">", limit=0.0),), "preemptions"),
        (
            "ttft",
            (When(fact="ttft_p99_s", op=">", limit="slo_ttft_s", factor=0.6),),
            "TTFT p99 beyond 60 % of its limit",
        ),
        (
            "tpot",
            (When(fact="tpot_p99_s", op=">", limit="slo_tpot_s", factor=0.6),),
            "TPOT p99 beyond 60 % of its limit",
        ),
        (
            "hit-rate",
            (When(fact="prefix_hit_frac", op="<", limit=0.5),),
            "prefix cache hit rate under 50 %",
        ),
    )
)
