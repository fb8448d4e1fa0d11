"""Latent attention (MLA) in FlashMLA's form. LSE is in natural logarithm, as FlashMLA's; a row that sees no key has an output of 0 and
an LSE of -inf (FlashMLA's: +inf). The scale's default is that of FlashMLA, head_dim ** -0.5 with the absorbed head_dim (576), which is
wrong for DeepSeek's models: theirs is that of the heads before absorption, 192 ** -0.5 (times YaRN's factor)."""

from typing import Any, NamedTuple, Optional, Tuple

from ._arrays import DTYPE_NAMES, describe, framework_of
from ._lib import CPU, DECODE, PREFILL
from ._serve import capacity, constants, index, mla_object
from .spec import AttentionSpec

_RANK, _ROPE, _DS_MLA_BYTES = 512, 64, 656
_GPU_PAGE = 64  # of the GPU's sparse kernels


class TileSchedulerMetadata(NamedTuple):
    """What get_mla_metadata() returns in place of FlashMLA's: nothing is scheduled ahead, so that a row's bits don't depend on the batch."""

    heads_per_kv_head: int
    is_fp8: bool
    topk: Optional[int]


def get_mla_metadata(
    cache_seqlens: Any = None,
    num_q_tokens_per_head_k: int = 1,
    num_heads_k: int = 1,
    num_heads_q: Optional[int] = None,
    is_fp8_kvcache: bool = False,
    topk: Optional[int] = None,
) -> Tuple[TileSchedulerMetadata, None]:
    """(metadata, None), for flash_mla_with_kvcache(), which plans itself."""
    if num_heads_k != 1:
        raise ValueError(f"num_heads_k is {num_heads_k}; all heads share one record per token: it must be 1")
    return TileSchedulerMetadata(num_q_tokens_per_head_k, is_fp8_kvcache, topk), None


def _shape(x: Any, name: str, dims: int, layout: str) -> Tuple[int, ...]:
    arg = describe(x)
    if arg is None or len(arg[1]) != dims:
        raise ValueError(f"{name} {'is None' if arg is None else f'has shape {tuple(arg[1])}'}; it must be {layout}")
    return tuple(arg[1])


def _records(k_cache: Any, dim: int, q_type: str, is_fp8: bool) -> Tuple[str, int, int]:
    """(kv_dtype, pages, page size) of a cache [pages, page_size, 1, D]."""
    pages, page_size, heads, size = _shape(k_cache, "k_cache", 4, "[pages, page_size, 1, D]")
    kind = DTYPE_NAMES.get(describe(k_cache)[3], "")  # type: ignore[index]
    if heads != 1:
        raise ValueError(f"k_cache has {heads} KV heads; all heads share one record per token: it must be 1")
    if is_fp8:
        if size != _DS_MLA_BYTES or kind not in ("uint8", "int8", "float8_e4m3fn"):
            raise ValueError(
                f"k_cache has records of {size} elements of {kind}; with is_fp8_kvcache they are {_DS_MLA_BYTES} bytes: 512 e4m3 codes, "
                "4 fp32 scales, 64 bfloat16"
            )
        return "fp8_ds_mla", pages, page_size
    if size != dim:
        raise ValueError(f"k_cache has records of {size} elements and q a head size of {dim}; they must be the same")
    if kind == q_type:
        return "auto", pages, page_size
    names = {"float8_e4m3fn": "fp8_e4m3", "float8_e5m2": "fp8_e5m2"}
    return names.get(kind, kind), pages, page_size


