"""FlashAttention 3's functions: the names and the order of arguments of its flash_attn_interface.

As those of fovea.flash_attn, which has the semantics, with FlashAttention 3's meaning of return_attn_probs: the LSE is returned
too. Arguments that only tune (num_splits, pack_gqa) are accepted."""

from typing import Any, Optional, Sequence, Tuple

from . import flash_attn as _fa
from ._arrays import dtype_name, framework_of
from .cache import merge_states

_Window = Sequence[Optional[int]]


def flash_attn_func(
    q: Any,
    k: Any,
    v: Any,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    qv: Any = None,
    q_descale: Any = None,
    k_descale: Any = None,
    v_descale: Any = None,
    window_size: _Window = (-1, -1),
    attention_chunk: int = 0,
    softcap: float = 0.0,
    num_splits: int = 1,
    pack_gqa: Optional[bool] = None,
    deterministic: bool = False,
    sm_margin: int = 0,
    return_attn_probs: bool = False,
) -> Any:
    """q [B, Sq, Hq, D], k [B, Sk, Hkv, D], v [B, Sk, Hkv, Dv]: out, or (out, lse [B, Hq, Sq]) with return_attn_probs."""
    return _fa.flash_attn_func(
        q, k, v, softmax_scale=softmax_scale, causal=causal, window_size=window_size, softcap=softcap, deterministic=deterministic,
        return_softmax_lse=return_attn_probs, qv=qv, q_descale=q_descale, k_descale=k_descale, v_descale=v_descale,
        attention_chunk=attention_chunk, num_splits=num_splits, pack_gqa=pack_gqa, sm_margin=sm_margin,
    )


def flash_attn_qkvpacked_func(
    qkv: Any,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    q_descale: Any = None,
    k_descale: Any = None,
    v_descale: Any = None,
    window_size: _Window = (-1, -1),
    attention_chunk: int = 0,
    softcap: float = 0.0,
    deterministic: bool = False,
    num_heads_q: Optional[int] = None,
    sm_margin: int = 0,
    return_attn_probs: bool = False,
) -> Any:
    """flash_attn_func of qkv [B, S, 3, H, D], or with num_heads_q of [B, S, Hq + 2 Hkv, D]."""
    if num_heads_q is None:
        if len(qkv.shape) != 5 or qkv.shape[2] != 3:
            raise ValueError(f"qkv has shape {tuple(qkv.shape)}; it must be [B, S, 3, H, D], or [B, S, Hq + 2 Hkv, D] with num_heads_q")
        q, k, v = qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2]
    else:
        rest = qkv.shape[2] - num_heads_q if len(qkv.shape) == 4 else -1
        if rest <= 0 or rest % 2:
            raise ValueError(f"qkv has shape {tuple(qkv.shape)} and num_heads_q is {num_heads_q}; it must be [B, S, Hq + 2 Hkv, D]")
        middle = num_heads_q + rest // 2
        q, k, v = qkv[:, :, :num_heads_q], qkv[:, :, num_heads_q:middle], qkv[:, :, middle:]
    return flash_attn_func(
        q, k, v, softmax_scale, causal, None, q_descale, k_descale, v_descale, window_size, attention_chunk, softcap, 1, None,
        deterministic, sm_margin, return_attn_probs,
    )


def flash_attn_varlen_func(
    q: Any,
    k: Any,
    v: Any,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any,
    max_seqlen_q: int,
    max_seqlen_k: int,
    seqused_q: Any = None,
    seqused_k: Any = None,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    qv: Any = None,
    q_descale: Any = None,
    k_descale: Any = None,
    v_descale: Any = None,
    window_size: _Window = (-1, -1),
    attention_chunk: int = 0,
    softcap: float = 0.0,
    num_splits: int = 1,
    pack_gqa: Optional[bool] = None,
    deterministic: bool = False,
    sm_margin: int = 0,
    return_attn_probs: bool = False,
) -> Any:
    """q [Tq, Hq, D], k [Tk, Hkv, D], v [Tk, Hkv, Dv]: out, or (out, lse [Hq, Tq]) with return_attn_probs."""
    return _fa.flash_attn_varlen_func(
        q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, softmax_scale=softmax_scale, causal=causal,
        window_size=window_size, softcap=softcap, deterministic=deterministic, return_softmax_lse=return_attn_probs,
        seqused_q=seqused_q, seqused_k=seqused_k, qv=qv, q_descale=q_descale, k_descale=k_descale, v_descale=v_descale,
        attention_chunk=attention_chunk, num_splits=num_splits, pack_gqa=pack_gqa, sm_margin=sm_margin,
    )


