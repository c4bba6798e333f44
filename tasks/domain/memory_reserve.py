"""How much device memory vLLM keeps for anything but weights and KV: a calibrated estimate.

The constants come from two start-ups of vLLM 0.24.0 on one H200 (8B shape, bf16, 8192 tokens a
step, 1024 sequences): 1.17 and 1.11 GiB between weights and pool, graphs of 0.98 GiB on top. The
shape of the formula is reasoned, its size is measured at one point only.
"""

from dataclasses import dataclass

from tasks.domain.catalogue.installed import at_least
from tasks.domain.hardware import GIB
from tasks.domain.model_spec import ModelSpec

_FIXED_BYTES = round(0.355 * GIB)
_GRAPH_BYTES = 0.98 * GIB
_GRAPH_COUNT, _GRAPH_LAYERS = 102, 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserve:
    """Bytes on one rank; ``graphs_in_pool``: whether the engine takes graphs off the KV pool."""

    activation_bytes: int
    fixed_bytes: int
    graph_bytes: int
    graphs_in_pool: bool

    @property
    def before_pool_bytes(self) -> int:
        """What the profiling run takes off the pool."""
        graphs = self.graph_bytes if self.graphs_in_pool else 0
        return self.activation_bytes + self.fixed_bytes + graphs


def activation_bytes(
    model: ModelSpec, *, tokens: int, seqs: int, element_bytes: int, tensor_parallel: int
) -> int:
    """Return the peak of vLLM's profiling forward pass of ``tokens`` tokens.

    The larger of the MLP's moment, tokens x element x (2 hidden + 3 width / ranks): residual,
    normed input, gate and up, their product; and the sampler's, sequences x vocabulary x 8 B:
    float32 logits and one copy. Width of a sparse layer: experts a token x expert width + shared.
    """
    width = model.intermediate_size
    if model.moe is not None:
        sparse = model.moe.experts_per_token * model.moe.expert_width + model.moe.shared_width
        width = max(width, sparse)
    mlp = tokens * element_bytes * (2 * model.hidden_size + 3 * width / tensor_parallel)
    sampler = min(seqs, tokens) * model.vocab_size * 8
    return round(max(mlp, sampler))


def capture_sizes(graph_tokens: int) -> int:
    """Return how many batch sizes vLLM captures by default up to ``graph_tokens``.

    1, 2, 4, then every 8 below 256, then every 16.
    """
    small = sum(1 for size in (1, 2, 4) if size <= graph_tokens)
    medium = len(range(8, min(graph_tokens + 1, 256), 8))
    return small + medium + len(range(256, graph_tokens + 1, 16))


def graph_bytes(model: ModelSpec, *, graph_tokens: int) -> int:
    """Return the memory of captured graphs, each size once whole and once piecewise.

    Measured 0.98 GiB for 102 graphs of 32 layers, scaled by both counts.
    """
    count = 2 * capture_sizes(graph_tokens)
    return round(_GRAPH_BYTES * count / _GRAPH_COUNT * model.num_layers / _GRAPH_LAYERS)


def reserve(
    model: ModelSpec,
    *,
    tokens: int,
    seqs: int,
    element_bytes: int,
    tensor_parallel: int,
    graph_tokens: int,
    engine_version: str | None,
) -> Reserve:
    """Return the whole reserve on one GPU.

    vLLM 0.24.0's new runner did not take graphs off the pool (its log shows it), 0.32.0 does (its
    code). An unknown version is treated as the later: the plan then errs on the small side.
    """
    return Reserve(
        activation_bytes=activation_bytes(
            model,
            tokens=tokens,
            seqs=seqs,
            element_bytes=element_bytes,
            tensor_parallel=tensor_parallel,
        ),
        fixed_bytes=_FIXED_BYTES,
        graph_bytes=graph_bytes(model, graph_tokens=graph_tokens),
        graphs_in_pool=engine_version is None or at_least(engine_version, "0.25.0"),
    )
