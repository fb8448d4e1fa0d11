"""Plan and run over index arrays in FlashInfer's form, as Fovea's own classes: LSE is in natural logarithm."""

from typing import Any, Optional

from .._arrays import describe, dtype_name, framework_of
from .._lib import CPU, DECODE, PREFILL
from .._serve import capacity, constants, heads_vector
from ..attention import Attention
from ..cache import kv_pair
from ..spec import AttentionSpec, Limits
from .page import get_seq_lens


class _Batch:
    """The common base of the three classes. Use an object from one thread and on one stream at a time."""

    def __init__(self, kv_layout: str = "NHD", *, backend: Optional[str] = None, tune_for: str = "many") -> None:
        """tune_for: see Limits."""
        if kv_layout not in ("NHD", "HND"):
            raise ValueError(f'kv_layout is {kv_layout!r}; allowed are "NHD" and "HND"')
        self._layout, self._backend, self._tune_for = kv_layout, backend, tune_for
        self._attention: Optional[Attention] = None
        self._made_for: Any = None
        self._workspace: Any = None
        self._step: Any = None

    @property
    def attention(self) -> Optional[Attention]:
        """The underlying Attention, for explain() and check(); None before the first plan."""
        return self._attention

    def _plan(
        self, like: Any, spec: AttentionSpec, num_tokens: Optional[int], phase: int, seqs: int, max_kv_tokens: int,
        max_kv_len: int, arrays: dict,
    ) -> None:
        """Stores the step. It is planned when its number of query rows is known, at the latest in run()."""
        framework = framework_of(like)
        device = framework.describe(like)[4]
        self._step = (framework, like, device, spec, phase, seqs, max_kv_tokens, max_kv_len, arrays)
        self._planned = False
        if num_tokens is not None:
            self._plan_now(num_tokens)

    def _plan_now(self, num_tokens: int) -> None:
        framework, like, device, spec, phase, seqs, max_kv_tokens, max_kv_len, arrays = self._step
        limits = Limits(
            capacity(seqs), capacity(num_tokens), capacity(max_kv_tokens), capacity(max_kv_len), self._tune_for
        )
        key = (device, spec, limits)
        if key != self._made_for:
            if framework.capturing():
                raise ValueError(
                    "a CUDA graph is being captured and this wrapper has not planned a step of this size before; plan and run "
                    "the largest once before the capture"
                )
            self._attention = Attention(spec, limits, backend=self._backend, device=device)
            self._workspace = None
            if device[0] != CPU and self._attention.workspace_bytes:
                self._workspace = framework.empty((self._attention.workspace_bytes,), "uint8", like)
            self._made_for = key
        assert self._attention is not None
        self._attention._plan_args(
            phase, num_tokens, {name: framework.describe(x) for name, x in arrays.items()}, describe(self._workspace),
            framework.stream(device) if device[0] != CPU else None,
        )
        self._attention._kept = (arrays, arrays["kv_lens"])
        self._planned, self._tokens = True, num_tokens

    def _run(
        self, q: Any, k: Any, v: Any, out: Any, lse: Any, return_lse: bool, sinks: Any, alibi: Any, k_scale: Any, v_scale: Any
    ) -> Any:
        if self._step is None:
            raise ValueError("nothing is planned; call plan() first")
        tokens = q.shape[0]
        if not self._planned or tokens != self._tokens:
            if self._planned:
                raise ValueError(f"q has {tokens} rows; the planned step has {self._tokens}")
            self._plan_now(tokens)
        assert self._attention is not None
        framework, spec = self._step[0], self._step[3]
        if sinks is not None:
            sinks = heads_vector(framework, sinks, spec.num_heads, "sinks")
        if alibi is not None:
            alibi = heads_vector(framework, alibi, spec.num_heads, "alibi_slopes")
        return self._attention.run(
            q, k, v, out=out, lse=lse, return_lse=return_lse, sinks=sinks, alibi_slopes=alibi,
            k_scale=1.0 if k_scale is None else k_scale,
            v_scale=1.0 if v_scale is None else v_scale,
        )


def _kv_name(q_type: str, kv_type: Any) -> str:
    name = q_type if kv_type is None else dtype_name(kv_type)
    known = {"float8_e4m3fn": "fp8_e4m3", "float8_e5m2": "fp8_e5m2"}
    return "auto" if name == q_type else known.get(name, name)


