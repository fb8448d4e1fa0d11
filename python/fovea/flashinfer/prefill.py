"""FlashInfer's prefill functions."""

from typing import Any, Optional, Tuple

from .._arrays import dtype_name, framework_of
from ..cache import kv_pair
from .common import Positions, check_layout, check_output_type, cpu, number, positions, refuse
from .page import get_seq_lens
from .steps import Step, packed_mask

GRAPH = (
    "buffers that a CUDA graph reads are those given to plan(): capture plan() with run(), or use fovea.Attention's prepare_capture(), and "
    "pass False"
)
_ITEMS = "scoring of several items is a mask: pass custom_mask"
REASONS = {
    "jit_args": "kernels are not compiled from the caller's C++: fovea.flex_attention takes masks and scores as expressions",
    "jit_kwargs": "kernels are not compiled from the caller's C++: fovea.flex_attention takes masks and scores as expressions",
    "kv_cache_sf": "it belongs to an NVFP4 cache, which no backend reads: use a cache of 16 bits or fp8",
    "skip_softmax_threshold_scale_factor": "it leaves out keys and changes results: pass None",
    "use_fp16_softmax": "softmax is computed in fp32: pass None",
    "uses_spcompress": "keys are not compressed: pass None",
    "prefix_len_ptr": _ITEMS,
    "token_pos_in_items_ptr": _ITEMS,
    "max_item_len_ptr": _ITEMS,
    "v_indptr": "the values of a sequence lie in the rows of its keys: pass None",
    "o_indptr": "the results of a sequence lie in the rows of its queries: pass None",
    "o_scale": "results are not quantised: pass None",
}


FP8 = ("float8_e4m3fn", "float8_e5m2")


