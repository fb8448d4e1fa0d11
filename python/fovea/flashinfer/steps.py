"""What the wrappers have in common: a step of FlashInfer's arguments, planned by Attention and run for each layer."""

from dataclasses import replace
from typing import Any, Dict, List, Optional, Tuple

from .. import cache
from .._arrays import Framework, describe, dtype_name, framework_of
from .._lib import DECODE, PREFILL
from ..spec import AttentionSpec
from .alibi import SignedAlibi
from .batch import _Batch, _kv_name
from .common import (
    Positions, alibi_slopes, angle_tables, cpu, frequencies, query_positions, rotate, sequence_of_rows, to_base_2,
)
from .page import get_seq_lens
from .quantization import pack_segments

class Step:
    """Keys in pages (`indices` and `last` given) or in one ragged tensor, and query rows by q_indptr [B + 1]."""

    def __init__(
        self, layout: str, backend: str, q_indptr: Any, kv_indptr: Any, indices: Any, last: Any, page: int, kv_lens: Any,
        heads: int, kv_heads: int, dim: int, v_dim: Optional[int], causal: bool, where: Positions, scale: Optional[float],
        window_left: int, soft_cap: Optional[float], q_type: Any, kv_type: Any, mask: Optional[Tuple[Any, Any]], max_kv_len: Optional[int],
        rows_per_sequence: Optional[int] = None,
    ) -> None:
        self.framework = framework = framework_of(q_indptr)
        self.layout, self.where, self.page = layout, where, page
        self.q_indptr, self.kv_indptr, self.indices = q_indptr, kv_indptr, indices
        if kv_lens is None:
            kv_lens = kv_indptr[1:] - kv_indptr[:-1] if indices is None else get_seq_lens(kv_indptr, last, page)
        self.kv_lens = kv_lens
        self.window_left = window_left
        self.scale = dim**-0.5 if scale is None else scale
        self.q_type = dtype_name(q_type)
        self.seqs = describe(q_indptr)[1][0] - 1  # type: ignore[index]
        self._slopes: Any = None
        if where.alibi:
            self._slopes = framework.array(alibi_slopes(heads), "float32", q_indptr)
        # Where rows see keys behind them, a signed bias is no distance.
        self._signed: Optional[SignedAlibi] = None
        if where.alibi == "signed" and rows_per_sequence != 1 and (not causal or mask is not None):
            self._signed = SignedAlibi(
                framework, q_indptr, kv_indptr, indices, kv_lens, mask, window_left, self.scale, soft_cap, self._slopes
            )
        self.ragged = indices is None
        arrays: Dict[str, Any] = {"q_offsets": q_indptr, "kv_lens": kv_lens, "kv_indptr": kv_indptr, "kv_indices": indices}
        kv_name = _kv_name(self.q_type, kv_type)
        if where.theta is not None and not self.ragged:
            # Keys are rotated in a ragged copy of the pages, one after another.
            arrays.update(kv_indptr=kv_indptr * page, kv_indices=None)
            kv_name = "auto"
        if mask is not None:
            arrays["packed_mask"], arrays["packed_offsets"] = mask
        if arrays["kv_indices"] is None:
            del arrays["kv_indices"]
        self._spec = AttentionSpec(
            heads, kv_heads, dim, self.q_type, v_dim, scale, soft_cap or 0.0, kv_name, page if "kv_indices" in arrays else 1,
            causal and mask is None or rows_per_sequence == 1, -1 if mask is not None else window_left, packed_mask=mask is not None,
            has_alibi=bool(where.alibi),
        )
        self._arrays, self._max_kv_len = arrays, max_kv_len
        self._phase = DECODE if rows_per_sequence == 1 else PREFILL
        self._batch = _Batch(layout, backend=None if backend == "auto" else backend)
        self._max_kv = 0 if self.ragged else max(describe(indices)[1][0] * page, 1)  # type: ignore[index]
        self._has_sink: Optional[bool] = None

    @property
    def attention(self) -> Any:
        return self._batch.attention

    def run(
        self, q: Any, k: Any, v: Any, out: Any, lse: Any, return_lse: bool, sinks: Any, k_scale: float, v_scale: float
    ) -> Any:
        """k and v as the library takes them; LSE of base 2."""
        framework = self.framework
        if dtype_name(q.dtype) != self.q_type:
            raise ValueError(f"q is {dtype_name(q.dtype)}; the step was planned for q_data_type {self.q_type}")
        if self._signed is not None:
            return self._signed.run(q, k, v, out, lse, return_lse, sinks, k_scale, v_scale)
        if self.where.theta is not None:
            q, k, v = self._rotated(q, k, v)
        if self._has_sink != (sinks is not None) or self.ragged and self._max_kv < k.shape[0]:
            self._has_sink = sinks is not None
            spec = replace(self._spec, has_sink=self._has_sink, lse_includes_sink=self._has_sink)
            if self.ragged:
                self._max_kv = max(k.shape[0], 1)
            self._batch._plan(
                self.q_indptr, spec, None, self._phase, self.seqs, self._max_kv, self._max_kv_len or self._max_kv, self._arrays
            )
        result = self._batch._run(
            q, k, v, out, lse if return_lse else None, return_lse, sinks, self._slopes, k_scale, v_scale
        )
        if not return_lse:
            return result
        out, lse = result
        if self.where.alibi == "signed":  # the library's bias is slope * (j - p) where FlashInfer's is slope * (j - i)
            sequence, _ = sequence_of_rows(framework, self.q_indptr, q.shape[0], self.q_indptr)
            behind = (self.kv_lens - (self.q_indptr[1:] - self.q_indptr[:-1]))[sequence]
            lse += framework.cast(behind, "float32")[:, None] * self._slopes[None, :]
        return out, to_base_2(lse)

    def _rotated(self, q: Any, k: Any, v: Any) -> Tuple[Any, Any, Any]:
        """q, k and v with q and k rotated in copies; k and v of pages as one ragged tensor."""
        framework, dim = self.framework, q.shape[-1]
        of = frequencies(dim, self.where.theta or 1e4, self.where.scale)
        at = query_positions(framework, self.q_indptr, self.kv_lens, q.shape[0], self.q_indptr)
        q_out = framework.empty(tuple(q.shape), self.q_type, q)
        rotate(framework, q, *angle_tables(framework, at, of), False, q_out)
        if self.ragged:
            _, at = sequence_of_rows(framework, self.kv_indptr, k.shape[0], self.kv_indptr)
            k_out = framework.empty(tuple(k.shape), dtype_name(k.dtype), k)
        else:
            pages = describe(self.indices)[1][0]  # type: ignore[index]
            _, number = sequence_of_rows(framework, self.kv_indptr, pages, self.kv_indptr)
            slot = framework.arange(0, self.page, 1, self.kv_indptr)[None, :]
            at = (number[:, None] * self.page + slot).reshape(-1)
            k, v = cache.gather(k, v, (self.indices[:, None] * self.page + slot).reshape(-1), dtype=self.q_type)
            k_out = k
        return q_out, rotate(framework, k, *angle_tables(framework, at, of), False, k_out), v


