"""Writing to, copying in and reading from paged caches, rotary embedding, and merging partial results."""

import threading
from typing import Any, Dict, Optional, Sequence, Tuple

from ._arrays import DTYPE_NAMES, Framework, describe, describe_written, dtype_name, framework_of
from ._lib import CPU, CUDA_HOST, Arg, CAppend, Fields, check, check_scales, fail, lib
from ._lib import tensor as tensor_pointer
from ._serve import same_device, shape_of

_WRITTEN = frozenset(("q_out", "k_cache", "v_cache", "k_scales", "v_scales"))
_APPEND_ARRAYS = (
    "q", "q_out", "k", "v", "k_cache", "v_cache", "k_scales", "v_scales", "slots", "q_offsets", "kv_lens", "page_table", "q_norm",
    "k_norm", "cos", "sin", "positions",
)


class _Append(threading.local):
    def __init__(self) -> None:
        self.fields = Fields(CAppend)


_append = _Append()


def _stream(framework: Framework, arg: Arg) -> Optional[int]:
    return None if arg[4][0] in (CPU, CUDA_HOST) else framework.stream(arg[4])


def append(
    arrays: Dict[str, Any],
    stream: Optional[int],
    k_scale: Optional[float] = None,
    v_scale: Optional[float] = None,
    kv_dtype: Optional[str] = None,
    norm_eps: float = 0.0,
) -> None:
    """fovea_append with described arrays (and "interleaved"); the caller keeps the arrays alive."""
    fields = _append.fields
    c = fields.c
    fields.put_all({name: arrays.get(name) for name in _APPEND_ARRAYS})
    c.kv_dtype = kv_dtype.encode() if kv_dtype else None
    check_scales(k_scale, v_scale)
    c.k_scale, c.v_scale = k_scale or 0.0, v_scale or 0.0
    c.norm_eps = norm_eps
    c.interleaved = int(arrays.get("interleaved", False))
    status = lib.fovea_append(fields.ref, stream)
    if status:
        fail(status)


def append_kv(
    k: Any,
    v: Any,
    k_cache: Any,
    v_cache: Any,
    *,
    slots: Any = None,
    q_offsets: Any = None,
    kv_lens: Any = None,
    page_table: Any = None,
    q: Any = None,
    q_out: Any = None,
    q_norm: Any = None,
    k_norm: Any = None,
    norm_eps: float = 1e-6,
    cos: Any = None,
    sin: Any = None,
    positions: Any = None,
    interleaved: bool = False,
    kv_dtype: Optional[str] = None,
    k_scale: float = 1.0,
    v_scale: float = 1.0,
    k_scales: Any = None,
    v_scales: Any = None,
    stream: Optional[int] = None,
) -> Any:
    """Writes new rows k [T, Hkv, D] and v [T, Hkv, Dv] into a cache [pages, page_size, Hkv, D or Dv], after RMS norm of heads
    (q_norm, k_norm: [D] fp32) and rotation (cos, sin: [positions, R / 2] fp32), quantised where the cache is.

    Where: slots [T] = page * page_size + offset, below 0 = nowhere; or row i of sequence b, rows q_offsets[b] ([B + 1]) and
    on, goes to position kv_lens[b] - n_q + i by page_table [B, pages]. positions [T] for the rotation: None = those
    positions, else row t for token t. q [T, Hq, D] is normed and rotated too, into q_out (allocated when not given; may be
    q). interleaved: pairs are (2t, 2t + 1), else (t, t + R / 2). kv_dtype: the cache's dtype, if its arrays do not determine it.
    k_scales, v_scales [pages, page_size, Hkv] fp32 are written, of int8_per_token_head.

    Returns q_out, or None without q."""
    first = q if k is None else k
    framework = framework_of(first)
    framework.refuse_grad(q, k, v)
    if q is not None and q_out is None:
        q_out = framework.empty(tuple(describe(q)[1]), _name(framework, q), q)  # type: ignore[index]
    arrays = {
        "q": q, "q_out": q_out, "k": k, "v": v, "k_cache": k_cache, "v_cache": v_cache, "k_scales": k_scales,
        "v_scales": v_scales, "slots": slots, "q_offsets": q_offsets, "kv_lens": kv_lens, "page_table": page_table,
        "q_norm": q_norm, "k_norm": k_norm, "cos": cos, "sin": sin, "positions": positions,
    }
    described: Dict[str, Any] = {
        name: describe_written(x, name) if name in _WRITTEN else describe(x) for name, x in arrays.items()
    }
    described["interleaved"] = interleaved
    if stream is None:
        stream = _stream(framework, framework.describe(first))
    append(described, stream, k_scale, v_scale, kv_dtype, norm_eps)
    return q_out


def _name(framework: Framework, x: Any) -> str:
    return DTYPE_NAMES[framework.describe(x)[3]]