def scaled_query(q: Any, kv_heads: int, scale_q: Any, scale_k: Any, scale_v: Any) -> Tuple[Any, Any]:
    """q [n, Hq, D] in fp32 with the scales of q [Hq] and k [Hkv], and that of v as [1, Hq, 1]; each also a number. On the CPU."""
    framework, heads = framework_of(q), q.shape[1]
    if not cpu(framework, q):
        raise ValueError("q is of fp8, or scale_q, scale_k or scale_v is given, on a GPU; they are served on CPUs: pass q in bfloat16 and k_scale")

    def of_heads(x: Any, count: int, name: str) -> Any:
        ones = framework.full((count,), 1.0, "float32", q)
        if x is None or isinstance(x, (int, float)):
            return ones * (1.0 if x is None else float(x))
        if tuple(x.shape) not in ((count,), (1,)):
            raise ValueError(f"{name} has shape {tuple(x.shape)}; it must be a number or [{count}]")
        return ones * framework.cast(x, "float32")

    kv_head = framework.cast(framework.arange(0, heads, 1, q) // (heads // kv_heads), "int64")
    factor = of_heads(scale_q, heads, "scale_q") * of_heads(scale_k, kv_heads, "scale_k")[kv_head]
    return framework.cast(q, "float32") * factor[None, :, None], of_heads(scale_v, kv_heads, "scale_v")[kv_head][None, :, None]


def one_sequence(
    q: Any, k: Any, v: Any, kv_layout: str, causal: bool, where: Positions, sm_scale: Optional[float], window_left: int,
    soft_cap: Optional[float], masks: Any, k_scale: float, v_scale: float, return_lse: bool,
) -> Any:
    """q [n_q, Hq, D] over one sequence's k and v: (out, lse of base 2), or (out,)."""
    check_layout(kv_layout)
    if len(k.shape) != 3 or len(v.shape) != 3:
        raise ValueError(
            f"k and v have shapes {tuple(k.shape)} and {tuple(v.shape)}; they must have three dimensions, in {kv_layout} order"
        )
    if kv_layout == "HND":
        k, v = k.swapaxes(0, 1), v.swapaxes(0, 1)
    framework = framework_of(q)
    n_q, n_k = q.shape[0], k.shape[0]
    q_indptr, kv_indptr = (framework.array([0, n], "int32", q) for n in (n_q, n_k))
    lens = framework.array([n_k], "int32", q)
    mask = packed_mask(*masks, q_indptr, lens, window_left) if masks is not None else None
    step = Step(
        "NHD", "auto", q_indptr, kv_indptr, None, None, 1, lens, q.shape[1], k.shape[1], q.shape[2], v.shape[2], causal, where, sm_scale,
        window_left, soft_cap, q.dtype, k.dtype, mask, max(n_k, 1), n_q if n_q == 1 and mask is None else None,
    )
    result = step.run(q, k, v, None, None, return_lse, None, k_scale, v_scale)
    return result if return_lse else (result,)


def single_prefill_with_kv_cache(
    q: Any,
    k: Any,
    v: Any,
    scale_q: Any = None,
    scale_k: Any = None,
    scale_v: Any = None,
    o_dtype: Any = None,
    custom_mask: Any = None,
    packed_custom_mask: Any = None,
    causal: bool = False,
    kv_layout: str = "NHD",
    pos_encoding_mode: str = "NONE",
    use_fp16_qk_reduction: bool = False,
    sm_scale: Optional[float] = None,
    window_left: int = -1,
    logits_soft_cap: Optional[float] = None,
    rope_scale: Optional[float] = None,
    rope_theta: Optional[float] = None,
    backend: str = "auto",
    return_lse: bool = False,
    kv_cache_sf: Any = None,
    k_scale: Any = None,
    v_scale: Any = None,
    *,
    alibi_form: str = "signed",
) -> Any:
    """Rows q [n_q, Hq, D], the last ones of a sequence of keys k [n_k, Hkv, D] and v [n_k, Hkv, Dv] ("HND": [Hkv, n_k, D]): out [n_q, Hq,
    Dv], or (out, lse [n_q, Hq], of base 2). custom_mask [n_q, n_k] of what is seen, or packed_custom_mask, its bits with the lowest
    first, replaces `causal`; a window holds with it too. On the CPU q, k and v may be of fp8, with scale_q [Hq], scale_k and scale_v
    [Hkv] or numbers; the result is then o_dtype, None = float16. Sums are of fp32 in any case. alibi_form of "ALIBI": "signed", slope * (j - i),
    or FlashAttention's "distance", -slope * |i + n_k - n_q - j|."""
    refuse(REASONS, kv_cache_sf=kv_cache_sf)
    if scale_q is not None or scale_k is not None or scale_v is not None or dtype_name(q.dtype) in FP8:
        wide, v_factor = scaled_query(q, k.shape[1 if kv_layout == "NHD" else 0], scale_q, scale_k, scale_v)
        out, lse = single_prefill_with_kv_cache(
            wide, k, v, None, None, None, None, custom_mask, packed_custom_mask, causal, kv_layout, pos_encoding_mode,
            use_fp16_qk_reduction, sm_scale, window_left, logits_soft_cap, rope_scale, rope_theta, backend, True, None, k_scale, v_scale,
            alibi_form=alibi_form,
        )
        name = dtype_name(o_dtype if o_dtype is not None else "float16" if dtype_name(q.dtype) in FP8 else q.dtype)
        out = framework_of(q).cast(out * v_factor, name)
        return (out, lse) if return_lse else out
    check_output_type(o_dtype, dtype_name(q.dtype), "o_dtype")
    if backend != "auto":
        raise ValueError(f'backend is {backend!r}; this function chooses: pass "auto", or use fovea.Attention(backend=)')
    given = custom_mask is not None or packed_custom_mask is not None
    if custom_mask is not None and tuple(custom_mask.shape) != (q.shape[0], k.shape[0 if kv_layout == "NHD" else 1]):
        raise ValueError(f"custom_mask has shape {tuple(custom_mask.shape)}; it must be [n_q, n_k]")
    result = one_sequence(
        q, k, v, kv_layout, causal, positions(pos_encoding_mode, rope_scale, rope_theta, alibi_form), sm_scale, window_left, logits_soft_cap,
        (custom_mask, packed_custom_mask) if given else None, number(k_scale, "k_scale"), number(v_scale, "v_scale"), return_lse,
    )
    return result if return_lse else result[0]


def run_paged(
    step: Optional[Step], q: Any, cache: Any, q_scale: Any, k_scale: Any, v_scale: Any, out: Any, lse: Any, return_lse: bool,
    window_left: Optional[int], sinks: Any, **refused: Any,
) -> Any:
    if step is None:
        raise ValueError("nothing is planned; call plan() first")
    refuse(REASONS, **refused)
    if window_left is not None and window_left != step.window_left:
        raise ValueError(f"window_left is {window_left}; the step was planned with {step.window_left}: pass None, or plan again")
    k, v = kv_pair(cache, step.layout)
    scale = number(q_scale, "q_scale") * number(k_scale, "k_scale")
    return step.run(q, k, v, out, lse, return_lse, sinks, scale, number(v_scale, "v_scale"))


class _Prefill:
    """The common base of the two wrappers. The workspace buffer is not used: workspaces have the sizes that the steps need. `backend` is
    "auto" or a backend of Fovea's."""

    def _begin(self, kv_layout: str, use_cuda_graph: bool, backend: str, jit_args: Any, jit_kwargs: Any) -> None:
        check_layout(kv_layout)
        refuse({"use_cuda_graph": GRAPH, **REASONS}, use_cuda_graph=use_cuda_graph, jit_args=jit_args, jit_kwargs=jit_kwargs)
        self._layout, self._backend = kv_layout, backend
        self._step: Optional[Step] = None

    @property
    def is_cuda_graph_enabled(self) -> bool:
        return False

    def reset_workspace_buffer(self, float_workspace_buffer: Any, int_workspace_buffer: Any) -> None:
        """No effect."""

    def end_forward(self) -> None:
        """No effect."""


class BatchPrefillWithPagedKVCacheWrapper(_Prefill):
    """Ragged query rows, the last ones of their sequences, over a paged cache that holds their keys already."""

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
        jit_args: Any = None,
        jit_kwargs: Any = None,
    ) -> None:
        self._begin(kv_layout, use_cuda_graph, backend, jit_args, jit_kwargs)

    def plan(
        self,
        qo_indptr: Any,
        paged_kv_indptr: Any,
        paged_kv_indices: Any,
        paged_kv_last_page_len: Any,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim_qk: int,
        page_size: int,
        head_dim_vo: Optional[int] = None,
        custom_mask: Any = None,
        packed_custom_mask: Any = None,
        causal: bool = False,
        pos_encoding_mode: str = "NONE",
        use_fp16_qk_reduction: bool = False,
        sm_scale: Optional[float] = None,
        window_left: int = -1,
        logits_soft_cap: Optional[float] = None,
        rope_scale: Optional[float] = None,
        rope_theta: Optional[float] = None,
        q_data_type: Any = "float16",
        kv_data_type: Any = None,
        o_data_type: Any = None,
        non_blocking: bool = True,
        prefix_len_ptr: Any = None,
        token_pos_in_items_ptr: Any = None,
        token_pos_in_items_len: int = 0,
        max_item_len_ptr: Any = None,
        seq_lens: Any = None,
        seq_lens_q: Any = None,
        block_tables: Any = None,
        max_token_per_sequence: Optional[int] = None,
        max_sequence_kv: Optional[int] = None,
        fixed_split_size: Optional[int] = None,
        disable_split_kv: bool = False,
        *,
        alibi_form: str = "signed",
    ) -> None:
        """qo_indptr [B + 1]: rows of q; the pages of sequence b are paged_kv_indices[paged_kv_indptr[b] : paged_kv_indptr[b + 1]], and
        its last one has paged_kv_last_page_len[b] keys. custom_mask: of what is seen, [n_q, n_k] of each sequence flattened, one after
        another; packed_custom_mask: segment_packbits(custom_mask, ..., "little"); each replaces `causal`, and a window holds with it.

        alibi_form: see single_prefill_with_kv_cache. max_sequence_kv bounds n_k, which saves workspace. use_fp16_qk_reduction, non_blocking, fixed_split_size and disable_split_kv
        have no effect: sums are of fp32, splits are at constant positions, and a row's bits do not depend on the batch. seq_lens,
        seq_lens_q, block_tables and max_token_per_sequence repeat what the other arrays say, and are not read."""
        refuse(
            REASONS, prefix_len_ptr=prefix_len_ptr, token_pos_in_items_ptr=token_pos_in_items_ptr, max_item_len_ptr=max_item_len_ptr
        )
        lens = get_seq_lens(paged_kv_indptr, paged_kv_last_page_len, page_size)
        step = Step(
            self._layout, self._backend, qo_indptr, paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len, page_size, lens,
            num_qo_heads, num_kv_heads, head_dim_qk, head_dim_vo, causal,
            positions(pos_encoding_mode, rope_scale, rope_theta, alibi_form), sm_scale,
            window_left, logits_soft_cap, q_data_type, kv_data_type,
            packed_mask(custom_mask, packed_custom_mask, qo_indptr, lens, window_left), max_sequence_kv,
        )
        check_output_type(o_data_type, step.q_type, "o_data_type")
        self._step = step

    begin_forward = plan

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
        kv_cache_sf: Any = None,
        skip_softmax_threshold_scale_factor: Optional[float] = None,
        use_fp16_softmax: Optional[bool] = None,
        uses_spcompress: Optional[bool] = None,
    ) -> Any:
        """q [rows, Hq, D]; paged_kv_cache (k, v) of [pages, page_size, Hkv, D] ("HND": [pages, Hkv, page_size, D]) or one array
        [pages, 2, ...]. sinks [Hq]: a logit beside the keys', which the LSE includes. out, or (out, lse [rows, Hq], of base 2)."""
        return run_paged(
            self._step, q, paged_kv_cache, q_scale, k_scale, v_scale, out, lse, return_lse, window_left, sinks,
            kv_cache_sf=kv_cache_sf, skip_softmax_threshold_scale_factor=skip_softmax_threshold_scale_factor,
            use_fp16_softmax=use_fp16_softmax, uses_spcompress=uses_spcompress,
        )

    def run_return_lse(self, q: Any, paged_kv_cache: Any, **options: Any) -> Any:
        """run() with return_lse."""
        return self.run(q, paged_kv_cache, return_lse=True, **options)


