"""FlashInfer's class for latent attention (MLA)."""

from typing import Any, Optional

from .._arrays import describe, dtype_name, framework_of
from .._lib import DECODE, PREFILL
from ..spec import AttentionSpec
from .batch import _Batch, _kv_name
from .common import LOG2E, refuse
from .prefill import GRAPH

_REASONS = {
    "use_cuda_graph": GRAPH,
    "use_profiler": "no profile is written: leave it False",
    "profiler_buffer": "no profile is written: leave it None",
    "kv_len": "it belongs to the cutlass backend: plan() gets kv_len_arr",
    "page_table": "it belongs to the cutlass backend: plan() gets kv_indptr and kv_indices",
}


class BatchMLAPagedAttentionWrapper:
    """Ragged query rows over pages of latents and rotated key parts, absorbed. The workspace buffer and index buffers are not used.
    `backend` is "auto" or a backend of Fovea's."""

    def __init__(
        self,
        float_workspace_buffer: Any = None,
        use_cuda_graph: bool = False,
        qo_indptr: Any = None,
        kv_indptr: Any = None,
        kv_indices: Any = None,
        kv_len_arr: Any = None,
        backend: str = "auto",
    ) -> None:
        refuse(_REASONS, use_cuda_graph=use_cuda_graph)
        self._batch = _Batch("NHD", backend=None if backend == "auto" else backend)

    def plan(
        self,
        qo_indptr: Any,
        kv_indptr: Any,
        kv_indices: Any,
        kv_len_arr: Any,
        num_heads: int,
        head_dim_ckv: int,
        head_dim_kpe: int,
        page_size: int,
        causal: bool,
        sm_scale: float,
        q_data_type: Any,
        kv_data_type: Any,
        use_profiler: bool = False,
        *,
        max_kv_len: Optional[int] = None,
    ) -> None:
        """qo_indptr [B + 1], kv_indptr [B + 1], kv_indices [pages], kv_len_arr [B], int32 or int64 on the device: the rows of sequence b are
        [qo_indptr[b], qo_indptr[b + 1]), its pages kv_indices[kv_indptr[b] : kv_indptr[b + 1]]. sm_scale: that of the heads before
        absorption. max_kv_len, of the longest sequence, saves workspace."""
        refuse(_REASONS, use_profiler=use_profiler)
        q_type = dtype_name(q_data_type)
        self._seqs = describe(qo_indptr)[1][0] - 1  # type: ignore[index]
        total = max(describe(kv_indices)[1][0] * page_size, 1)  # type: ignore[index]
        self._ckv, self._kpe = head_dim_ckv, head_dim_kpe
        spec = AttentionSpec(
            num_heads, 1, head_dim_ckv + head_dim_kpe, q_type, head_dim_ckv, sm_scale, 0.0, _kv_name(q_type, kv_data_type), page_size,
            bool(causal), mla=True,
        )
        arrays = {"q_offsets": qo_indptr, "kv_lens": kv_len_arr, "kv_indptr": kv_indptr, "kv_indices": kv_indices}
        self._planned_for = (qo_indptr, spec, total, max_kv_len or total, arrays)
        self._rows: Optional[int] = None

    begin_forward = plan

    def end_forward(self) -> None:
        """No effect."""

    def _joined(self, a: Any, b: Any, a_name: str, b_name: str) -> Any:
        """a [..., ckv] and b [..., kpe] side by side."""
        framework = framework_of(a)
        first, second = framework.describe(a), framework.describe(b)
        for name, arg, dim in ((a_name, first, self._ckv), (b_name, second, self._kpe)):
            if len(arg[1]) != 3 or arg[1][2] != dim:
                raise ValueError(f"{name} has shape {tuple(arg[1])}; it must have 3 dimensions, the last of {dim}")
        if tuple(first[1][:2]) != tuple(second[1][:2]) or first[3] != second[3]:
            raise ValueError(
                f"{a_name} of shape {tuple(first[1])} and {b_name} of shape {tuple(second[1])} must agree in dtype and all but the last dimension"
            )
        return framework.xp.concatenate((a, b), -1)

    def run(
        self,
        q_nope: Any,
        q_pe: Any,
        ckv_cache: Any,
        kpe_cache: Any,
        out: Any = None,
        lse: Any = None,
        return_lse: bool = False,
        profiler_buffer: Any = None,
        kv_len: Any = None,
        page_table: Any = None,
        return_lse_base_on_e: bool = False,
    ) -> Any:
        """q_nope [T, Hq, ckv], q_pe [T, Hq, kpe]; ckv_cache [pages, page_size, ckv], kpe_cache [pages, page_size, kpe]. Queries are joined by a
        copy, and so are the caches unless kpe_cache is None: then ckv_cache is whole records [pages, page_size, ckv + kpe], which are
        read in place. Returns out [T, Hq, ckv], or (out, lse [T, Hq], of base 2 or with return_lse_base_on_e of base e)."""
        refuse(_REASONS, profiler_buffer=profiler_buffer, kv_len=kv_len, page_table=page_table)
        if not hasattr(self, "_planned_for"):
            raise ValueError("nothing is planned; call plan() first")
        q = self._joined(q_nope, q_pe, "q_nope", "q_pe")
        records = ckv_cache if kpe_cache is None else self._joined(ckv_cache, kpe_cache, "ckv_cache", "kpe_cache")
        rows = q.shape[0]
        if rows != self._rows:
            like, spec, total, longest, arrays = self._planned_for
            self._batch._plan(like, spec, rows, DECODE if rows == self._seqs else PREFILL, self._seqs, total, longest, arrays)
            self._rows = rows
        result = self._batch._run(q, records, None, out, lse, return_lse, None, None, None, None)
        if (return_lse or lse is not None) and not return_lse_base_on_e:
            of_base_e = result[1]
            of_base_e *= LOG2E
        return result


__all__ = ["BatchMLAPagedAttentionWrapper"]
