"""Rows of the parameters that decide who runs in a step, and how many tokens of it."""

from tasks.domain.catalogue.row import Change, Default, Kind, Recommended, Row, Scenario
from tasks.domain.hardware import DeviceClass

_BATCH_DEFAULTS = "vLLM 0.32.0 EngineArgs.get_batch_defaults; guide section 2.1"

MAX_NUM_SEQS = Row(
    name="max_num_seqs",
    kind=Kind.INT,
    meaning="most requests that run in one step; the ceiling of continuous batching",
    change=Change.LIVE,
    source=_BATCH_DEFAULTS,
    acts_on=("concurrency", "TPOT", "throughput", "KV demand", "sampler memory"),
    low=1,
    defaults=(
        Default(value=1024, device=DeviceClass.BLACKWELL),
        Default(value=1024, device=DeviceClass.H100_H200),
        Default(value=256, device=DeviceClass.OTHER_GPU),
        Default(value=128, device=DeviceClass.CPU, note="times the world size"),
    ),
    couples_with=("max_num_batched_tokens", "max_model_len", "cudagraph_capture_sizes"),
    recommended=(
        Recommended(
            scenario=Scenario.ONLINE_CHAT, low=16, high=32, reason="a small batch protects p99",
            doubt="on an H200 with an 8B model 32 met the SLO for 56 % of requests, 256 for 98 %",
        ),
        Recommended(
            scenario=Scenario.ONLINE_BATCH, low=64, high=128, reason="a larger batch gives more",
        ),
        Recommended(
            scenario=Scenario.OFFLINE_BATCH, low=256, reason="latency does not matter",
        ),
        Recommended(
            scenario=Scenario.SPECULATIVE, high=16,
            reason="verifying drafts costs compute that a large batch needs",
        ),
    ),
    impact="16 to 64 is said to triple throughput and to raise p99 five to ten times",
    mistakes=(
        "so high that the KV pool fills and requests are preempted and recomputed",
        "so low that requests queue while the GPU has room",
        "one value for peak and trough",
    ),
    in_guide=True,
    guide_note=(
        "256 is no longer the default everywhere: servers on H100 and H200 start with 1024; and "
        "nothing is swapped today, a preempted request is recomputed"
    ),
)  # fmt: skip

MAX_NUM_BATCHED_TOKENS = Row(
    name="max_num_batched_tokens",
    kind=Kind.INT,
    meaning="most tokens, of prompts and decodes together, that one step may hold",
    change=Change.LIVE,
    source=_BATCH_DEFAULTS + "; SchedulerConfig.verify_max_model_len",
    acts_on=("TTFT", "ITL of running requests", "activation memory"),
    low=1,
    defaults=(
        Default(value=16384, device=DeviceClass.BLACKWELL),
        Default(value=8192, device=DeviceClass.H100_H200),
        Default(value=2048, device=DeviceClass.OTHER_GPU),
        Default(value=2048, device=DeviceClass.CPU, note="times the world size"),
    ),
    couples_with=("max_num_seqs", "max_model_len", "enable_chunked_prefill"),
    recommended=(
        Recommended(
            scenario=Scenario.ULTRA_LONG, low=2048,
            reason="the guide asks to tune it together with chunked prefill and gives no number",
        ),
    ),
    impact="less makes decodes smoother and prompts slower; it is the knob of chunked prefill",
    mistakes=(
        "below max_num_seqs: the engine refuses to start",
        "below max_model_len with chunked prefill off: the engine refuses to start",
        "left at 8192 when the SLO is on TPOT",
    ),
    guide_note="the guide only mentions it; with chunked prefill always on it is the main knob",
)  # fmt: skip