class BatchPrefillWithRaggedKVCacheWrapper(_Prefill):
    """Ragged query rows, the last ones of their sequences, over ragged keys."""

    def __init__(
        self,
        float_workspace_buffer: Any = None,
        kv_layout: str = "NHD",
        use_cuda_graph: bool = False,
        qo_indptr_buf: Any = None,
        kv_indptr_buf: Any = None,
        custom_mask_buf: Any = None,
        mask_indptr_buf: Any = None,
        backend: str = "auto",
        jit_args: Any = None,
        jit_kwargs: Any = None,
    ) -> None:
        self._begin(kv_layout, use_cuda_graph, backend, jit_args, jit_kwargs)

    def plan(
        self,
        qo_indptr: Any,
        kv_indptr: Any,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim_qk: int,
        head_dim_vo: Optional[int] = None,
        custom_mask: Any = None,
        packed_custom_mask: Any = None,
        causal: bool = False,
        pos_encoding_mode: str = "NONE",
        use_fp16_qk_reduction: bool = False,
        window_left: int = -1,
        logits_soft_cap: Optional[float] = None,
        sm_scale: Optional[float] = None,
        rope_scale: Optional[float] = None,
        rope_theta: Optional[float] = None,
        q_data_type: Any = "float16",
        kv_data_type: Any = None,
        o_data_type: Any = None,
        non_blocking: bool = True,
        prefix_len_ptr: Any = None,
        token_pos_in_items_ptr: Any = None,
        token_pos_in_items_len: int = 0,
        max_item_len_ptr: Any = None,
        fixed_split_size: Optional[int] = None,
        disable_split_kv: bool = False,
        seq_lens: Any = None,
        seq_lens_q: Any = None,
        max_token_per_sequence: Optional[int] = None,
        max_sequence_kv: Optional[int] = None,
        v_indptr: Any = None,
        o_indptr: Any = None,
        *,
        alibi_form: str = "signed",
    ) -> None:
        """qo_indptr, kv_indptr [B + 1]: rows of q, and of k and v. The rest as BatchPrefillWithPagedKVCacheWrapper.plan has it."""
        refuse(
            REASONS, prefix_len_ptr=prefix_len_ptr, token_pos_in_items_ptr=token_pos_in_items_ptr, max_item_len_ptr=max_item_len_ptr,
            v_indptr=v_indptr, o_indptr=o_indptr,
        )
        lens = kv_indptr[1:] - kv_indptr[:-1]
        step = Step(
            "NHD", self._backend, qo_indptr, kv_indptr, None, None, 1, lens, num_qo_heads, num_kv_heads, head_dim_qk, head_dim_vo, causal,
            positions(pos_encoding_mode, rope_scale, rope_theta, alibi_form), sm_scale, window_left, logits_soft_cap, q_data_type,
            kv_data_type, packed_mask(custom_mask, packed_custom_mask, qo_indptr, lens, window_left), max_sequence_kv,
        )
        check_output_type(o_data_type, step.q_type, "o_data_type")
        self._step = step

    begin_forward = plan

    def run(
        self,
        q: Any,
        k: Any,
        v: Any,
        *,
        q_scale: Any = None,
        k_scale: Any = None,
        v_scale: Any = None,
        o_scale: Any = None,
        out: Any = None,
        lse: Any = None,
        return_lse: bool = False,
        enable_pdl: Optional[bool] = None,
        kv_cache_sf: Any = None,
    ) -> Any:
        """q [rows, Hq, D], k [keys, Hkv, D], v [keys, Hkv, Dv] ("HND": [Hkv, keys, D]): out, or (out, lse [rows, Hq], of base 2)."""
        if self._step is None:
            raise ValueError("nothing is planned; call plan() first")
        refuse(REASONS, o_scale=o_scale, kv_cache_sf=kv_cache_sf)
        if self._layout == "HND":
            k, v = k.swapaxes(0, 1), v.swapaxes(0, 1)
        scale = number(q_scale, "q_scale") * number(k_scale, "k_scale")
        return self._step.run(q, k, v, out, lse, return_lse, None, scale, number(v_scale, "v_scale"))

    def run_return_lse(self, q: Any, k: Any, v: Any, **options: Any) -> Any:
        """run() with return_lse."""
        return self.run(q, k, v, return_lse=True, **options)


__all__ = ["BatchPrefillWithPagedKVCacheWrapper", "BatchPrefillWithRaggedKVCacheWrapper", "single_prefill_with_kv_cache"]
