"""Attention without softmax: lightning attention, the gated delta rule, HSTU. fovea/linear_attention.h has the formulas."""

from typing import Any, Dict, Optional, Sequence, Tuple

from ._arrays import DTYPE_NAMES, Framework, describe, describe_written, framework_of
from ._lib import CPU, CUDA_HOST, Arg, CHstu, CLinear, Fields, check, int32, lib
from ._serve import same_device, shape_of

_FORMS = {"chunked": 0, "recurrent": 1}
_WRITTEN = frozenset(("out", "final_state"))


def _stream(framework: Framework, arg: Arg) -> Optional[int]:
    return None if arg[4][0] in (CPU, CUDA_HOST) else framework.stream(arg[4])


def _run(function: Any, struct: Any, arrays: Dict[str, Any], stream: Optional[int], options: Dict[str, Any]) -> None:
    fields = Fields(struct)
    args = {name: describe_written(x, name) if name in _WRITTEN and x is not None else describe(x) for name, x in arrays.items()}
    same_device(args["q"], **{name: arg for name, arg in args.items() if name != "q"})  # type: ignore[arg-type]
    fields.put_all(args)
    for name, value in options.items():
        setattr(fields.c, name, value)
    check(function(fields.ref, stream))


def _linear(
    function: Any, q: Any, k: Any, v: Any, cu_seqlens: Any, arrays: Dict[str, Any], out: Any, initial_state: Any, final_state: Any,
    output_final_state: bool, form: str, options: Dict[str, Any],
) -> Tuple[Any, Any]:
    if form not in _FORMS:
        raise ValueError(f'form is {form!r}; allowed are "chunked" and "recurrent"')
    framework = framework_of(q)
    framework.refuse_grad(q, k, v, initial_state)
    q_arg = framework.describe(q)
    _, _, dk = shape_of(q_arg, "q", 3, "[T, Hk, Dk]")
    v_shape = shape_of(describe(v), "v", 3, "[T, H, Dv]")
    (ends,) = shape_of(describe(cu_seqlens), "cu_seqlens", 1, "[B + 1]")
    if out is None:
        out = framework.empty(v_shape, DTYPE_NAMES[q_arg[3]], q)
    if final_state is None and output_final_state:
        if arrays.get("initial_slots") is not None or arrays.get("final_slots") is not None:
            raise ValueError("final_state is not given with slots; pass the pool of states that the slots are in")
        final_state = framework.empty((max(ends - 1, 0), v_shape[1], dk, v_shape[2]), "float32", q)
    given = {"q": q, "k": k, "v": v, "out": out, "offsets": cu_seqlens, "initial_state": initial_state, "final_state": final_state}
    for name in ("initial_slots", "final_slots"):
        if arrays.get(name) is not None:
            arrays[name] = framework.narrow(arrays[name])
    given["offsets"] = framework.narrow(cu_seqlens)
    _run(function, CLinear, {**given, **arrays}, _stream(framework, q_arg), {"form": _FORMS[form], **options})
    return out, final_state


def lightning_attention(
    q: Any,
    k: Any,
    v: Any,
    log_decay: Any,
    cu_seqlens: Any,
    *,
    scale: float = 1.0,
    initial_state: Any = None,
    final_state: Any = None,
    output_final_state: bool = False,
    initial_slots: Any = None,
    final_slots: Any = None,
    form: str = "chunked",
    max_seqlen: int = 0,
    out: Any = None,
) -> Tuple[Any, Any]:
    """S_t = exp(log_decay) S_{t-1} + k_t v_t^T; out_t = scale S_t^T q_t, for each sequence and head: (out [T, H, Dv], final_state).

    q, k [T, H, Dk], v [T, H, Dv] of float32, float16 or bfloat16; log_decay [H] fp32, at most 0 (MiniMax-Text-01: -slope);
    cu_seqlens [B + 1]. States are fp32 [B, H, Dk, Dv], or a pool [slots, H, Dk, Dv] with initial_slots and final_slots [B] (below 0:
    zeros, not kept). final_state may be initial_state; without it and output_final_state no state is kept. form: "chunked" for
    prefill, "recurrent" for decode; on the CPU both are the recurrence."""
    if not scale:
        raise ValueError(f"scale is {scale}; it must be a number other than 0")
    arrays = {"log_decay": log_decay, "initial_slots": initial_slots, "final_slots": final_slots}
    return _linear(
        lib.fovea_lightning_attention, q, k, v, cu_seqlens, arrays, out, initial_state, final_state, output_final_state, form,
        {"scale": scale, "max_len": int32(max_seqlen, "max_seqlen")},
    )


