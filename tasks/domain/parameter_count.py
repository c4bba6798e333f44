"""Count a decoder's parameters from its shapes, split by what quantization does to them."""

from dataclasses import dataclass

from tasks.domain.model_shapes import MlaShape, MoeShape

# Models whose config.json leaves these facts to the code that builds them.
_FOUR_NORMS = {"gemma2", "gemma3", "gemma3_text"}
_QK_NORM = {"qwen3", "qwen3_moe", "gemma3", "gemma3_text"}
_QKV_BIAS = {"qwen2", "qwen2_moe"}
_PLAIN_MLP = {"phi", "gpt_neox", "opt", "starcoder2", "nemotron"}


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderShape:
    """What the count needs; sizes in elements."""

    model_type: str
    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    tied_embeddings: bool
    attention_bias: bool
    mlp_bias: bool
    mla: MlaShape | None
    moe: MoeShape | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterCount:
    """Parameters by role.

    linear: weights that weight-only quantization packs; routed_experts: the part of ``linear``
    of which a token uses experts_per_token / experts. embedding: input table and, when not tied,
    output head. other: norms, biases, routers.
    """

    linear: int
    routed_experts: int
    embedding: int
    other: int
    output_head: int
    active_frac: float

    @property
    def total(self) -> int:
        """All parameters of the checkpoint."""
        return self.linear + self.embedding + self.other

    @property
    def active(self) -> int:
        """Parameters that one token's forward pass touches, embedding tables whole."""
        idle = round(self.routed_experts * (1 - self.active_frac))
        return self.total - idle

    @property
    def matmul(self) -> int:
        """Active parameters that are multiplied: linear layers and the output head.

        The input table is looked up, not multiplied.
        """
        idle = round(self.routed_experts * (1 - self.active_frac))
        return self.linear - idle + self.output_head


def _attention(shape: DecoderShape) -> tuple[int, int]:
    """Return (linear, other) of one layer's attention."""
    hidden, heads, mla = shape.hidden_size, shape.num_heads, shape.mla
    if mla is not None:
        query_dim = heads * (mla.qk_nope_head_dim + mla.qk_rope_head_dim)
        rank = mla.q_lora_rank
        query = hidden * query_dim if rank is None else hidden * rank + rank * query_dim
        down = hidden * (mla.kv_lora_rank + mla.qk_rope_head_dim)
        up = mla.kv_lora_rank * heads * (mla.qk_nope_head_dim + mla.v_head_dim)
        norms = mla.kv_lora_rank + (rank or 0)
        return query + down + up + heads * mla.v_head_dim * hidden, norms
    query, key = heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
    other = 0
    if shape.attention_bias or shape.model_type in _QKV_BIAS:
        other += query + 2 * key
    if shape.attention_bias:
        other += hidden
    if shape.model_type in _QK_NORM:
        other += 2 * shape.head_dim
    return hidden * (2 * query + 2 * key), other


def count_parameters(shape: DecoderShape) -> ParameterCount:
    """Return the counts.

    Attention: hidden x (2 query + 2 key widths), or the latent projections of MLA. MLP: 3 x hidden
    x width when gated, else 2. Experts: experts x 3 x hidden x width, plus shared ones and a
    router of hidden x experts.
    """
    hidden, layers, moe = shape.hidden_size, shape.num_layers, shape.moe
    matrices = 2 if shape.model_type in _PLAIN_MLP else 3
    attention, attention_other = _attention(shape)
    sparse = 0 if moe is None else moe.sparse_layers
    width = shape.intermediate_size
    dense_mlp = (layers - sparse) * matrices * hidden * width
    mlp_bias = (layers - sparse) * ((matrices - 1) * width + hidden) if shape.mlp_bias else 0
    routed = shared = router = 0
    if moe is not None:
        routed = sparse * moe.experts * matrices * hidden * moe.expert_width
        shared = sparse * matrices * hidden * moe.shared_width
        router = sparse * (hidden * moe.experts + (hidden if moe.shared_gate else 0))
    norms = layers * (4 if shape.model_type in _FOUR_NORMS else 2) * hidden + hidden
    table = shape.vocab_size * hidden
    return ParameterCount(
        linear=layers * attention + dense_mlp + routed + shared,
        routed_experts=routed,
        embedding=table if shape.tied_embeddings else 2 * table,
        other=layers * attention_other + mlp_bias + router + norms,
        output_head=table,
        active_frac=1.0 if moe is None else moe.experts_per_token / moe.experts,
    )
