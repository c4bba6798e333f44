"""Rows of the parameters that decide how much KV cache there is and how it is kept."""

from tasks.domain.catalogue.row import Change, Default, Kind, Recommended, Row, Scenario
from tasks.domain.hardware import DeviceClass

MAX_MODEL_LEN = Row(
    name="max_model_len",
    kind=Kind.INT,
    meaning="most tokens, prompt and output together, of one request",
    change=Change.RESTART,
    source="vLLM 0.32.0 ModelConfig; guide section 2.2",
    acts_on=("admission of requests", "smallest KV pool that may start"),
    low=1,
    special=((-1, "the longest that fits in memory"), ("auto", "the longest that fits in memory")),
    defaults=(Default(value=None, note="max_position_embeddings of the model"),),
    couples_with=("max_num_seqs", "max_num_batched_tokens", "gpu_memory_utilization"),
    recommended=(
        Recommended(scenario=Scenario.SHORT_CHAT, value=2048, reason="saves KV memory",
                    doubt="it bounds a request; the pool is what memory leaves in any case"),
        Recommended(scenario=Scenario.LONG_DOCUMENTS, low=8192, high=16384, reason="needed"),
        Recommended(scenario=Scenario.RAG, value=4096, reason="retrieval depth against memory"),
        Recommended(scenario=Scenario.ULTRA_LONG, low=32768,
                    reason="needs memory and chunked prefill"),
    ),
    impact="the guide: 4096 to 16384 takes four times the KV memory; true of the worst case only",
    mistakes=(
        "far above the traffic's p99: the worst case grows, the pool does not",
        "below prompt plus output of real requests: they fail with a context length error",
        "sized without max_num_seqs",
    ),
    in_guide=True,
    guide_note=(
        "KV is paged: nothing reserves max_model_len x max_num_seqs. The guide's formula counts "
        "hidden size and heads twice and prints 8 GB for Llama-2-7B, 4096 x 32; it is 64 GiB"
    ),
)  # fmt: skip

GPU_MEMORY_UTILIZATION = Row(
    name="gpu_memory_utilization",
    kind=Kind.FLOAT,
    meaning="share of the device's TOTAL memory for weights, activations and KV of this instance",
    change=Change.RESTART,
    source="vLLM 0.32.0 CacheConfig and Worker.determine_available_memory; guide section 2.3",
    acts_on=("KV pool", "head-room of other processes"),
    low=0.0,
    low_open=True,
    high=1.0,
    defaults=(Default(value=0.92, note="0.9 in old releases; on CPU a share of host memory"),),
    couples_with=("kv_cache_memory_bytes", "max_model_len", "max_num_seqs"),
    recommended=(
        Recommended(scenario=Scenario.WHOLE_GPU, low=0.85, high=0.9, reason="largest pool"),
        Recommended(scenario=Scenario.SHARED_GPU, low=0.4, high=0.5, reason="room for others"),
        Recommended(scenario=Scenario.EMBEDDER_BESIDE, low=0.6, high=0.7, reason="room beside"),
        Recommended(scenario=Scenario.FAILOVER, low=0.5, high=0.6, reason="head-room",
                    doubt="a smaller pool cannot absorb a failed neighbour's traffic"),
    ),
    impact="the guide: 0.9 to 0.7 cuts the pool by 22 %; more in truth, since weights stay",
    mistakes=(
        "the default beside another process: the start fails on free memory",
        "0.95 and above: CUDA graphs come on top and allocation fails later",
    ),
    in_guide=True,
    guide_note=(
        "the default is 0.92; it is checked against FREE memory at start and "
        "kv_cache_memory_bytes overrides it reproducibly"
    ),
)  # fmt: skip

KV_CACHE_MEMORY_BYTES = Row(
    name="kv_cache_memory_bytes",
    kind=Kind.INT,
    meaning="size of the KV pool on each device in bytes; replaces the utilization's arithmetic",
    change=Change.RESTART,
    source="vLLM 0.32.0 CacheConfig; on CPU the variable VLLM_CPU_KVCACHE_SPACE (GiB) beats it",
    acts_on=("KV pool",),
    low=1,
    defaults=(Default(value=None, note="computed from gpu_memory_utilization"),),
    couples_with=("gpu_memory_utilization",),
    mistakes=("larger than what weights leave: memory runs out after the profiling was skipped",),
)