def _check_positions(mode: str) -> bool:
    """Whether pos_encoding_mode is ALiBi."""
    if mode not in ("NONE", "ALIBI"):
        raise ValueError(f'pos_encoding_mode is {mode!r}; allowed are "NONE" and "ALIBI" (rotate with append_kv or apply_rope)')
    return mode == "ALIBI"


class BatchDecodeWithPagedKVCache(_Batch):
    """One query row for each sequence (or `q_len_per_req`, causal among themselves) over a paged cache."""

    def plan(
        self,
        indptr: Any,
        indices: Any,
        last_page_len: Any,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim: int,
        page_size: int,
        *,
        pos_encoding_mode: str = "NONE",
        window_left: int = -1,
        logits_soft_cap: float = 0.0,
        q_data_type: Any = "float16",
        kv_data_type: Any = None,
        sm_scale: Optional[float] = None,
        head_dim_vo: Optional[int] = None,
        has_sinks: bool = False,
        q_len_per_req: int = 1,
        max_kv_len: Optional[int] = None,
    ) -> None:
        """indptr [B + 1], indices [pages], last_page_len [B] (1 to page_size), int32 or int64 on the device: the pages of sequence
        b are indices[indptr[b] : indptr[b + 1]]. max_kv_len: of the longest sequence; None = as many as all pages hold.
        Nothing is copied to the host. has_sinks: run() gets sinks."""
        q_type = dtype_name(q_data_type)
        framework = framework_of(indptr)
        seqs = describe(indptr)[1][0] - 1  # type: ignore[index]
        total = describe(indices)[1][0] * page_size  # type: ignore[index]
        device = framework.describe(indptr)[4]
        stream = framework.stream(device) if device[0] != CPU else None
        spec = AttentionSpec(
            num_qo_heads, num_kv_heads, head_dim, q_type, head_dim_vo, sm_scale, logits_soft_cap or 0.0,
            _kv_name(q_type, kv_data_type), page_size, True, window_left, has_sink=has_sinks,
            has_alibi=_check_positions(pos_encoding_mode),
        )
        self._plan(
            indptr, spec, seqs * q_len_per_req, DECODE if q_len_per_req == 1 else PREFILL, seqs, max(total, 1),
            max_kv_len or max(total, 1),
            {
                "q_offsets": constants.offsets(framework, device, stream, seqs, q_len_per_req, indptr),
                "kv_lens": get_seq_lens(indptr, last_page_len, page_size), "kv_indptr": indptr, "kv_indices": indices,
            },
        )

    def run(
        self,
        q: Any,
        paged_kv_cache: Any,
        *,
        out: Any = None,
        lse: Any = None,
        return_lse: bool = False,
        sinks: Any = None,
        alibi_slopes: Any = None,
        k_scale: Optional[float] = None,
        v_scale: Optional[float] = None,
    ) -> Any:
        """q [B * q_len_per_req, Hq, D]; paged_kv_cache (k, v) of [pages, page_size, Hkv, D] ("HND": [pages, Hkv, page_size, D]) or one
        array [pages, 2, ...]. Returns out, or (out, lse [rows, Hq])."""
        k, v = kv_pair(paged_kv_cache, self._layout)
        return self._run(q, k, v, out, lse, return_lse, sinks, alibi_slopes, k_scale, v_scale)


