"""FlashInfer's decode functions."""

from typing import Any, Optional

from .common import check_layout, check_output_type, number, positions, refuse, uniform_rows
from .prefill import GRAPH, REASONS, one_sequence, run_paged
from .steps import Step


def single_decode_with_kv_cache(
    q: Any,
    k: Any,
    v: Any,
    kv_layout: str = "NHD",
    pos_encoding_mode: str = "NONE",
    use_tensor_cores: bool = False,
    q_scale: Any = None,
    k_scale: Any = None,
    v_scale: Any = None,
    window_left: int = -1,
    logits_soft_cap: Optional[float] = None,
    sm_scale: Optional[float] = None,
    rope_scale: Optional[float] = None,
    rope_theta: Optional[float] = None,
    return_lse: bool = False,
) -> Any:
    """One row q [Hq, D] over keys k [n, Hkv, D] and v [n, Hkv, D] ("HND": [Hkv, n, D]): out [Hq, D], or (out, lse [Hq], of base 2)."""
    scale = number(q_scale, "q_scale") * number(k_scale, "k_scale")
    result = one_sequence(
        q[None], k, v, kv_layout, True, positions(pos_encoding_mode, rope_scale, rope_theta), sm_scale, window_left, logits_soft_cap,
        None, scale, number(v_scale, "v_scale"), return_lse,
    )
    return (result[0][0], result[1][0]) if return_lse else result[0][0]


class BatchDecodeWithPagedKVCacheWrapper:
    """q_len_per_req rows for each sequence, the last ones of it, over a paged cache. The workspace buffer is not used: workspaces have
    the sizes that the steps need. `backend` is "auto" or a backend of Fovea's; use_tensor_cores is a hint without effect."""

    def __init__(
        self,
        float_workspace_buffer: Any = None,
        kv_layout: str = "NHD",
        use_cuda_graph: bool = False,
        use_tensor_cores: bool = False,
        paged_kv_indptr_buffer: Any = None,
        paged_kv_indices_buffer: Any = None,
        paged_kv_last_page_len_buffer: Any = None,
        backend: str = "auto",
        jit_args: Any = None,
    ) -> None:
        check_layout(kv_layout)
        refuse({"use_cuda_graph": GRAPH, **REASONS}, use_cuda_graph=use_cuda_graph, jit_args=jit_args)
        self._layout, self._backend, self._tensor_cores = kv_layout, backend, bool(use_tensor_cores)
        self._step: Optional[Step] = None

    @property
    def use_tensor_cores(self) -> bool:
        return self._tensor_cores

    @property
    def is_cuda_graph_enabled(self) -> bool:
        return False

    def reset_workspace_buffer(self, float_workspace_buffer: Any, int_workspace_buffer: Any) -> None:
        """No effect."""

    def plan(
        self,
        indptr: Any,
        indices: Any,
        last_page_len: Any,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim: int,
        page_size: int,
        pos_encoding_mode: str = "NONE",
        window_left: int = -1,
        logits_soft_cap: Optional[float] = None,
        q_data_type: Any = "float16",
        kv_data_type: Any = None,
        data_type: Any = None,
        sm_scale: Optional[float] = None,
        rope_scale: Optional[float] = None,
        rope_theta: Optional[float] = None,
        non_blocking: bool = True,
        block_tables: Any = None,
        seq_lens: Any = None,
        fixed_split_size: Optional[int] = None,
        disable_split_kv: bool = False,
        q_len_per_req: int = 1,
        *,
        window_right: int = 0,
        o_data_type: Any = None,
        max_kv_len: Optional[int] = None,
    ) -> None:
        """indptr [B + 1], indices, last_page_len [B]: the pages of sequence b are indices[indptr[b] : indptr[b + 1]], and its last one
        has last_page_len[b] keys. Nothing is copied to the host; max_kv_len, of the longest sequence, saves workspace. non_blocking,
        fixed_split_size and disable_split_kv have no effect: splits are at constant positions and a row's bits do not depend on the
        batch. block_tables and seq_lens repeat what the other arrays say, and are not read."""
        if window_right:
            raise ValueError(f"window_right is {window_right}; a decode row is its sequence's last, no key is behind it: pass 0")
        if data_type is not None:
            q_data_type, kv_data_type = data_type, kv_data_type or data_type
        step = Step(
            self._layout, self._backend, uniform_rows(indptr, q_len_per_req), indptr, indices, last_page_len, page_size, None, num_qo_heads,
            num_kv_heads, head_dim, None, True, positions(pos_encoding_mode, rope_scale, rope_theta), sm_scale, window_left,
            logits_soft_cap, q_data_type, kv_data_type, None, max_kv_len, q_len_per_req,
        )
        check_output_type(o_data_type, step.q_type, "o_data_type")
        self._step, self._rows = step, q_len_per_req

    begin_forward = plan

    def end_forward(self) -> None:
        """No effect."""

    def run(
        self,
        q: Any,
        paged_kv_cache: Any,
        *,
        q_scale: Any = None,
        k_scale: Any = None,
        v_scale: Any = None,
        out: Any = None,
        lse: Any = None,
        return_lse: bool = False,
        enable_pdl: Optional[bool] = None,
        window_left: Optional[int] = None,
        sinks: Any = None,
        q_len_per_req: Optional[int] = None,
        skip_softmax_threshold_scale_factor: Optional[float] = None,
        kv_cache_sf: Any = None,
    ) -> Any:
        """q [B * q_len_per_req, Hq, D]; paged_kv_cache (k, v) of [pages, page_size, Hkv, D] ("HND": [pages, Hkv, page_size, D]) or one
        array [pages, 2, ...]. sinks [Hq]: a logit beside the keys', which the LSE includes. out, or (out, lse [rows, Hq], of base 2)."""
        if self._step is not None and q_len_per_req not in (None, self._rows):
            raise ValueError(f"q_len_per_req is {q_len_per_req}; the step was planned with {self._rows}")
        return run_paged(
            self._step, q, paged_kv_cache, q_scale, k_scale, v_scale, out, lse, return_lse, window_left, sinks,
            skip_softmax_threshold_scale_factor=skip_softmax_threshold_scale_factor, kv_cache_sf=kv_cache_sf,
        )

    def run_return_lse(self, q: Any, paged_kv_cache: Any, **options: Any) -> Any:
        """run() with return_lse."""
        return self.run(q, paged_kv_cache, return_lse=True, **options)


__all__ = ["BatchDecodeWithPagedKVCacheWrapper", "single_decode_with_kv_cache"]