def kv_pair(kv: Any, layout: str) -> Tuple[Any, Any]:
    """k and v [pages, page_size, Hkv, D] of FlashInfer's paged_kv_cache: (k, v), or one array [pages, 2, ...]; in "NHD"
    pages are [page_size, Hkv, D], in "HND" [Hkv, page_size, D]."""
    if layout not in ("NHD", "HND"):
        raise ValueError(f'kv_layout is {layout!r}; allowed are "NHD" and "HND"')
    if isinstance(kv, (tuple, list)):
        if len(kv) != 2:
            raise ValueError(f"the cache is a tuple of {len(kv)}; it must be (k, v)")
        k, v = kv
    else:
        if len(kv.shape) != 5 or kv.shape[1] != 2:
            raise ValueError(f"the cache has shape {tuple(kv.shape)}; it must be [pages, 2, ...] or a pair (k, v)")
        k, v = kv[:, 0], kv[:, 1]
    if layout == "HND":
        k, v = k.swapaxes(1, 2), v.swapaxes(1, 2)
    return k, v


def append_paged_kv_cache(
    append_key: Any,
    append_value: Any,
    batch_indices: Any,
    positions: Any,
    paged_kv_cache: Any,
    kv_indices: Any,
    kv_indptr: Any,
    kv_last_page_len: Any = None,
    kv_layout: str = "NHD",
    *,
    k_scale: float = 1.0,
    v_scale: float = 1.0,
) -> None:
    """FlashInfer's: row t of append_key [T, Hkv, D] and append_value goes to position positions[t] of sequence
    batch_indices[t] (both [T]; below 0 = nowhere), whose pages are kv_indices[kv_indptr[b] : kv_indptr[b + 1]]. kv_last_page_len
    is not needed."""
    k, v = kv_pair(paged_kv_cache, kv_layout)
    page = describe(k)[1][1]  # type: ignore[index]
    slots = slots_of_positions(batch_indices, positions, kv_indices, kv_indptr, page)
    append_kv(append_key, append_value, k, v, slots=slots, k_scale=k_scale, v_scale=v_scale)