class BatchPrefillWithPagedKVCache(_Batch):
    """Ragged query rows over a paged cache that holds their keys already."""

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
        *,
        head_dim_vo: Optional[int] = None,
        causal: bool = False,
        pos_encoding_mode: str = "NONE",
        sm_scale: Optional[float] = None,
        window_left: int = -1,
        logits_soft_cap: Optional[float] = None,
        q_data_type: Any = "float16",
        kv_data_type: Any = None,
        packed_custom_mask: Any = None,
        mask_indptr: Any = None,
        has_sinks: bool = False,
        num_tokens: Optional[int] = None,
        max_kv_len: Optional[int] = None,
    ) -> None:
        """qo_indptr [B + 1]: rows of q. The pages as BatchDecodeWithPagedKVCache.plan has them. num_tokens: qo_indptr[B]; None =
        the first run() plans, with the rows of its q. packed_custom_mask uint8, bit i * n_k + j of sequence b from byte
        mask_indptr[b] (int64 [B + 1]) on, little end first, takes the place of `causal`."""
        q_type = dtype_name(q_data_type)
        framework = framework_of(qo_indptr)
        total = describe(paged_kv_indices)[1][0] * page_size  # type: ignore[index]
        spec = AttentionSpec(
            num_qo_heads, num_kv_heads, head_dim_qk, q_type, head_dim_vo, sm_scale, logits_soft_cap or 0.0,
            _kv_name(q_type, kv_data_type), page_size, causal and packed_custom_mask is None, window_left,
            packed_mask=packed_custom_mask is not None, has_sink=has_sinks, has_alibi=_check_positions(pos_encoding_mode),
        )
        arrays = {
            "q_offsets": qo_indptr, "kv_lens": get_seq_lens(paged_kv_indptr, paged_kv_last_page_len, page_size),
            "kv_indptr": paged_kv_indptr, "kv_indices": paged_kv_indices,
        }
        if packed_custom_mask is not None:
            if mask_indptr is None:
                raise ValueError("mask_indptr is None; a packed_custom_mask needs the byte at which each sequence begins")
            arrays.update(packed_mask=packed_custom_mask, packed_offsets=framework.cast(mask_indptr, "int64"))
        self._plan(
            qo_indptr, spec, num_tokens, PREFILL, describe(qo_indptr)[1][0] - 1, max(total, 1),  # type: ignore[index]
            max_kv_len or max(total, 1), arrays,
        )

    run = BatchDecodeWithPagedKVCache.run


class BatchPrefillWithRaggedKVCache(_Batch):
    """Ragged query rows over ragged keys."""

    def plan(
        self,
        qo_indptr: Any,
        kv_indptr: Any,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim_qk: int,
        *,
        head_dim_vo: Optional[int] = None,
        causal: bool = False,
        pos_encoding_mode: str = "NONE",
        sm_scale: Optional[float] = None,
        window_left: int = -1,
        logits_soft_cap: Optional[float] = None,
        q_data_type: Any = "float16",
        kv_data_type: Any = None,
        num_tokens: Optional[int] = None,
        max_kv_tokens: Optional[int] = None,
        max_kv_len: Optional[int] = None,
    ) -> None:
        """qo_indptr, kv_indptr [B + 1]: rows of q, and of k and v. num_tokens: qo_indptr[B]; max_kv_tokens: kv_indptr[B]; where one
        of them is None the first run() plans, with the rows of its arrays."""
        q_type = dtype_name(q_data_type)
        spec = AttentionSpec(
            num_qo_heads, num_kv_heads, head_dim_qk, q_type, head_dim_vo, sm_scale, logits_soft_cap or 0.0,
            _kv_name(q_type, kv_data_type), 1, causal, window_left, has_alibi=_check_positions(pos_encoding_mode),
        )
        self._longest = max_kv_len
        arrays = {"q_offsets": qo_indptr, "kv_lens": kv_indptr[1:] - kv_indptr[:-1], "kv_indptr": kv_indptr}
        seqs = describe(qo_indptr)[1][0] - 1  # type: ignore[index]
        known = max_kv_tokens is not None
        self._plan(
            qo_indptr, spec, num_tokens if known else None, PREFILL, seqs, max_kv_tokens or 1,
            max_kv_len or max_kv_tokens or 1, arrays,
        )
        self._keys_known = known

    def run(
        self,
        q: Any,
        k: Any,
        v: Any,
        *,
        out: Any = None,
        lse: Any = None,
        return_lse: bool = False,
        alibi_slopes: Any = None,
        k_scale: Optional[float] = None,
        v_scale: Optional[float] = None,
    ) -> Any:
        """q [Tq, Hq, D], k [Tk, Hkv, D], v [Tk, Hkv, Dv]. Returns out [Tq, Hq, Dv], or (out, lse [Tq, Hq])."""
        if self._step is not None and not self._planned and not self._keys_known:
            rows = max(k.shape[0], 1)
            self._step = self._step[:6] + (rows, self._longest or rows) + self._step[8:]
        return self._run(q, k, v, out, lse, return_lse, None, alibi_slopes, k_scale, v_scale)


__all__ = ["BatchDecodeWithPagedKVCache", "BatchPrefillWithPagedKVCache", "BatchPrefillWithRaggedKVCache"]