def gated_delta_rule(
    q: Any,
    k: Any,
    v: Any,
    g: Any,
    beta: Any,
    cu_seqlens: Any,
    *,
    scale: Optional[float] = None,
    use_qk_l2norm: bool = False,
    initial_state: Any = None,
    final_state: Any = None,
    output_final_state: bool = False,
    initial_slots: Any = None,
    final_slots: Any = None,
    form: str = "chunked",
    max_seqlen: int = 0,
    out: Any = None,
) -> Tuple[Any, Any]:
    """S = exp(g_t) S_{t-1}; S_t = S + k_t (beta_t (v_t - S^T k_t))^T; out_t = scale S_t^T q_t, for each sequence and head of v:
    (out [T, H, Dv], final_state).

    q, k [T, Hk, Dk], v [T, H, Dv] of float32, float16 or bfloat16, H a multiple of Hk; g [T, H] fp32, the log of the decay (None =
    0); beta [T, H] fp32 (None = 1); scale None = Dk ** -0.5. use_qk_l2norm: q and k are first multiplied by rsqrt(sum x^2 + 1e-6).
    The rest as for lightning_attention()."""
    if scale is not None and not scale:
        raise ValueError(f"scale is {scale}; it must be a number other than 0, or None for Dk ** -0.5")
    arrays = {"g": g, "beta": beta, "initial_slots": initial_slots, "final_slots": final_slots}
    return _linear(
        lib.fovea_gated_delta_rule, q, k, v, cu_seqlens, arrays, out, initial_state, final_state, output_final_state, form,
        {"scale": scale or 0.0, "max_len": int32(max_seqlen, "max_seqlen"), "normalize_qk": int(use_qk_l2norm)},
    )


def hstu_time_bounds(buckets: int) -> Sequence[int]:
    """time_bounds of the research code's floor(log(max(x, 1)) / 0.301), clamped to `buckets`."""
    import ctypes

    bounds = (ctypes.c_int64 * max(int32(buckets, "buckets"), 0))()
    check(lib.fovea_hstu_time_bounds(buckets, bounds))
    return list(bounds)


def hstu_attention(
    q: Any,
    k: Any,
    v: Any,
    seq_offsets: Any,
    max_seq_len: int,
    *,
    alpha: Optional[float] = None,
    causal: bool = True,
    num_targets: Any = None,
    contextual_seq_len: int = 0,
    max_attn_len: int = 0,
    min_full_attn_seq_len: int = 0,
    position_bias: Any = None,
    time_bias: Any = None,
    time_bounds: Any = None,
    timestamps: Any = None,
    q_offsets: Any = None,
    out: Any = None,
) -> Any:
    """out_i = sum over visible j of silu(alpha q_i.k_j + bias_ij) / max_seq_len v_j over jagged sequences: out [Tq, H, Dv].

    q, k [T, H, Dk], v [T, H, Dv] of float32, float16 or bfloat16; seq_offsets [B + 1]; alpha None = Dk ** -0.5. The arguments of the
    mask are those of the generative recommenders' hstu_mha: num_targets [B], contextual_seq_len, max_attn_len,
    min_full_attn_seq_len. bias_ij = position_bias[max_seq_len - 1 + j - i] + time_bias[bucket(|timestamps[i + 1] - timestamps[j]|)],
    fp32, bucket(x) = the number of time_bounds (int64) that are <= x; hstu_time_bounds() has those of the research code. q_offsets
    [B + 1]: q has only the last rows of each sequence."""
    if not causal:
        raise ValueError("causal is False; HSTU's mask is defined for causal attention only: pass causal=True")
    if alpha is not None and not alpha:
        raise ValueError(f"alpha is {alpha}; it must be a number other than 0, or None for Dk ** -0.5")
    framework = framework_of(q)
    framework.refuse_grad(q, k, v)
    q_arg = framework.describe(q)
    rows, heads, _ = shape_of(q_arg, "q", 3, "[Tq, H, Dk]")
    _, _, dv = shape_of(describe(v), "v", 3, "[T, H, Dv]")
    if out is None:
        out = framework.empty((rows, heads, dv), DTYPE_NAMES[q_arg[3]], q)
    arrays = {
        "q": q, "k": k, "v": v, "out": out, "position_bias": position_bias, "time_bias": time_bias, "time_bounds": time_bounds,
        "times": timestamps,
    }
    for name, x in (("offsets", seq_offsets), ("q_offsets", q_offsets), ("num_targets", num_targets)):
        arrays[name] = x if x is None else framework.narrow(x)
    _run(
        lib.fovea_hstu_attention, CHstu, arrays, _stream(framework, q_arg),
        {
            "max_seq_len": int32(max_seq_len, "max_seq_len"), "alpha": alpha or 0.0,
            "contextual": int32(contextual_seq_len, "contextual_seq_len"), "max_attn_len": int32(max_attn_len, "max_attn_len"),
            "min_full": int32(min_full_attn_seq_len, "min_full_attn_seq_len"),
        },
    )
    return out
