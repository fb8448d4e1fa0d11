"""What a layer needs and how large its steps get."""

from dataclasses import dataclass
from typing import Optional


@dataclass(frozen=True)
class AttentionSpec:
    """What an attention layer needs; fixed for its life. `num_heads` (query heads) is a multiple of `num_kv_heads`.

    Query row i of a sequence with n_q rows and n_k keys stands at position p = i + n_k - n_q. It sees key j if
    j <= p (`causal`), p - j <= `window_left` and j - p <= `window_right` (-1 = unbounded), and p and j lie in one chunk
    of `chunk` keys (0 = off); the first `sink_tokens` keys stay visible outside the window. `packed_mask`
    replaces all of that by bits of the step (causal must be False)."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    """D of Q and K."""
    dtype: str = "bfloat16"
    """Of Q and O: "float32", "float16", "bfloat16"; also a dtype of torch or numpy."""
    v_head_dim: Optional[int] = None
    """Dv of V and O; None = head_dim."""
    scale: Optional[float] = None
    """Multiplies q.k; None = head_dim ** -0.5."""
    softcap: float = 0.0
    """softcap * tanh(score / softcap); 0 = off."""
    kv_dtype: str = "auto"
    """"auto" (= dtype), "fp8_e4m3", "fp8_e5m2", "int8_per_token_head", ..., as --kv-cache-dtype takes it."""
    page_size: int = 16
    """Keys of a page; 1 for keys in one ragged tensor."""
    causal: bool = True
    window_left: int = -1
    window_right: int = -1
    chunk: int = 0
    sink_tokens: int = 0
    spans: bool = False
    packed_mask: bool = False
    tree: bool = False
    has_sink: bool = False
    """Learned sink logits of heads: run(sinks=)."""
    lse_includes_sink: bool = False
    has_alibi: bool = False
    kv_x_packed: bool = False
    """K [pages, Hkv, D / x, page size, x] with x = 16 bytes of elements, V [pages, Hkv, Dv, page size]."""
    encoder: bool = False
    """Bidirectional attention over the step's own rows."""
    per_head_scales: bool = False
    """An fp8 cache has scales of heads: run(k_scales=, v_scales=) of [num_kv_heads] fp32."""
    kv_shuffle: bool = False
    """K as with kv_x_packed, V [pages, Hkv, page size / x, Dv, x]: AITER's layout."""


@dataclass(frozen=True)
class Limits:
    """Upper bounds of every step. The workspace is a pure function of them and of the spec."""

    max_seqs: int
    max_tokens: int
    """Query rows of a step."""
    max_kv_tokens: int
    """Keys of all sequences of a step."""
    max_kv_len: int
    """Keys of the longest."""
    tune_for: str = "limits"
    """What kernels, and the splits of keys between them, are chosen for; a row's bits depend on it. "limits": steps as large
    as these limits. "many" and "few": the same under all limits, so that a row has the same bits under all that admit its
    step; "few" by kernels that decode one or a few sequences faster than many. (On a CPU all three are the same.)"""
