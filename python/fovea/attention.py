"""Attention that is planned once per step and run once per layer."""

import ctypes
import os
import sys
from ctypes import byref, c_size_t, c_void_p
from typing import Any, Dict, Optional

from ._arrays import describe, describe_written, device_name, dtype_code, dtype_name, framework_of, parse_device
from ._lib import CHECK_PAGES, CPU, CUDA, DECODE, PREFILL, Arg, CDevice, CLayer, CLimits, CSpec, CStep, Fields, Slot
from ._lib import check, check_scales, fail, int32, lib
from ._lib import tensor as tensor_pointer
from .spec import AttentionSpec, Limits

_TUNE_FOR = {"limits": 0, "many": 1, "few": 2}
_PHASES = {"prefill": PREFILL, "decode": DECODE}
_FLOAT32 = dtype_code("float32")
_OF_DTYPE = {"float32", "float16", "bfloat16"}


def _phase(phase: str) -> int:
    if phase not in _PHASES:
        raise ValueError(f'phase is {phase!r}; allowed are "prefill" and "decode"')
    return _PHASES[phase]


def debugs_pages() -> bool:
    """The default of check_pages: on under `python -X dev` and with FOVEA_CHECK_PAGES=1, off with FOVEA_CHECK_PAGES=0."""
    return _DEBUGS_PAGES


def _read_debug() -> bool:
    text = os.environ.get("FOVEA_CHECK_PAGES", "")
    if text not in ("", "0", "1"):
        raise ImportError(f"FOVEA_CHECK_PAGES is {text!r}; allowed are 0 and 1")
    return sys.flags.dev_mode if not text else text == "1"


_DEBUGS_PAGES = _read_debug()


def _c_spec(spec: AttentionSpec) -> CSpec:
    c = CSpec()
    lib.fovea_attention_spec_init(byref(c))
    c.size = ctypes.sizeof(CSpec)  # the function fills the fields of its first version
    name = dtype_name(spec.dtype)
    if name not in _OF_DTYPE:
        raise ValueError(f"dtype is {name}; Q and O may be float32, float16 or bfloat16")
    c.dtype.code, c.dtype.bits = dtype_code(name)
    c.dtype.lanes = 1
    c.v_head_dim = int32(spec.v_head_dim or 0, "v_head_dim")
    if spec.scale is not None:
        if not spec.scale:  # which the library takes for its default
            raise ValueError(f"scale is {spec.scale}; it must be a number other than 0, or None for head_dim ** -0.5")
        c.scale = spec.scale
    c.softcap = spec.softcap
    if not isinstance(spec.kv_dtype, str):
        raise ValueError(f'kv_dtype is {spec.kv_dtype!r}; it must be a name as --kv-cache-dtype takes it: "auto", "fp8_e4m3"')
    c.kv_dtype = spec.kv_dtype.encode()
    for field in (
        "num_heads", "num_kv_heads", "head_dim", "page_size", "window_left", "window_right", "chunk", "sink_tokens",
    ):
        setattr(c, field, int32(getattr(spec, field), field))
    for field in (
        "causal", "spans", "packed_mask", "tree", "has_sink", "lse_includes_sink", "has_alibi", "kv_x_packed", "encoder",
        "per_head_scales", "kv_shuffle", "mla",
    ):
        setattr(c, field, int(getattr(spec, field)))
    c.sparse_topk = int32(spec.sparse_topk, "sparse_topk")
    return c


