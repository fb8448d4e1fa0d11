"""The requirements of an attention layer, and the upper bounds of its steps."""

from dataclasses import dataclass
from typing import Optional


@dataclass(frozen=True)
class AttentionSpec:
    """The requirements of an attention layer, fixed for its lifetime. `num_heads` (query heads) is a multiple of `num_kv_heads`.

    Query row i of a sequence with n_q rows and n_k keys stands at position p = i + n_k - n_q. It sees key j if
    j <= p (`causal`), p - j <= `window_left` and j - p <= `window_right` (-1 = unbounded), and p and j lie in one chunk
    of `chunk` keys (0 = off); the first `sink_tokens` keys stay visible outside the window. `packed_mask`
    replaces all of these by one bit per query row and key, given with each step (causal must be False)."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    """D, the head size of Q and K."""
    dtype: str = "bfloat16"
    """The dtype of Q and O: "float32", "float16", "bfloat16"; also a torch or numpy dtype."""
    v_head_dim: Optional[int] = None
    """Dv, the head size of V and O; None = head_dim."""
    scale: Optional[float] = None
    """Multiplies q.k; None = head_dim ** -0.5."""
    softcap: float = 0.0
    """Scores become softcap * tanh(score / softcap); 0 = off."""
    kv_dtype: str = "auto"
    """The dtype of the KV cache: "auto" (= dtype), "fp8_e4m3", "fp8_e5m2", "int8_per_token_head", ..., as --kv-cache-dtype."""
    page_size: int = 16
    """Keys per page; 1 for keys in one ragged tensor."""
    causal: bool = True
    window_left: int = -1
    window_right: int = -1
    chunk: int = 0
    sink_tokens: int = 0
    spans: bool = False
    packed_mask: bool = False
    tree: bool = False
    has_sink: bool = False
    """A learned sink logit for each head: run(sinks=)."""
    lse_includes_sink: bool = False
    has_alibi: bool = False
    kv_x_packed: bool = False
    """Page layout: K [pages, Hkv, D / x, page size, x], where x elements are 16 bytes, and V [pages, Hkv, Dv, page size]."""
    encoder: bool = False
    """Bidirectional attention over the step's own rows."""
    per_head_scales: bool = False
    """An fp8 cache has one scale per KV head: run(k_scales=, v_scales=), fp32 [num_kv_heads]. On the CPU also [pages, page_size,
    num_kv_heads] ([rows, num_kv_heads] of ragged keys) of any strides: 0 between slots where a page has one scale."""
    kv_shuffle: bool = False
    """AITER's page layout: K as with kv_x_packed, V [pages, Hkv, page size / x, Dv, x]."""
    mla: bool = False
    """Latent attention, absorbed: one KV head, head_dim of a record (576), v_head_dim of its latent (512), which is V. `scale` must be
    given: it is that of the heads before absorption. run(v=None), k: [pages, page size, (1,) D], or 656 bytes of "fp8_ds_mla"."""
    sparse_topk: int = 0
    """With mla: rows see the keys of run(chosen=), at most this number; 0 = all."""


@dataclass(frozen=True)
class Limits:
    """Upper bounds of every step. The workspace size is a pure function of them and the spec."""

    max_seqs: int
    max_tokens: int
    """Query rows per step."""
    max_kv_tokens: int
    """Keys of all sequences of a step together."""
    max_kv_len: int
    """Keys of the longest sequence."""
    tune_for: str = "limits"
    """Selects the kernels and the splits of keys, which determine a row's bits. "limits": tuned for steps as large as these
    limits. "many" and "few": the same kernels under all limits, so that a row has the same bits under all limits that admit
    its step; "few" selects kernels that decode one or a few sequences faster than many. (No effect on a CPU.)"""