def flash_mla_with_kvcache(
    q: Any,
    k_cache: Any,
    block_table: Any,
    cache_seqlens: Any,
    head_dim_v: int = _RANK,
    tile_scheduler_metadata: Any = None,
    num_splits: Any = None,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    is_fp8_kvcache: bool = False,
    indices: Any = None,
) -> Tuple[Any, Any]:
    """Absorbed attention of q [B, S, Hq, D] over paged records k_cache [pages, page_size, 1, D], whose first head_dim_v elements are V.

    block_table [B, n], cache_seqlens [B], the S new tokens included; causal: bottom-right. is_fp8_kvcache: k_cache holds fp8_ds_mla, 656
    bytes a token, which takes indices, as in FlashMLA. indices [B, S, topk] int32: the rows see these slots (page * page_size + offset,
    -1 = none) and no others; block_table and cache_seqlens are not read then and may be None, and causal must be False. tile_scheduler_metadata and num_splits are ignored.

    Returns (out [B, S, Hq, head_dim_v], lse [B, Hq, S] fp32)."""
    batch, rows, heads, dim = _shape(q, "q", 4, "[B, S, Hq, D]")
    framework = framework_of(q)
    arg = framework.describe(q)
    device, q_type = arg[4], DTYPE_NAMES.get(arg[3], "")
    stream = framework.stream(device) if device[0] != CPU else None
    kv_dtype, pages, page_size = _records(k_cache, dim, q_type, is_fp8_kvcache)
    if not 0 < head_dim_v <= dim:
        raise ValueError(f"head_dim_v is {head_dim_v}; it must be 1 to the head size of q, {dim}")
    topk, seqs, chosen, causes = 0, batch, None, causal and rows > 1
    if indices is not None:
        if causal:
            raise ValueError("causal is True with indices, which say what each row sees: pass causal=False")
        of_batch, of_rows, topk = _shape(indices, "indices", 3, "[B, S, topk]")
        if (of_batch, of_rows) != (batch, rows):
            raise ValueError(f"indices has shape {(of_batch, of_rows, topk)}; q has B = {batch} and S = {rows}")
        seqs, chosen, causes = 1, framework.contiguous(framework.cast(indices, "int32")).reshape(batch * rows, topk), True
    elif block_table is None or cache_seqlens is None:
        raise ValueError("block_table and cache_seqlens must be given without indices")
    spec = AttentionSpec(
        heads, 1, dim, q_type, head_dim_v, softmax_scale if softmax_scale is not None else dim**-0.5, 0.0, kv_dtype, page_size,
        causes or rows == 1, mla=True, sparse_topk=topk,
    )
    longest = max(pages * page_size, 1)
    if indices is None:
        longest = max(_shape(block_table, "block_table", 2, "[B, n]")[1] * page_size, 1)
    attention = mla_object(framework, device, spec, capacity(seqs), capacity(batch * rows), capacity(seqs * longest), capacity(longest))
    if indices is None:
        step = {
            "q_offsets": constants.offsets(framework, device, stream, batch, rows, q),
            "kv_lens": index(framework, cache_seqlens), "page_table": index(framework, block_table),
        }
    else:  # all slots are one sequence, whose positions they are
        step = {
            "q_offsets": constants.offsets(framework, device, stream, 1, batch * rows, q),
            "kv_lens": constants.filled(framework, device, stream, 1, pages * page_size, q),
            "kv_indptr": constants.offsets(framework, device, stream, 1, pages, q),
            "kv_indices": framework.arange(0, pages, 1, q),
        }
    out = framework.empty((batch, rows, heads, head_dim_v), q_type, q)
    lse = framework.empty((batch * rows, heads), "float32", q)
    attention._plan_args(
        DECODE if rows == 1 else PREFILL, batch * rows, {name: framework.describe(x) for name, x in step.items()}, None, stream,
    )
    attention._kept = step
    attention.run(q, k_cache, None, out=out, lse=lse, chosen=chosen, stream=stream)
    return out, lse.reshape(batch, rows, heads).swapaxes(1, 2)


def flash_mla_sparse_fwd(
    q: Any,
    kv: Any,
    indices: Any,
    sm_scale: float,
    d_v: int = _RANK,
    topk_length: Any = None,
) -> Tuple[Any, None, Any]:
    """Absorbed attention of rows q [S, Hq, D] over the rows of kv [Sk, 1, D] that indices [S, 1, topk] int32 lists for each, none twice;
    -1 = none. topk_length [S]: only this number of leftmost entries counts. On a GPU, Sk is a multiple of 64.

    Returns (out [S, Hq, d_v], None, lse [S, Hq] fp32); FlashMLA returns the largest scaled scores in place of None."""
    rows, heads, dim = _shape(q, "q", 3, "[S, Hq, D]")
    keys, kv_heads, size = _shape(kv, "kv", 3, "[Sk, 1, D]")
    of_rows, of_heads, topk = _shape(indices, "indices", 3, "[S, 1, topk]")
    if kv_heads != 1 or of_heads != 1:
        raise ValueError(f"kv has {kv_heads} KV heads and indices {of_heads}; all heads share one record per token: they must have 1")
    if size != dim:
        raise ValueError(f"kv has records of {size} elements and q a head size of {dim}; they must be the same")
    if of_rows != rows:
        raise ValueError(f"indices has {of_rows} rows and q {rows}; they must be the same")
    framework = framework_of(q)
    page = 1 if framework.describe(q)[4][0] == CPU else _GPU_PAGE
    if keys % page:
        raise ValueError(f"kv has {keys} rows; a GPU takes a multiple of {page}: add rows that indices does not list")
    chosen = framework.contiguous(framework.cast(indices, "int32")).reshape(rows, topk)
    if topk_length is not None:
        if _shape(topk_length, "topk_length", 1, "[S]") != (rows,):
            raise ValueError(f"topk_length has shape {_shape(topk_length, 'topk_length', 1, '[S]')}; it must be [{rows}]")
        counts = framework.arange(0, topk, 1, q).reshape(1, topk) < topk_length.reshape(rows, 1)
        chosen = framework.contiguous(framework.cast((chosen + 1) * counts - 1, "int32"))
    out, lse = flash_mla_with_kvcache(
        q.reshape(1, rows, heads, dim), kv.reshape(keys // page, page, 1, dim), None, None, d_v, softmax_scale=sm_scale,
        indices=chosen.reshape(1, rows, topk),
    )
    return out.reshape(rows, heads, d_v), None, lse.reshape(heads, rows).swapaxes(0, 1)