def flash_attn_with_kvcache(
    q: Any,
    k_cache: Any,
    v_cache: Any,
    k: Any = None,
    v: Any = None,
    qv: Any = None,
    rotary_cos: Any = None,
    rotary_sin: Any = None,
    cache_seqlens: Any = None,
    cache_batch_idx: Any = None,
    cache_leftpad: Any = None,
    page_table: Any = None,
    cu_seqlens_q: Any = None,
    cu_seqlens_k_new: Any = None,
    max_seqlen_q: Optional[int] = None,
    rotary_seqlens: Any = None,
    q_descale: Any = None,
    k_descale: Any = None,
    v_descale: Any = None,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    window_size: _Window = (-1, -1),
    attention_chunk: int = 0,
    softcap: float = 0.0,
    rotary_interleaved: bool = True,
    scheduler_metadata: Any = None,
    num_splits: int = 0,
    pack_gqa: Optional[bool] = None,
    sm_margin: int = 0,
    return_softmax_lse: bool = False,
) -> Any:
    """fovea.flash_attn_with_kvcache."""
    return _fa.flash_attn_with_kvcache(
        q, k_cache, v_cache, k, v, rotary_cos, rotary_sin, cache_seqlens, cache_batch_idx, cache_leftpad, page_table, softmax_scale,
        causal, window_size, softcap, rotary_interleaved, None, num_splits, return_softmax_lse, qv=qv, cu_seqlens_q=cu_seqlens_q,
        cu_seqlens_k_new=cu_seqlens_k_new, max_seqlen_q=max_seqlen_q, rotary_seqlens=rotary_seqlens, q_descale=q_descale,
        k_descale=k_descale, v_descale=v_descale, attention_chunk=attention_chunk, scheduler_metadata=scheduler_metadata,
        pack_gqa=pack_gqa, sm_margin=sm_margin,
    )


def flash_attn_combine(out_partial: Any, lse_partial: Any, out: Any = None, out_dtype: Any = None) -> Tuple[Any, Any]:
    """Parts over disjoint sets of keys merged: out_partial [parts, B, S, H, Dv] and lse_partial [parts, B, S, H] fp32, or both
    without B, give (out, lse [B, S, H]). out_dtype: that of out_partial, the default."""
    name = str(out_partial.dtype).rsplit(".", 1)[-1]
    if out_dtype is not None and dtype_name(out_dtype) != name:
        raise ValueError(
            f"out_dtype is {dtype_name(out_dtype)} and out_partial {name}; parts are merged in their dtype: convert the result"
        )
    shape = tuple(out_partial.shape[1:])
    if len(shape) not in (3, 4) or tuple(lse_partial.shape) != tuple(out_partial.shape[:-1]):
        raise ValueError(
            f"out_partial has shape {tuple(out_partial.shape)} and lse_partial {tuple(lse_partial.shape)}; they must be "
            "[parts, B, S, H, Dv] and [parts, B, S, H], or both without B"
        )
    if out is not None and tuple(out.shape) != shape:
        raise ValueError(f"out has shape {tuple(out.shape)}; it must be {shape}")
    parts, heads, dim = out_partial.shape[0], shape[-2], shape[-1]
    dense = framework_of(out_partial).contiguous
    merged, lse = merge_states(dense(out_partial).reshape(parts, -1, heads, dim), dense(lse_partial).reshape(parts, -1, heads))
    merged = merged.reshape(shape)
    if out is not None:
        out[...] = merged
        merged = out
    return merged, lse.reshape(shape[:-1])


def get_scheduler_metadata(
    batch_size: int,
    max_seqlen_q: int,
    max_seqlen_k: int,
    num_heads_q: int,
    num_heads_kv: int,
    headdim: int,
    cache_seqlens: Any,
    qkv_dtype: Any = None,
    headdim_v: Optional[int] = None,
    cu_seqlens_q: Any = None,
    cu_seqlens_k_new: Any = None,
    cache_leftpad: Any = None,
    page_size: Optional[int] = None,
    max_seqlen_k_new: int = 0,
    causal: bool = False,
    window_size: _Window = (-1, -1),
    attention_chunk: int = 0,
    has_softcap: bool = False,
    num_splits: int = 0,
    pack_gqa: Optional[bool] = None,
    sm_margin: int = 0,
) -> None:
    """None: there is nothing to prepare, as a call plans by itself. fovea.Attention plans once for all layers of a step."""


__all__ = [
    "flash_attn_combine", "flash_attn_func", "flash_attn_qkvpacked_func", "flash_attn_varlen_func", "flash_attn_with_kvcache",
    "get_scheduler_metadata",
]
