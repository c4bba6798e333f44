"""Rows of the parameters that decide how the model itself is loaded, split and run."""

from tasks.domain.catalogue.row import Change, Default, Kind, Recommended, Row, Scenario

TENSOR_PARALLEL_SIZE = Row(
    name="tensor_parallel_size",
    kind=Kind.INT,
    meaning="devices over which every layer is split",
    change=Change.RESTART,
    source="vLLM 0.32.0 ParallelConfig and ModelConfig; guide section 2.8",
    acts_on=("weights per device", "KV pool", "TPOT", "communication"),
    low=1,
    defaults=(Default(value=1),),
    couples_with=("pipeline_parallel_size", "quantization", "gpu_memory_utilization"),
    recommended=(
        Recommended(scenario=Scenario.MODEL_7B, value=1, reason="one card holds it"),
        Recommended(scenario=Scenario.MODEL_13B_30B, value=2, reason="weights or pool too large",
                    doubt="a 13B model in bf16 (26 GB) fits one card of 80 GB with a large pool"),
        Recommended(scenario=Scenario.MODEL_70B, low=4, high=8, reason="140 GB of weights",
                    doubt="AWQ (about 40 GB) fits one 80 GB card, bf16 two H200"),
        Recommended(scenario=Scenario.MODEL_175B, low=8, reason="with pipeline parallelism too"),
    ),
    impact="the guide: 1 to 2 on a 7B model gives 1.3 times the throughput, for twice the cards",
    mistakes=(
        "used for speed on a model that fits one card",
        "heads or AWQ groups that it does not divide: the load dies after minutes",
        "the guide's claim that TP 8 alone cannot serve 70B: 70B in bf16 on 8 cards does",
    ),
    in_guide=True,
    guide_note="must divide the attention heads, and AWQ groups must divide on each rank",
)  # fmt: skip

PIPELINE_PARALLEL_SIZE = Row(
    name="pipeline_parallel_size",
    kind=Kind.INT,
    meaning="groups of devices over which layers are dealt out in order",
    change=Change.RESTART,
    source="vLLM 0.32.0 ParallelConfig",
    acts_on=("weights per device", "TTFT"),
    low=1,
    defaults=(Default(value=1),),
    couples_with=("tensor_parallel_size",),
    recommended=(
        Recommended(scenario=Scenario.MODEL_175B, low=2, reason="the guide adds it from 175B"),
    ),
)

DTYPE = Row(
    name="dtype",
    kind=Kind.CHOICE,
    meaning="element type of unquantized weights and activations",
    change=Change.RESTART,
    source="vLLM 0.32.0 ModelConfig",
    acts_on=("weight bytes", "KV bytes under kv_cache_dtype auto", "accuracy"),
    choices=("auto", "half", "float16", "bfloat16", "float", "float32"),
    special=(("auto", "the checkpoint's dtype; float32 checkpoints are run in 16 bits"),),
    defaults=(Default(value="auto"),),
    couples_with=("quantization", "kv_cache_dtype"),
    mistakes=(
        "half forced for every AWQ checkpoint: an old rule that changes numerics today",
        "float16 for Gemma 2, Gemma 3 or GLM-4: refused for numerical instability",
    ),
)

QUANTIZATION = Row(
    name="quantization",
    kind=Kind.TEXT,
    meaning="how the checkpoint's weights are packed; unset reads it from the checkpoint",
    change=Change.RESTART,
    source="vLLM 0.32.0 ModelConfig; guide sections 4 and 5",
    acts_on=("weight bytes", "TPOT at small batches", "accuracy", "KV pool"),
    defaults=(Default(value=None, note="from the checkpoint's config.json"),),
    couples_with=("dtype", "tensor_parallel_size"),
    impact="on an H200 AWQ gave 27 % more tokens for one stream and 5 % at 256 streams",
    mistakes=("believing INT4 halves bf16 weight traffic: it quarters it",
              "comparing arms that run at different tensor parallel sizes"),
    guide_note="the guide's third case says AWQ halves weight traffic; 4 of 16 bits is a quarter",
)  # fmt: skip

SPECULATIVE_CONFIG = Row(
    name="speculative_config",
    kind=Kind.JSON,
    meaning="draft method, draft model and number of drafted tokens",
    change=Change.RESTART,
    source="vLLM 0.32.0 EngineArgs; guide sections 2.1 and 4",
    acts_on=("TPOT at small batches", "compute", "memory of the draft model"),
    defaults=(Default(value=None, note="off"),),
    couples_with=("max_num_seqs", "async_scheduling"),
    recommended=(
        Recommended(scenario=Scenario.SPECULATIVE, reason="pays at batches of 16 and below"),
    ),
    impact="the guide: twice the TPOT at small batches, a loss at large ones",
    mistakes=("judged on prompts whose drafts are accepted more often than real traffic's",),
)

ENFORCE_EAGER = Row(
    name="enforce_eager",
    kind=Kind.BOOL,
    meaning="no compilation and no CUDA graphs",
    change=Change.RESTART,
    source="vLLM 0.32.0 ModelConfig",
    acts_on=("start-up time", "TPOT at small batches", "graph memory"),
    defaults=(Default(value=False),),
    couples_with=("cudagraph_capture_sizes",),
    mistakes=("left on after debugging: small batches pay launch overhead at every step",),
)

CUDAGRAPH_CAPTURE_SIZES = Row(
    name="cudagraph_capture_sizes",
    kind=Kind.JSON,
    meaning="batch sizes in tokens for which CUDA graphs are captured",
    change=Change.RESTART,
    source="vLLM 0.32.0 VllmConfig._set_cudagraph_sizes",
    acts_on=("start-up time", "graph memory", "padding of small batches"),
    defaults=(
        Default(value=None, note="1, 2, 4, by 8 to 256, by 16 to min(2 x max_num_seqs, 512)"),
    ),
    couples_with=("max_num_seqs", "max_cudagraph_capture_size", "enforce_eager"),
    mistakes=("comparing a live cap with a restart whose default list of sizes is another",),
)

MAX_CUDAGRAPH_CAPTURE_SIZE = Row(
    name="max_cudagraph_capture_size",
    kind=Kind.INT,
    meaning="largest batch in tokens that runs as a CUDA graph",
    change=Change.RESTART,
    source="vLLM 0.32.0 VllmConfig._set_cudagraph_sizes",
    acts_on=("start-up time", "graph memory"),
    low=1,
    defaults=(Default(value=None, note="min(2 x max_num_seqs, 512); 1024 on Blackwell"),),
    couples_with=("cudagraph_capture_sizes", "max_num_seqs"),
)

ROWS = (
    TENSOR_PARALLEL_SIZE,
    PIPELINE_PARALLEL_SIZE,
    DTYPE,
    QUANTIZATION,
    SPECULATIVE_CONFIG,
    ENFORCE_EAGER,
    CUDAGRAPH_CAPTURE_SIZES,
    MAX_CUDAGRAPH_CAPTURE_SIZE,
)