BLOCK_SIZE = Row(
    name="block_size",
    kind=Kind.INT,
    meaning="tokens of one KV page",
    change=Change.RESTART,
    source="vLLM 0.32.0 CacheConfig, CpuPlatform, FlashAttention backend; guide section 2.4",
    acts_on=("fragmentation", "choice of attention backend", "prefix cache granularity"),
    low=1,
    defaults=(
        Default(value=128, device=DeviceClass.CPU),
        Default(value=16, note="unless the attention backend prefers another"),
    ),
    recommended=(
        Recommended(scenario=Scenario.USUAL, value=16, reason="well optimized"),
        Recommended(scenario=Scenario.EXTREME_LATENCY, value=8, reason="less fragmentation",
                    doubt="most backends of today have no kernel for 8"),
        Recommended(scenario=Scenario.EXTREME_THROUGHPUT, value=32, reason="less metadata"),
    ),
    impact="small either way; a value the backend lacks changes the backend silently",
    mistakes=("taking larger for faster", "changing it without measuring again",
              "16 on CPU: compiles for minutes, then dies"),
    in_guide=True,
    guide_note="on CPU the default is 128 and the value must be a multiple of 32",
)  # fmt: skip

ENABLE_PREFIX_CACHING = Row(
    name="enable_prefix_caching",
    kind=Kind.BOOL,
    meaning="keeps KV pages of finished prompts and reuses them for equal prefixes",
    change=Change.RESTART,
    source="vLLM 0.32.0 EngineArgs; guide section 2.6",
    acts_on=("TTFT", "prefill work"),
    defaults=(Default(value=True, note="where the model supports it"),),
    couples_with=("block_size",),
    recommended=(
        Recommended(scenario=Scenario.MULTI_TURN, value=True, reason="the history is reused"),
        Recommended(scenario=Scenario.RAG, value=True, reason="the system prompt is reused"),
        Recommended(scenario=Scenario.SINGLE_TURN, value=False, reason="nothing to reuse",
                    doubt="hashing costs next to nothing now; measure an off-arm first"),
        Recommended(scenario=Scenario.STRUCTURED_OUTPUT, value=True, reason="shared examples"),
    ),
    impact="the guide: TTFT from 200 ms to 50 ms in dialogues",
    mistakes=("off with multi-turn traffic", "a benchmark that repeats its prompts and calls the "
              "cache hits a faster engine"),
    in_guide=True,
    guide_note="on by default: it is the baseline, and only an off-arm can show its worth",
)  # fmt: skip

KV_CACHE_DTYPE = Row(
    name="kv_cache_dtype",
    kind=Kind.CHOICE,
    meaning="element type of cached keys and values",
    change=Change.RESTART,
    source="vLLM 0.32.0 CacheDType",
    acts_on=("KV bytes per token", "accuracy", "choice of attention backend"),
    choices=("auto", "float16", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2", "int8_per_token_head",
             "fp8_per_token_head", "int4_per_token_head", "nvfp4"),
    special=(("auto", "the model's own dtype"),),
    defaults=(Default(value="auto"),),
    couples_with=("dtype", "block_size"),
    impact="fp8 halves KV bytes and so doubles the pool in tokens",
    mistakes=("judged on speed alone: it changes answers and needs the accuracy gate",),
)  # fmt: skip

KV_OFFLOADING_SIZE = Row(
    name="kv_offloading_size",
    kind=Kind.FLOAT,
    meaning="GiB of host memory, over all ranks, to which KV pages are copied for reuse",
    change=Change.RESTART,
    source="vLLM 0.32.0 CacheConfig; vllm-project/vllm issue 26858",
    acts_on=("prefix reuse beyond device memory", "host memory"),
    low=0.0,
    low_open=True,
    defaults=(Default(value=None, note="off"),),
    couples_with=("enable_prefix_caching",),
    mistakes=("taken for swap_space: it widens the prefix cache and pauses no request",),
)

SWAP_SPACE = Row(
    name="swap_space",
    kind=Kind.FLOAT,
    meaning="GiB of host memory to which the first engine swapped KV of preempted requests",
    change=Change.RESTART,
    source="vllm-project/vllm pull request 36216 (removed); guide section 2.5",
    acts_on=("nothing since V1",),
    low=0.0,
    removed="0.18.0",
    nearest="kv_offloading_size",
    defaults=(Default(value=4.0),),
    recommended=(
        Recommended(scenario=Scenario.ONLINE_CHAT, value=0, reason="swapping ruins p99",
                    doubt="the parameter is gone"),
        Recommended(scenario=Scenario.OFFLINE_BATCH, low=16, high=32, reason="occasional swap",
                    doubt="the parameter is gone"),
        Recommended(scenario=Scenario.TIGHT_RAM, value=0, reason="host memory is short",
                    doubt="the parameter is gone"),
    ),
    impact="the guide: a swap takes a request from 50 ms to over 500 ms",
    mistakes=("varying it today: every trial is the same trial",),
    in_guide=True,
    guide_note=(
        "it did nothing since the V1 engine: a preempted request is recomputed; watch "
        "vllm:num_preemptions instead of swapped requests"
    ),
)  # fmt: skip

ROWS = (
    MAX_MODEL_LEN,
    GPU_MEMORY_UTILIZATION,
    KV_CACHE_MEMORY_BYTES,
    BLOCK_SIZE,
    ENABLE_PREFIX_CACHING,
    KV_CACHE_DTYPE,
    KV_OFFLOADING_SIZE,
    SWAP_SPACE,
)
