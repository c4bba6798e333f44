"""What observations mean, as data: the guide's bottleneck table in today's terms, and more.

Adding knowledge is adding a row. The order of FIRST_READING is the order of precedence.
"""

from tasks.domain.diagnosis_rule import Rule, When

GUIDE_TABLE = "guide section 3 step 5"
BANDWIDTH, COMPUTE, OVERHEAD = "memory bandwidth", "compute", "scheduling or overhead"
NEAR_CAP = 0.95

FIRST_READING: tuple[Rule, ...] = (
    Rule(
        id="client-limited",
        source="design section 6: the client measures itself",
        layer="client",
        when=(When(fact="client_late", op="=", limit=1.0),),
        finding="the load client missed its own times; these latencies are not the engine's",
        try_next=("add client worker processes or a faster client host, and measure again",),
    ),
    Rule(
        id="thermal-throttling",
        source=f"{GUIDE_TABLE}, row 4",
        layer="thermal",
        when=(When(fact="gpu_temperature_c", op=">", limit=85.0),),
        finding="the GPU is above 85 C and lowers its clocks",
        try_next=("improve cooling", "lower max_num_seqs until it is cool"),
    ),
    Rule(
        id="clocks-throttled",
        source="NVML clock throttle reasons, beside the guide's temperature limit",
        layer="thermal",
        when=(When(fact="thermal_frac", op=">", limit=0.05),),
        finding="the driver held the clocks down for temperature in part of the window",
        try_next=("improve cooling", "repeat the measurement once the GPU is cool"),
    ),
    Rule(
        id="kv-pressure",
        source=f"{GUIDE_TABLE}, row 5 and section 5 case 1 (swapping; V1 preempts instead)",
        layer="KV memory",
        when=(When(fact="preemptions_per_min", op=">", limit=1.0),),
        finding="the KV cache runs full; requests are preempted and computed again",
        try_next=(
            "lower max_num_seqs to before the concurrency-p99 inflection",
            "quantize weights (AWQ) or the KV cache (kv_cache_dtype) to free memory",
            "raise gpu_memory_utilization if the GPU is this engine's alone",
            "raise tensor_parallel_size",
        ),
    ),
    Rule(
        id="kv-nearly-full",
        source="style section 7; vLLM admits by free KV blocks",
        layer="KV memory",
        when=(
            When(fact="kv_usage_p95_frac", op=">", limit=0.95),
            When(fact="waiting_mean", op=">", limit=0.5),
        ),
        finding="requests wait while the KV cache has no room, not for a free sequence slot",
        try_next=("quantize weights to free memory", "kv_cache_dtype fp8 where supported"),
    ),
    Rule(
        id="compute-bound",
        source=f"{GUIDE_TABLE}, row 2",
        layer=COMPUTE,
        when=(
            When(fact="gpu_util_frac", op=">", limit=0.9),
            When(fact="memory_bus_frac", op=">", limit=0.9),
        ),
        finding="kernels run all the time and the memory bus is busy all the time",
        try_next=(
            "quantize weights and activations (fp8 or INT8; weight-only INT4 adds arithmetic)",
            "add a replica or raise tensor_parallel_size",
        ),
    ),
    Rule(
        id="cpu-saturated",
        source="hosts without a GPU: the guide's GPU rows have no reading there",
        layer="host CPU",
        when=(
            When(fact="gpus", op="=", limit=0.0),
            When(fact="host_cpu_frac", op=">", limit=0.85),
            When(fact="engine_cpu_frac", op=">=", limit=0.7),
        ),
        finding="the engine computes on the CPU and keeps the cores busy",
        try_next=(
            "give the engine all cores (VLLM_CPU_OMP_THREADS_BIND)",
            "run the load client on another host",
        ),
    ),
    Rule(
        id="cpu-contended",
        source="hosts without a GPU: the guide's GPU rows have no reading there",
        layer="host CPU",
        when=(
            When(fact="gpus", op="=", limit=0.0),
            When(fact="host_cpu_frac", op=">", limit=0.85),
            When(fact="engine_cpu_frac", op="<", limit=0.7),
        ),
        finding="all cores are busy, and much of it is not the engine",
        try_next=("stop what else runs on this host and measure again",),
    ),
    Rule(
        id="queue-at-cap",
        source="guide section 2.1 (48 of 64 requests queue behind a ceiling of 16)",
        layer="scheduling",
        when=(
            When(fact="waiting_mean", op=">", limit=0.5),
            When(fact="running_max", op=">=", limit="max_num_seqs", factor=NEAR_CAP),
        ),
        finding="requests queue while the running batch is at max_num_seqs",
        try_next=("raise max_num_seqs as far as TPOT stays inside the SLO", "lower the rate"),
    ),
    Rule(
        id="queue-below-cap",
        source="vLLM's scheduler: the step's token budget is spent before the sequence cap",
        layer="scheduling",
        when=(
            When(fact="waiting_mean", op=">", limit=0.5),
            When(fact="running_max", op="<", limit="max_num_seqs", factor=NEAR_CAP),
            When(fact="kv_usage_p95_frac", op="<=", limit=0.95),
        ),
        finding="requests queue although slots and KV memory are free: the token budget is spent",
        try_next=("raise max_num_batched_tokens", "lower the rate"),
    ),
    Rule(
        id="slow-prefill",
        source=f"{GUIDE_TABLE}, row 6 and section 5 case 2 (chunked prefill is on by default)",
        layer="prefill",
        when=(
            When(fact="ttft_p99_s", op=">", limit="slo_ttft_s"),
            When(fact="prompt_tokens_mean", op=">=", limit=1000.0),
        ),
        finding="long prompts miss the TTFT limit",
        try_next=(
            "tune max_num_batched_tokens (chunked prefill is on by default)",
            "set long_prefill_token_threshold so that short prompts pass long ones",
            "keep enable_prefix_caching on where prompts share a beginning",
        ),
    ),
    Rule(
        id="ttft-is-queueing",
        source="guide section 5 case 2 (what prefill does not explain is queueing)",
        layer="scheduling",
        when=(
            When(fact="ttft_p99_s", op=">", limit="slo_ttft_s"),
            When(fact="queue_time_mean_s", op=">", limit="prefill_time_mean_s"),
        ),
        finding="most of the time to the first token is spent in the queue",
        try_next=("raise max_num_seqs or max_num_batched_tokens", "lower the rate"),
    ),
    Rule(
        id="memory-bound",
        source=f"{GUIDE_TABLE}, row 3",
        layer=BANDWIDTH,
        when=(
            When(fact="gpu_util_frac", op="<", limit=0.5),
            When(fact="memory_bus_frac", op=">", limit=0.9),
        ),
        finding="the memory bus is busy while kernels run less than half the time",
        try_next=(
            "quantize weights (AWQ: a quarter of bf16's weight bytes)",
            "speculative decoding",
        ),
    ),
    Rule(
        id="memory-bound-wide",
        source="guide section 4.2 (utilization 30-60 %), which its case 3 needs",
        layer=BANDWIDTH,
        when=(
            When(fact="gpu_util_frac", op=">=", limit=0.3),
            When(fact="gpu_util_frac", op="<=", limit=0.6),
            When(fact="memory_bus_frac", op=">=", limit=0.9),
        ),
        finding="the memory bus is busy at a middling GPU utilization",
        try_next=(
            "quantize weights (AWQ: a quarter of bf16's weight bytes)",
            "speculative decoding",
        ),
    ),
    Rule(
        id="launch-gaps",
        source="guide section 3 step 3 (kernel launch overhead)",
        layer=OVERHEAD,
        when=(When(fact="kernel_busy_frac", op="<", limit=0.7),),
        finding="the GPU idles between kernels: launching them or the host's work takes the time",
        try_next=(
            "raise max_num_seqs or the offered load (larger batches)",
            "keep CUDA graphs on (no --enforce-eager) and async_scheduling on",
        ),
    ),
    Rule(
        id="small-batch",
        source=f"{GUIDE_TABLE}, row 1 (continuous batching is always on today)",
        layer=OVERHEAD,
        when=(
            When(fact="gpu_util_frac", op="<", limit=0.5),
            When(fact="memory_bus_frac", op="<", limit=0.5),
        ),
        finding="neither kernels nor the memory bus are busy half the time",
        try_next=("raise max_num_seqs if requests wait, else offer more load",),
    ),
    Rule(
        id="slow-decode",
        source=f"{GUIDE_TABLE}, row 7",
        layer="decode",
        when=(When(fact="tpot_p99_s", op=">", limit="slo_tpot_s"),),
        finding="decode steps take longer than the TPOT limit",
        try_next=(
            "lower max_num_batched_tokens, so that prefill delays decode steps less",
            "lower max_num_seqs",
            "quantize weights (AWQ)",
            "speculative decoding at small batches",
        ),
        cause=False,
    ),
    Rule(
        id="low-prefix-hit-rate",
        source="guide section 2.6 (hit rate under 10 %)",
        layer="prefix cache",
        when=(
            When(fact="prefix_hit_frac", op="<", limit=0.1),
            When(fact="trace_reuse_frac", op=">=", limit=0.1),
        ),
        finding="the prefix cache is hardly hit in this window",
        try_next=("look whether the trace's reuse is lost between replicas or to evictions",),
        cause=False,
    ),
    Rule(
        id="not-loaded",
        source="guide section 3 step 1 (power far below the limit: not fully loaded)",
        layer="load",
        when=(
            When(fact="power_frac", op="<", limit=0.5),
            When(fact="waiting_mean", op="<=", limit=0.5),
        ),
        finding="the GPU draws under half its power limit and nothing waits: the load is small",
        try_next=("offer more load before judging a parameter",),
        cause=False,
    ),
)

# 0.65 of the bandwidth is what one stream reached on an H200 with bf16 weights alone.
SECOND_READING: tuple[Rule, ...] = (
    Rule(
        id="roofline-bandwidth",
        source="design section 5: bytes a step over its time and the card's bandwidth",
        layer=BANDWIDTH,
        when=(When(fact="mbu_frac", op=">=", limit=0.55),),
        finding="steps move bytes near what the card's memory can",
        try_next=("quantize weights (AWQ)", "larger batches share one reading of the weights"),
    ),
    Rule(
        id="roofline-compute",
        source="design section 5: FLOPs a step over its time and the card's peak",
        layer=COMPUTE,
        when=(When(fact="mfu_frac", op=">=", limit=0.45),),
        finding="steps compute near what the card can",
        try_next=("quantize weights and activations", "add a replica"),
    ),
    Rule(
        id="roofline-neither",
        source="design section 5: neither roof is near",
        layer=OVERHEAD,
        when=(
            When(fact="mbu_frac", op="<", limit=0.55),
            When(fact="mfu_frac", op="<", limit=0.45),
        ),
        finding="neither bandwidth nor compute is near its peak: time goes elsewhere",
        try_next=("look at the kernel table for gaps", "larger batches, CUDA graphs"),
    ),
)
