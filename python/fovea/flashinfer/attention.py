"""FlashInfer's BatchAttention."""

from typing import Any, Optional, Tuple

from .common import check_layout, positions
from .prefill import REASONS, BatchPrefillWithPagedKVCacheWrapper, refuse, run_paged
from .steps import Step


class BatchAttention:
    """Prefill and decode rows in one step over a paged cache. `device` is where the arrays lie."""

    def __init__(self, kv_layout: str = "NHD", device: Any = "cuda") -> None:
        check_layout(kv_layout)
        self._layout = kv_layout
        self._step: Optional[Step] = None

    def plan(
        self,
        qo_indptr: Any,
        kv_indptr: Any,
        kv_indices: Any,
        kv_len_arr: Any,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim_qk: int,
        head_dim_vo: int,
        page_size: int,
        causal: bool = False,
        sm_scale: Optional[float] = None,
        logits_soft_cap: Optional[float] = None,
        q_data_type: Any = "bfloat16",
        kv_data_type: Any = "bfloat16",
        use_profiler: bool = False,
    ) -> None:
        """qo_indptr [B + 1]: rows of q. Sequence b has kv_len_arr[b] keys in the pages kv_indices[kv_indptr[b] : kv_indptr[b + 1]]."""
        refuse({"use_profiler": "there is no profile inside of kernels: pass False"}, use_profiler=use_profiler)
        self._step = Step(
            self._layout, "auto", qo_indptr, kv_indptr, kv_indices, None, page_size, kv_len_arr, num_qo_heads, num_kv_heads, head_dim_qk,
            head_dim_vo, causal, positions("NONE", None, None), sm_scale, -1, logits_soft_cap, q_data_type, kv_data_type, None, None,
        )
        self._soft_cap = logits_soft_cap or 0.0

    def run(
        self,
        q: Any,
        kv_cache: Any,
        out: Any = None,
        lse: Any = None,
        k_scale: Any = None,
        v_scale: Any = None,
        logits_soft_cap: float = 0.0,
        profiler_buffer: Any = None,
        kv_cache_sf: Any = None,
    ) -> Tuple[Any, Any]:
        """q [rows, Hq, D] and a cache as BatchPrefillWithPagedKVCacheWrapper.run takes it: (out, lse [rows, Hq], of base 2).
        logits_soft_cap: 0, or what plan() got."""
        if self._step is not None and logits_soft_cap and logits_soft_cap != self._soft_cap:
            raise ValueError(f"logits_soft_cap is {logits_soft_cap}; the step was planned with {self._soft_cap}: give it to plan()")
        refuse({"profiler_buffer": "there is no profile inside of kernels: pass None"}, profiler_buffer=profiler_buffer)
        return run_paged(self._step, q, kv_cache, None, k_scale, v_scale, out, lse, True, None, None, kv_cache_sf=kv_cache_sf)


class BatchAttentionWithAttentionSinkWrapper(BatchPrefillWithPagedKVCacheWrapper):
    """BatchPrefillWithPagedKVCacheWrapper whose run() gets the sinks [Hq] and the scale of scores, run(q, cache, sinks, sm_scale)."""

    def __init__(
        self,
        float_workspace_buffer: Any = None,
        kv_layout: str = "NHD",
        use_cuda_graph: bool = False,
        qo_indptr_buf: Any = None,
        paged_kv_indptr_buf: Any = None,
        paged_kv_indices_buf: Any = None,
        paged_kv_last_page_len_buf: Any = None,
        custom_mask_buf: Any = None,
        mask_indptr_buf: Any = None,
        backend: str = "auto",
        pos_encoding_mode: str = "NONE",
        use_fp16_qk_reduction: bool = False,
        q_data_type: Any = "bfloat16",
        kv_data_type: Any = "bfloat16",
        head_dim_qk: int = 128,
        head_dim_vo: int = 128,
        window_left: int = -1,
    ) -> None:
        if pos_encoding_mode != "NONE":
            raise ValueError(f'pos_encoding_mode is {pos_encoding_mode!r}; with sinks it is "NONE": rotate with apply_rope')
        super().__init__(float_workspace_buffer, kv_layout, use_cuda_graph, backend=backend)
        self._window_left = window_left

    def plan(self, *args: Any, **options: Any) -> None:
        """As the base; window_left must be the constructor's, or is it where not given."""
        if options.setdefault("window_left", self._window_left) != self._window_left:
            raise ValueError(f"window_left is {options['window_left']}; the wrapper was made with {self._window_left}: pass that")
        super().plan(*args, **options)

    def run(  # type: ignore[override]
        self, q: Any, paged_kv_cache: Any, sinks: Any = None, sm_scale: Optional[float] = None, **options: Any
    ) -> Any:
        """As the base. sm_scale None: the plan's."""
        if sm_scale is not None and self._step is not None and abs(sm_scale - self._step.scale) > 1e-6 * abs(sm_scale):
            raise ValueError(f"sm_scale is {sm_scale}; the step was planned with {self._step.scale}: give it to plan()")
        return super().run(q, paged_kv_cache, sinks=sinks, **options)


__all__ = ["BatchAttention", "BatchAttentionWithAttentionSinkWrapper"]