def slots_of_positions(batch_indices: Any, positions: Any, kv_indices: Any, kv_indptr: Any, page: int) -> Any:
    """append_kv's slots [T] for append_paged_kv_cache's arguments."""
    framework = framework_of(kv_indptr)
    there = batch_indices >= 0
    batch = framework.cast(batch_indices * there, "int64")
    entry = framework.cast((kv_indptr[batch] + positions // page) * there, "int64")
    return (kv_indices[entry] * page + positions % page + 1) * there - 1


def apply_rope(
    q: Any, k: Any, cos: Any, sin: Any, positions: Any = None, *, interleaved: bool = False, q_out: Any = None, k_out: Any = None
) -> Tuple[Any, Any]:
    """Rotated q [T, Hq, D] and k [T, Hkv, D], of which one may be None. cos, sin [positions, R / 2] fp32, R <= D; positions
    [T], None = row t for token t. interleaved: pairs are (2t, 2t + 1), else (t, t + R / 2). q_out may be q, and k_out k."""
    results = []
    for x, out in ((q, q_out), (k, k_out)):
        if x is not None:
            framework = framework_of(x)
            framework.refuse_grad(x)
            if out is None:
                out = framework.empty(tuple(describe(x)[1]), _name(framework, x), x)  # type: ignore[index]
            arg = framework.describe(x)
            append(
                {
                    "q": arg, "q_out": describe_written(out, "q_out"), "cos": describe(cos), "sin": describe(sin),
                    "positions": describe(positions), "interleaved": interleaved,
                },
                _stream(framework, arg),
            )
        results.append(out)
    return results[0], results[1]


def apply_rope_with_cos_sin_cache(
    positions: Any, query: Any, key: Any, head_size: int, cos_sin_cache: Any, is_neox: bool = True
) -> Tuple[Any, Any]:
    """FlashInfer's: query [T, Hq * D], key [T, Hkv * D]; cos_sin_cache fp32 [positions, R], cosines first. Returns the rotated
    two in the same shapes."""
    if cos_sin_cache.shape[1] % 2:
        raise ValueError(f"cos_sin_cache has {cos_sin_cache.shape[1]} columns; it must have as many sines as cosines")
    half = cos_sin_cache.shape[1] // 2
    framework = framework_of(query)
    # Views of the halves are strided, and the kernel wants dense tables.
    cos, sin = framework.contiguous(cos_sin_cache[:, :half]), framework.contiguous(cos_sin_cache[:, half:])
    tokens = query.shape[0]
    q_out, k_out = apply_rope(
        query.reshape(tokens, -1, head_size), key.reshape(tokens, -1, head_size), cos, sin, positions, interleaved=not is_neox
    )
    return q_out.reshape(query.shape), k_out.reshape(key.shape)


def copy_pages(k_cache: Any, v_cache: Any, from_pages: Any, to_pages: Any, stream: Optional[int] = None) -> None:
    """Whole pages of one layer's cache: page from_pages[i] to to_pages[i], both [n]; no page in both."""
    framework = framework_of(k_cache)
    k, v = describe_written(k_cache, "k_cache"), describe_written(v_cache, "v_cache")
    if stream is None:
        stream = _stream(framework, k)  # type: ignore[arg-type]
    check(
        lib.fovea_copy_pages(
            tensor_pointer(k), tensor_pointer(v), tensor_pointer(describe(from_pages)),
            tensor_pointer(describe(to_pages)), stream,
        )
    )


def gather(
    k_cache: Any,
    v_cache: Any,
    slots: Any,
    *,
    dtype: Any = None,
    k: Any = None,
    v: Any = None,
    k_scale: float = 1.0,
    v_scale: float = 1.0,
    stream: Optional[int] = None,
) -> Tuple[Any, Any]:
    """Rows of a cache [pages, page_size, Hkv, D or Dv] by slots [T] = page * page_size + offset, dequantised: k [T, Hkv, D] and
    v [T, Hkv, Dv], of `dtype` (None = the cache's; fp8 caches need one). A slot below 0 gives zeros."""
    framework = framework_of(k_cache)
    k_arg, v_arg, slots_arg = framework.describe(k_cache), describe(v_cache), describe(slots)
    check_scales(k_scale, v_scale)
    name = dtype_name(dtype) if dtype is not None else _name(framework, k_cache)
    (tokens,) = shape_of(slots_arg, "slots", 1, "[T]")
    for given, arg, what in ((k, k_arg, "k"), (v, v_arg, "v")):
        if given is None and (arg is None or len(k_arg[1]) not in (3, 4) or len(arg[1]) not in (3, 4)):
            shape_of(arg, f"{what}_cache", 4, f"[pages, page_size, Hkv, D] or [rows, Hkv, D] when {what} is not given")
    if k is None:
        k = framework.empty((tokens,) + tuple(k_arg[1][-2:]), name, k_cache)
    if v is None:
        v = framework.empty((tokens,) + tuple(v_arg[1][-2:]), name, v_cache)  # type: ignore[index]
    if stream is None:
        stream = _stream(framework, k_arg)
    check(
        lib.fovea_gather(
            tensor_pointer(k_arg), tensor_pointer(v_arg), k_scale, v_scale, tensor_pointer(slots_arg),
            tensor_pointer(describe_written(k, "k")), tensor_pointer(describe_written(v, "v")), stream,
        )
    )
    return k, v


def merge_states(o: Any, lse: Any, *, out: Any = None, out_lse: Any = None) -> Tuple[Any, Any]:
    """Attention over disjoint sets of keys merged: o [parts, T, Hq, Dv] and lse [parts, T, Hq] fp32 in natural logarithm, without
    sinks, give (out [T, Hq, Dv], lse [T, Hq]). FlashInfer's have the parts second and logarithms of base 2."""
    framework = framework_of(o)
    framework.refuse_grad(o, lse)
    arg = framework.describe(o)
    if len(arg[1]) != 4:
        raise ValueError(f"o has shape {tuple(arg[1])}; it must be [parts, T, Hq, Dv]")
    out, out_lse = _merged(framework, o, arg[1][1:], out, out_lse)
    lse_arg = describe(lse)
    same_device(arg, lse=lse_arg)
    check(
        lib.fovea_merge_states(
            tensor_pointer(arg), tensor_pointer(lse_arg), tensor_pointer(describe_written(out, "out")),
            tensor_pointer(describe_written(out_lse, "out_lse")), _stream(framework, arg),
        )
    )
    return out, out_lse


def merge_state(o_a: Any, lse_a: Any, o_b: Any, lse_b: Any, *, out: Any = None, out_lse: Any = None) -> Tuple[Any, Any]:
    """merge_states of two: o_a, o_b [T, Hq, Dv], lse_a, lse_b [T, Hq] fp32 in natural logarithm."""
    framework = framework_of(o_a)
    framework.refuse_grad(o_a, o_b)
    arg = framework.describe(o_a)
    if len(arg[1]) != 3:
        raise ValueError(f"o_a has shape {tuple(arg[1])}; it must be [T, Hq, Dv]")
    out, out_lse = _merged(framework, o_a, arg[1], out, out_lse)
    check(
        lib.fovea_merge_state(
            tensor_pointer(arg), tensor_pointer(describe(lse_a)), tensor_pointer(describe(o_b)), tensor_pointer(describe(lse_b)),
            tensor_pointer(describe_written(out, "out")), tensor_pointer(describe_written(out_lse, "out_lse")),
            _stream(framework, arg),
        )
    )
    return out, out_lse


def _merged(framework: Framework, like: Any, shape: Sequence[int], out: Any, out_lse: Any) -> Tuple[Any, Any]:
    if out is None:
        out = framework.empty(tuple(shape), _name(framework, like), like)
    if out_lse is None:
        out_lse = framework.empty(tuple(shape[:2]), "float32", like)
    return out, out_lse