class Attention:
    """Attention of one kind of layers on one device: `plan()` a step, then `run()` each of its layers.

    spec: what the layers need. limits: upper bounds of every step. backend: a name as --attention-backend takes it; None
    = chosen for the device. device: "cpu", "cuda", "cuda:1", a torch.device. check_pages: the first run() of every plan looks at
    every page id of the step, waits for that and raises for one that is no page; None = where Python debugs, which is under
    `python -X dev` or with FOVEA_CHECK_PAGES=1 in the environment. (plan(num_pages=) looks too, and does not wait. On the CPU
    every run() looks.)

    Nothing is copied and, on a GPU, nothing waited for: arrays are read where they lie, on the caller's current stream
    (torch's, cupy's; `stream=` an address of a cudaStream_t where the framework has none). An object is used by one
    thread at a time. Errors are ValueError with the library's text, MemoryError and RuntimeError."""

    def __init__(
        self,
        spec: AttentionSpec,
        limits: Limits,
        *,
        backend: Optional[str] = None,
        device: Any = "cpu",
        check_pages: Optional[bool] = None,
    ) -> None:
        self._handle: Any = None
        self.spec, self.limits = spec, limits
        self.device = parse_device(device)
        if self.device[0] not in (CPU, CUDA):
            raise ValueError(f"device is {device_name(self.device)}; allowed are cpu and cuda:N")
        c_spec = _c_spec(spec)
        if limits.tune_for not in _TUNE_FOR:
            raise ValueError(f"tune_for is {limits.tune_for!r}; allowed are {', '.join(_TUNE_FOR)}")
        c_limits = CLimits(
            ctypes.sizeof(CLimits), int32(limits.max_seqs, "max_seqs"), int32(limits.max_tokens, "max_tokens"),
            min(limits.max_kv_tokens, 2**63 - 1), int32(limits.max_kv_len, "max_kv_len"), 0, _TUNE_FOR[limits.tune_for],
        )
        if check_pages is None:
            check_pages = debugs_pages()
        size, handle = c_size_t(), c_void_p()
        check(
            lib.fovea_attention_create(
                byref(c_spec), byref(c_limits), backend.encode() if backend else None, CDevice(*self.device),
                CHECK_PAGES if check_pages else 0, byref(size), byref(handle),
            )
        )
        self._handle, self._destroy = handle, lib.fovea_attention_destroy  # modules may be gone when the last objects die
        self.workspace_bytes: int = size.value
        """The size in bytes that `plan(workspace=)` requires."""
        self._v_dim = spec.v_head_dim or spec.head_dim
        self._dtype = dtype_name(spec.dtype)
        self._step, self._layer, self._workspace = Fields(CStep), Fields(CLayer), Slot()
        self._had_extra = False
        self._code = dtype_code(self._dtype)
        self._planned_for: Any = None  # the mark of the call whose step is planned, in _serve
        self._plan = lib.fovea_attention_plan
        self._kept: Any = None
        self._run = lib.fovea_attention_run

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._destroy(self._handle)
            self._handle = None

    def backend(self, phase: str = "decode") -> str:
        """The name of the phase's backend."""
        return lib.fovea_attention_backend(self._handle, _phase(phase)).decode()

    def explain(self) -> str:
        """The backends that were considered, and why these were selected."""
        return lib.fovea_attention_explain(self._handle).decode()

    def _fill_step(
        self, phase: str, num_tokens: Optional[int], arrays: Dict[str, Any], past_kv_ready: bool, num_pages: Optional[int] = None
    ) -> None:
        if num_tokens is None:
            if self.device[0] != CPU:
                raise ValueError(
                    "num_tokens is not given; q_offsets lies on a GPU and is not read back: pass the number of query rows"
                )
            num_tokens = int(arrays["q_offsets"][-1])
        self._fill(_phase(phase), num_tokens, {name: describe(x) for name, x in arrays.items()}, past_kv_ready, num_pages or 0)

    def _fill(
        self, phase: int, num_tokens: int, args: Dict[str, Optional[Arg]], past_kv_ready: bool = False, num_pages: int = 0
    ) -> None:
        step = self._step
        step.c.phase, step.c.num_tokens, step.c.past_kv_ready = phase, int32(num_tokens, "num_tokens"), past_kv_ready
        step.c.num_pages = num_pages
        step.put_all(args)

    def _plan_args(
        self, phase: int, num_tokens: int, args: Dict[str, Optional[Arg]], workspace: Optional[Arg], stream: Optional[int],
        num_pages: int = 0,
    ) -> None:
        """plan() with described arrays; the caller keeps the arrays alive."""
        self._fill(phase, num_tokens, args, False, num_pages)
        self._plan_step(workspace, stream)

    def _plan_step(self, workspace: Optional[Arg], stream: Optional[int]) -> None:
        """plan() with the step whose fields are filled in."""
        self._planned_for = None
        pointer = None
        if workspace is not None:
            self._workspace.put(workspace)
            pointer = self._workspace.ptr
        status = self._plan(self._handle, self._step.ref, pointer, stream)
        if status:
            fail(status)

    def _stream_of(self, stream: Optional[int], x: Any) -> Optional[int]:
        if stream is not None or self.device[0] == CPU:
            return stream
        return framework_of(x).stream(self.device)

    def plan(
        self,
        q_offsets: Any,
        kv_lens: Any,
        *,
        page_table: Any = None,
        kv_indptr: Any = None,
        kv_indices: Any = None,
        num_tokens: Optional[int] = None,
        phase: str = "prefill",
        spans: Any = None,
        span_offsets: Any = None,
        packed_mask: Any = None,
        packed_offsets: Any = None,
        tree_bias: Any = None,
        past_kv_ready: bool = False,
        num_pages: Optional[int] = None,
        workspace: Any = None,
        stream: Optional[int] = None,
    ) -> None:
        """Schedules a step; once for all layers. Index arrays are int32 or int64 of any strides and lie on the object's device; they
        and `workspace` must not change or die before the step's last run (the object keeps references).

        q_offsets: [B + 1] from 0, query rows of sequence b are [q_offsets[b], q_offsets[b + 1]). kv_lens: [B] keys of
        each sequence, its new tokens included. Pages: page_table [B, pages]; or kv_indptr [B + 1] with kv_indices [n];
        or kv_indptr alone, where keys are rows kv_indptr[b] and on of one ragged tensor. num_tokens: q_offsets[B], which a
        GPU's host can't see. phase: how the run's kernels are cut: "decode" for few query rows a sequence. spans [n, 2] and
        span_offsets [B + 1]; packed_mask uint8, bit i * n_k + j of sequence b from byte packed_offsets[b] (int64 [B + 1])
        on; tree_bias [n, n] fp32. past_kv_ready: all keys and values but the last n_q of each sequence are in every layer's
        cache already, as an engine's are that appends a layer's new rows right before its run(): they may be read while
        the work in front of a run() still goes on. num_pages: of every layer's cache (rows, of ragged keys): the ids of all pages
        that the step reads are looked at, which costs four bytes a page and waits for nothing. workspace: uint8 of `workspace_bytes` or more; None = memory of the object's own."""
        self._fill_step(
            phase, num_tokens,
            {
                "q_offsets": q_offsets, "kv_lens": kv_lens, "page_table": page_table, "kv_indptr": kv_indptr,
                "kv_indices": kv_indices, "spans": spans, "span_offsets": span_offsets, "packed_mask": packed_mask,
                "packed_offsets": packed_offsets, "tree_bias": tree_bias,
            },
            past_kv_ready, num_pages,
        )
        self._plan_step(describe(workspace), self._stream_of(stream, kv_lens))
        self._kept = (
            q_offsets, kv_lens, page_table, kv_indptr, kv_indices, spans, span_offsets, packed_mask, packed_offsets,
            tree_bias, workspace,
        )

    def run(
        self,
        q: Any,
        k: Any,
        v: Any,
        *,
        out: Any = None,
        lse: Any = None,
        return_lse: bool = False,
        sinks: Any = None,
        alibi_slopes: Any = None,
        k_scale: float = 1.0,
        v_scale: float = 1.0,
        k_scales: Any = None,
        v_scales: Any = None,
        chosen: Any = None,
        stream: Optional[int] = None,
    ) -> Any:
        """One layer of the planned step.

        q: [Tq, Hq, D], or [B, S, Hq, D] of B * S = Tq rows; any strides but the last. k, v: [pages, page_size, Hkv, D or Dv] with any strides but the last (pages of [Hkv, page_size,
        D] are a transposed view); or ragged [rows, Hkv, D or Dv]; or as kv_x_packed and kv_shuffle of the spec have them. out: q's shape with Dv, any strides but the last, and lse: [Tq, Hq] fp32, are
        allocated by q's framework when not given. sinks, alibi_slopes: [Hq] fp32. k_scale, v_scale: a stored element x
        means x * scale. k_scales, v_scales: fp32, of int8_per_token_head [pages, page_size, Hkv]; with per_head_scales [Hkv],
        on the CPU also [pages, page_size, Hkv], see AttentionSpec. With mla, v is None. chosen: with sparse_topk, [Tq, sparse_topk]
        int32, positions of keys in the row's sequence, none twice; -1 = none.

        Returns out, or (out, lse) when return_lse or lse is given. LSE is in natural logarithm; a row that sees no key has
        0 and -inf."""
        framework = framework_of(q)
        framework.refuse_grad(q, k, v)
        q_arg = framework.describe(q)
        shape = q_arg[1]
        if len(shape) not in (3, 4):
            raise ValueError(f"q has shape {tuple(shape)}; it must be [Tq, Hq, D], or [B, S, Hq, D]")
        # What is allocated here needs no look: it is dense, and as q on the object's device.
        tokens = shape[0] if len(shape) == 3 else shape[0] * shape[1]
        heads, v_dim, device = shape[-2], self._v_dim, q_arg[4]
        if out is None:
            out = framework.empty(tuple(shape[:-1]) + (v_dim,), self._dtype, q)
            out_arg: Any = (framework.address(out), (tokens, heads, v_dim), (heads * v_dim, v_dim, 1), self._code, device)
        else:
            out_arg = describe_written(out, "out")
        lse_arg: Optional[Arg] = None
        if lse is not None:
            return_lse, lse_arg = True, describe_written(lse, "lse")
        elif return_lse:
            lse = framework.empty((tokens, heads), "float32", q)
            lse_arg = (framework.address(lse), (tokens, heads), (heads, 1), _FLOAT32, device)
        if stream is None and self.device[0] != CPU:
            stream = framework.stream(self.device)
        if sinks is not None:
            sinks = describe(sinks)
        if alibi_slopes is not None:
            alibi_slopes = describe(alibi_slopes)
        if k_scales is not None:
            k_scales = describe(k_scales)
        if v_scales is not None:
            v_scales = describe(v_scales)
        k_arg, v_arg = describe(k), describe(v)
        if chosen is not None:
            self._layer.put("chosen", describe(chosen))  # type: ignore[arg-type]
        else:
            self._layer.drop("chosen")
        if k_arg is None or (v_arg is None and not self.spec.mla):
            raise ValueError(f"{'k' if k_arg is None else 'v'} is None; it must be a cache, or a ragged tensor")
        self._run_args(
            q_arg, k_arg, v_arg, out_arg, lse_arg, sinks, alibi_slopes, k_scale, v_scale, k_scales, v_scales, stream
        )
        return (out, lse) if return_lse else out

    def _run_args(
        self,
        q: Arg,
        k: Arg,
        v: Optional[Arg],
        out: Arg,
        lse: Optional[Arg],
        sinks: Optional[Arg],
        alibi_slopes: Optional[Arg],
        k_scale: float,
        v_scale: float,
        k_scales: Optional[Arg],
        v_scales: Optional[Arg],
        stream: Optional[int],
    ) -> None:
        """run() with described arrays."""
        layer = self._layer
        put = layer.put
        put("q", q)
        put("k", k)
        if v is not None:
            put("v", v)
        else:
            layer.drop("v")
        put("out", out)
        if lse is not None:
            put("lse", lse)
        else:
            layer.drop("lse")
        extra = not (sinks is None and alibi_slopes is None and k_scales is None and v_scales is None)
        if extra or self._had_extra:
            self._had_extra = extra
            for name, arg in (("sinks", sinks), ("alibi_slopes", alibi_slopes), ("k_scales", k_scales), ("v_scales", v_scales)):
                if arg is not None:
                    put(name, arg)
                else:
                    layer.drop(name)
        if not k_scale or not v_scale:
            check_scales(k_scale, v_scale)
        layer.c.k_scale = k_scale
        layer.c.v_scale = v_scale
        self._run_layer(layer, stream)

    def _run_layer(self, layer: Fields, stream: Optional[int]) -> None:
        status = self._run(self._handle, layer.ref, stream)
        if status:
            fail(status)

    def check(self, num_pages: Optional[int] = None, stream: Optional[int] = None) -> None:
        """Waits for the stream and raises ValueError for what only the GPU could see of the plan: lengths beyond the
        limits or the page table, and with `num_pages`, here or in plan(), page ids of
        `num_pages` or more. The sequences at fault have NaN in out and lse; others are right."""
        if self._kept is None:
            raise ValueError("nothing is planned; call plan() first")
        self._check(-1 if num_pages is None else num_pages, self._stream_of(stream, self._kept[1]))

    def _check(self, num_pages: int, stream: Optional[int]) -> None:
        check(lib.fovea_attention_check(self._handle, num_pages, stream))

    def prepare_capture(
        self,
        q_offsets: Any,
        kv_lens: Any,
        *,
        page_table: Any = None,
        kv_indptr: Any = None,
        kv_indices: Any = None,
        num_tokens: Optional[int] = None,
        phase: str = "decode",
        past_kv_ready: bool = False,
        workspace: Any = None,
        stream: Optional[int] = None,
    ) -> None:
        """As plan(), before a capture of run()s: the kernels that they queue serve every step that has no more
        sequences and rows than this one, in the same arrays. Give the largest."""
        self._fill_step(
            phase, num_tokens,
            {
                "q_offsets": q_offsets, "kv_lens": kv_lens, "page_table": page_table, "kv_indptr": kv_indptr,
                "kv_indices": kv_indices,
            },
            past_kv_ready,
        )
        self._planned_for = None
        check(
            lib.fovea_attention_prepare_capture(
                self._handle, self._step.ref, tensor_pointer(describe(workspace)), self._stream_of(stream, kv_lens)
            )
        )
        self._kept = (q_offsets, kv_lens, page_table, kv_indptr, kv_indices, workspace)

    def update_capture(
        self,
        q_offsets: Any,
        kv_lens: Any,
        *,
        page_table: Any = None,
        kv_indptr: Any = None,
        kv_indices: Any = None,
        num_tokens: Optional[int] = None,
        phase: str = "decode",
        past_kv_ready: bool = False,
        stream: Optional[int] = None,
    ) -> None:
        """Queues the schedule of the next step, before the graph is replayed. The arrays are views of those of
        prepare_capture(), of this step's sizes."""
        self._fill_step(
            phase, num_tokens,
            {
                "q_offsets": q_offsets, "kv_lens": kv_lens, "page_table": page_table, "kv_indptr": kv_indptr,
                "kv_indices": kv_indices,
            },
            past_kv_ready,
        )
        check(lib.fovea_attention_update_capture(self._handle, self._step.ref, self._stream_of(stream, kv_lens)))