ENABLE_CHUNKED_PREFILL = Row(
    name="enable_chunked_prefill",
    kind=Kind.BOOL,
    meaning="cuts long prompts into pieces that share steps with decodes",
    change=Change.RESTART,
    source="vLLM 0.32.0 EngineArgs; guide section 2.7",
    acts_on=("ITL of running requests", "TTFT of long prompts"),
    defaults=(Default(value=True, note="where the model supports it; unset lets vLLM decide"),),
    couples_with=("max_num_batched_tokens", "max_model_len"),
    recommended=(
        Recommended(
            scenario=Scenario.LONG_PROMPTS_ONLINE, value=True,
            reason="a long prefill does not stop the decodes",
        ),
        Recommended(
            scenario=Scenario.SHORT_PROMPTS_OFFLINE, value=False, reason="chunking is overhead",
            doubt="vLLM warns that a generating model does not support switching it off",
        ),
        Recommended(
            scenario=Scenario.ULTRA_LONG, value=True,
            reason="a whole 32k prompt in one step needs too much memory",
        ),
    ),
    impact="the guide: p99 of waiting decodes from 500 ms to 50 ms on long prompts",
    mistakes=(
        "switched off for offline work without raising max_num_batched_tokens to max_model_len",
        "on, with max_num_batched_tokens never tuned",
    ),
    in_guide=True,
    guide_note=(
        "practically always on today, so it is a baseline and no gain; the guide's second case "
        "claims a TTFT of 380 ms below its own 666 ms of prefill, which chunking cannot give"
    ),
)  # fmt: skip

LONG_PREFILL_TOKEN_THRESHOLD = Row(
    name="long_prefill_token_threshold",
    kind=Kind.INT,
    meaning="caps the tokens a step gives to one prompt longer than this",
    change=Change.RESTART,
    source="vLLM 0.32.0 SchedulerConfig",
    acts_on=("TTFT of short prompts behind long ones",),
    low=0,
    special=((0, "no cap"),),
    defaults=(Default(value=0),),
    couples_with=("max_model_len", "max_num_batched_tokens"),
    mistakes=("above max_model_len: the engine refuses to start",),
)

ASYNC_SCHEDULING = Row(
    name="async_scheduling",
    kind=Kind.BOOL,
    meaning="plans the next step while the device runs this one",
    change=Change.RESTART,
    source="vLLM 0.14.0 release notes (on by default from there), 0.32.0 CPU platform",
    acts_on=("gaps between steps", "TPOT of small models"),
    defaults=(
        Default(value=False, device=DeviceClass.CPU, note="not needed on CPU"),
        Default(value=True),
    ),
    couples_with=("speculative_config", "scheduler_cls"),
    mistakes=("a custom scheduler derived from Scheduler instead of AsyncScheduler turns it off",),
)

MAX_NUM_QUEUED_REQS = Row(
    name="max_num_queued_reqs",
    kind=Kind.INT,
    meaning="most requests that may wait; one more is refused at once instead of queued",
    change=Change.RESTART,
    source="vLLM 0.32.0 SchedulerConfig",
    acts_on=("TTFT under overload", "failed requests"),
    low=0,
    added="0.32.0",
    defaults=(Default(value=None, note="no limit"),),
    couples_with=("max_num_seqs",),
    recommended=(
        Recommended(
            scenario=Scenario.FAILOVER, low=0,
            reason="not the guide's: refusing early keeps the rest inside the SLO",
        ),
    ),
    mistakes=("counting refused requests as good because they were answered fast",),
)  # fmt: skip

PERFORMANCE_MODE = Row(
    name="performance_mode",
    kind=Kind.CHOICE,
    meaning="a preset: throughput doubles the defaults of both batch limits, interactivity "
    "captures finer CUDA graphs at small batches",
    change=Change.RESTART,
    source="vllm-project/vllm pull request 34936 (February 2026); 0.32.0 EngineArgs",
    acts_on=("max_num_seqs", "max_num_batched_tokens", "cudagraph_capture_sizes"),
    choices=("balanced", "interactivity", "throughput"),
    defaults=(Default(value="balanced"),),
    couples_with=("max_num_seqs", "max_num_batched_tokens"),
    mistakes=("throughput beside explicit batch limits: it doubles only those left unset",),
)

ROWS = (
    MAX_NUM_SEQS,
    MAX_NUM_BATCHED_TOKENS,
    ENABLE_CHUNKED_PREFILL,
    LONG_PREFILL_TOKEN_THRESHOLD,
    ASYNC_SCHEDULING,
    MAX_NUM_QUEUED_REQS,
    PERFORMANCE_MODE,
)