def packed_mask(
    custom_mask: Any, packed_custom_mask: Any, q_indptr: Any, kv_lens: Any, window_left: int
) -> Optional[Tuple[Any, Any]]:
    """The bits and where each sequence's begin, or None without a mask. The window is a part of them."""
    if custom_mask is None and packed_custom_mask is None:
        return None
    framework = framework_of(q_indptr)
    q_lens = q_indptr[1:] - q_indptr[:-1]
    counts = framework.cast(q_lens, "int64") * framework.cast(kv_lens, "int64")
    indptr = framework.xp.concatenate((counts[:1] * 0, counts.cumsum(0)), 0)
    if packed_custom_mask is not None:
        sizes = (counts + 7) // 8
        starts = framework.xp.concatenate((sizes[:1] * 0, sizes.cumsum(0)), 0)
        if window_left < 0:
            return packed_custom_mask, starts
        if not cpu(framework, q_indptr):
            raise ValueError(
                f"window_left is {window_left} with a packed_custom_mask on a GPU; the two are combined bit by bit, which takes "
                "custom_mask there: pass that, or put the window into the bits"
            )
        at = _elements(framework, indptr, int(indptr[-1]), q_indptr)
        bit = framework.cast(packed_custom_mask[starts[at[0]] + at[1] // 8], "int64") // 2 ** (at[1] % 8) % 2
    else:
        bit = framework.cast(custom_mask.reshape(-1) != 0, "int64")
        at = _elements(framework, indptr, bit.shape[0], q_indptr)
    if window_left >= 0:
        sequence, i = at
        wide = framework.clip_below(framework.cast(kv_lens, "int64"), 1)[sequence]
        p = i // wide + framework.cast(kv_lens - q_lens, "int64")[sequence]
        bit = bit * (i % wide >= p - window_left)
    on_cpu = cpu(framework, q_indptr)
    size = None if on_cpu else bit.shape[0] // 8 + describe(q_lens)[1][0]  # type: ignore[index]
    if on_cpu and int(indptr[-1]) != bit.shape[0]:
        raise ValueError(f"the mask has {bit.shape[0]} elements; the rows and keys of the sequences need {int(indptr[-1])}")
    packed, starts = pack_segments(bit, indptr, "little", size)
    return packed, framework.cast(starts, "int64")


def _elements(framework: Framework, indptr: Any, count: int, like: Any) -> Tuple[Any, Any]:
    """The sequence of each element of all masks, and its number in the sequence's (int64)."""
    at = framework.cast(framework.arange(0, count, 1, like), "int64")
    sequence = framework.cast(framework.searchsorted(indptr[1:-1], at), "int64")
    return sequence, at - indptr[sequence]


__all__: List[str] = []
