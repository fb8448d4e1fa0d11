"""FlashInfer's rotary embeddings. q [T, Hq, D], k [T, Hkv, D]; the first rotary_dim (None = D) elements of a head are rotated.

indptr [B + 1] and offsets [B]: row i of sequence b, rows indptr[b] and on, is at position offsets[b] + i. pos_ids [T]: the
positions themselves. interleave: pairs are (2 t, 2 t + 1), else (t, t + rotary_dim / 2). The angle of pair t is the position times
rope_theta^(-2 t / rotary_dim) / rope_scale; apply_llama31_rope blends the division by the wave's length. Angles are taken in fp64."""

from typing import Any, Optional, Tuple

from .._arrays import describe, dtype_name, framework_of
from ..cache import apply_rope_with_cos_sin_cache
from .common import angle_tables, frequencies, rotate, sequence_of_rows


def _rotated(
    q: Any, k: Any, at: Any, rotary_dim: Optional[int], interleave: bool, in_place: bool, theta: float, scale: float, *llama: float
) -> Tuple[Any, Any]:
    framework = framework_of(q)
    dim = q.shape[-1] if rotary_dim is None else int(rotary_dim)
    if dim < 2 or dim % 2 or dim > q.shape[-1]:
        raise ValueError(f"rotary_dim is {dim}; it must be even, and 2 to the head size {q.shape[-1]}")
    if tuple(at.shape) != (q.shape[0],):
        raise ValueError(f"there are {tuple(at.shape)} positions; q has {q.shape[0]} rows")
    if llama and llama[1] <= llama[0]:
        raise ValueError(f"high_freq_factor is {llama[1]} and low_freq_factor {llama[0]}; the high one must be the larger")
    cos, sin = angle_tables(framework, at, frequencies(dim, float(theta), float(scale), *llama))
    results = []
    for x in (q, k):
        out = x if in_place else framework.empty(tuple(x.shape), dtype_name(x.dtype), x)
        results.append(rotate(framework, x, cos, sin, bool(interleave), out))
    return results[0], results[1]


def _positions(q: Any, indptr: Any, offsets: Any) -> Any:
    framework = framework_of(indptr)
    if describe(offsets)[1] != (describe(indptr)[1][0] - 1,):  # type: ignore[index]
        raise ValueError(f"offsets has shape {tuple(offsets.shape)} and indptr {tuple(indptr.shape)}; they must be [B] and [B + 1]")
    sequence, i = sequence_of_rows(framework, indptr, q.shape[0], indptr)
    return i + offsets[sequence]


def apply_rope(
    q: Any, k: Any, indptr: Any, offsets: Any, rotary_dim: Optional[int] = None, interleave: bool = False, rope_scale: float = 1,
    rope_theta: float = 1e4,
) -> Tuple[Any, Any]:
    """q and k rotated."""
    return _rotated(q, k, _positions(q, indptr, offsets), rotary_dim, interleave, False, rope_theta, rope_scale)


def apply_rope_inplace(
    q: Any, k: Any, indptr: Any, offsets: Any, rotary_dim: Optional[int] = None, interleave: bool = False, rope_scale: float = 1,
    rope_theta: float = 1e4,
) -> None:
    """apply_rope into q and k."""
    _rotated(q, k, _positions(q, indptr, offsets), rotary_dim, interleave, True, rope_theta, rope_scale)


def apply_rope_pos_ids(
    q: Any, k: Any, pos_ids: Any, rotary_dim: Optional[int] = None, interleave: bool = False, rope_scale: float = 1,
    rope_theta: float = 1e4,
) -> Tuple[Any, Any]:
    """q and k rotated."""
    return _rotated(q, k, pos_ids, rotary_dim, interleave, False, rope_theta, rope_scale)


def apply_rope_pos_ids_inplace(
    q: Any, k: Any, pos_ids: Any, rotary_dim: Optional[int] = None, interleave: bool = False, rope_scale: float = 1,
    rope_theta: float = 1e4,
) -> None:
    """apply_rope_pos_ids into q and k."""
    _rotated(q, k, pos_ids, rotary_dim, interleave, True, rope_theta, rope_scale)


def apply_llama31_rope(
    q: Any, k: Any, indptr: Any, offsets: Any, rotary_dim: Optional[int] = None, interleave: bool = False, rope_scale: float = 8,
    rope_theta: float = 5e5, low_freq_factor: float = 1, high_freq_factor: float = 4, old_context_len: int = 8192,
) -> Tuple[Any, Any]:
    """apply_rope with Llama 3.1's frequencies."""
    llama = float(low_freq_factor), float(high_freq_factor), float(old_context_len)
    return _rotated(q, k, _positions(q, indptr, offsets), rotary_dim, interleave, False, rope_theta, rope_scale, *llama)


def apply_llama31_rope_inplace(
    q: Any, k: Any, indptr: Any, offsets: Any, rotary_dim: Optional[int] = None, interleave: bool = False, rope_scale: float = 8,
    rope_theta: float = 5e5, low_freq_factor: float = 1, high_freq_factor: float = 4, old_context_len: int = 8192,
) -> None:
    """apply_llama31_rope into q and k."""
    llama = float(low_freq_factor), float(high_freq_factor), float(old_context_len)
    _rotated(q, k, _positions(q, indptr, offsets), rotary_dim, interleave, True, rope_theta, rope_scale, *llama)


def apply_llama31_rope_pos_ids(
    q: Any, k: Any, pos_ids: Any, rotary_dim: Optional[int] = None, interleave: bool = False, rope_scale: float = 8,
    rope_theta: float = 5e5, low_freq_factor: float = 1, high_freq_factor: float = 4, old_context_len: int = 8192,
) -> Tuple[Any, Any]:
    """apply_rope_pos_ids with Llama 3.1's frequencies."""
    llama = float(low_freq_factor), float(high_freq_factor), float(old_context_len)
    return _rotated(q, k, pos_ids, rotary_dim, interleave, False, rope_theta, rope_scale, *llama)


def apply_llama31_rope_pos_ids_inplace(
    q: Any, k: Any, pos_ids: Any, rotary_dim: Optional[int] = None, interleave: bool = False, rope_scale: float = 8,
    rope_theta: float = 5e5, low_freq_factor: float = 1, high_freq_factor: float = 4, old_context_len: int = 8192,
) -> None:
    """apply_llama31_rope_pos_ids into q and k."""
    llama = float(low_freq_factor), float(high_freq_factor), float(old_context_len)
    _rotated(q, k, pos_ids, rotary_dim, interleave, True, rope_theta, rope_scale, *llama)


def apply_rope_with_cos_sin_cache_inplace(
    positions: Any, query: Any, key: Any, head_size: int, cos_sin_cache: Any, is_neox: bool = True
) -> None:
    """apply_rope_with_cos_sin_cache into query and key."""
    rotated = apply_rope_with_cos_sin_cache(positions, query, key, head_size, cos_sin_cache, is_neox)
    query[...], key[...] = rotated


__all__ = [
    "apply_llama31_rope", "apply_llama31_rope_inplace", "apply_llama31_rope_pos_ids", "apply_llama31_rope_pos_ids_inplace",
    "apply_rope", "apply_rope_inplace", "apply_rope_pos_ids", "apply_rope_pos_ids_inplace", "apply_rope_with_cos_sin_cache",
    "apply_rope_with_cos_sin_cache_inplace",
]
