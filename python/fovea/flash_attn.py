"""Functions with FlashAttention's names, arguments and semantics.

Common to all of them:

- q, k, v: float16, bfloat16 or float32 of torch (CPU or CUDA), cupy or numpy; k and v may be float8_e4m3fn or float8_e5m2.
  Any strides except in the last dimension, including 0 of expanded views; [B, H, S, D] transposed is read in place. (On a GPU
  strides are multiples of 16 bytes.) Nothing is copied or waited for; index arrays may be int32 or int64 of any strides and
  stay on the device. Work is queued on the framework's current stream.
- Query head h reads kv head h // (Hq // Hkv). softmax_scale None = D ** -0.5. `causal` is aligned to the bottom right: row i
  of n_q sees keys j <= i + n_k - n_q. window_size (left, right), inclusive, -1 = unbounded. A row that sees no key is 0 with
  LSE -inf.
- LSE is fp32 in natural logarithm, [B, Hq, S] or [Hq, total]; with `learnable_sink` it includes the sink, as FlashAttention's.
- alibi_slopes fp32 [Hq], on the CPU also [B, Hq]: adds -slope * |i + n_k - n_q - j|. `learnable_sink` (alias `s_aux`) [Hq]: a logit beside the keys'.
- k_descale, v_descale: a stored element x means x * descale: a number, or fp32 [Hkv] (also [B, Hkv] expanded from it). On the CPU also
  [B, Hkv], and where k and v are not pages [B, Hkv, blocks] of 128 keys, of fp8 keys. q may be of fp8 on the CPU, with q_descale: a
  number, [Hkv] or [B, Hkv], and then the result is bfloat16, of numpy float32, where `out` is not given.
- num_splits: a hint that any number may be given for. Keys are split at constant positions in any case, and a row's bits do
  not depend on the batch or its size, on page size or the width of a page table, which is what 1 is set for. tune_for chooses
  kernels, not the call's sizes: "many", or "few" for a faster decode of one or a few sequences, whose bits are others. pack_gqa
  has no effect on results and none on speed: heads of a group are always packed.
- qv, of q's shape with Dv for D: scores are softmax_scale * (q . k + qv . v), softmax_scale None = (D + Dv) ** -0.5. k and v are
  read where they lie if they are neighbours in one array (slices of a latent cache), else joined by a copy in each call.
- There is no backward: tensors that require grad are refused outside torch.no_grad().
- out=: the tensor for the result, with any strides except the last; its elements must not overlap. Without it, q's framework
  allocates the result.
- Lengths and page ids on a GPU are not read by the host. A sequence longer than its row of the page table has NaN in out and
  LSE; others are correct. check_pages=True checks lengths and page ids, which waits for the device, and raises; None: the same
  in Python's development mode (python -X dev, or FOVEA_CHECK_PAGES=1), otherwise no check. An unchecked invalid page id reads
  other memory.

Unsupported arguments raise a ValueError that names them and says why: dropout_p > 0, return_attn_probs, q_descale of a q that is
not of fp8, scheduler_metadata, sm_margin. fovea.flash_attn_interface has the same functions in FlashAttention 3's order of arguments.

The first call with new dtypes, options or (rounded up) sizes creates an object that later calls reuse. It cannot be created
during the capture of a CUDA graph, so call once before. flash_attn_func plans if shapes, strides, options or the stream differ
from those of the thread's last calls, or if another call has used the object since; consecutive layers therefore share a plan.
The objects of the last four calls keep workspaces of up to 16 MiB each.
"""

from typing import Any, Dict, Optional, Sequence, Tuple, Union

from . import _by_sequence, _descales, _hooks
from ._arrays import DTYPE_NAMES, DTYPES, Framework, describe, describe_written, framework_of
from ._flash_forms import keys_after_padding, keys_for_qv, only_used_rows, query_for_qv, qv_scale
from ._serve import Keys, Masking, constants, index, prepared_calls, flat_rows, rows_of_batch, rows_of_sequences, same_device, serve, shape_of
from .cache import append

_Window = Sequence[Optional[int]]


def _refused(name: str, value: Any, allowed: str) -> ValueError:
    return ValueError(f"{name} is {value!r}; {allowed}")


def _masking(
    scale: Optional[float],
    causal: bool,
    window: _Window,
    softcap: float,
    alibi: Any,
    sink: Any,
    s_aux: Any,
    chunk: int,
    k_descale: Any,
    v_descale: Any,
) -> Masking:
    if window is None or len(window) != 2:
        raise _refused("window_size", window, "it must be (left, right), -1 = unbounded")
    left, right = (-1 if w is None else int(w) for w in window)
    if sink is not None and s_aux is not None:
        raise ValueError("learnable_sink and s_aux are both given; they are two names of the same argument: pass one")
    return Masking(
        None if scale is None else float(scale), bool(causal), left, right, float(softcap or 0.0), int(chunk or 0), alibi,
        sink if sink is not None else s_aux, k_descale, v_descale,
    )


def _refuse_unknown(
    dropout_p: float = 0.0,
    return_attn_probs: bool = False,
    num_splits: Optional[int] = 0,
    sm_margin: int = 0,
    scheduler_metadata: Any = None,
) -> None:
    if dropout_p:
        raise _refused("dropout_p", dropout_p, "there is no dropout at inference: pass 0.0")
    if return_attn_probs:
        advice = "probabilities are never formed; for the LSE pass return_softmax_lse=True"
        raise _refused("return_attn_probs", return_attn_probs, advice)
    if num_splits is not None and (not isinstance(num_splits, int) or num_splits < 0):
        raise _refused("num_splits", num_splits, "it is a hint, None or a number from 0 on: keys are split at constant positions")
    if sm_margin:
        raise _refused("sm_margin", sm_margin, "kernels use the whole device: pass 0")
    if scheduler_metadata is not None:
        raise ValueError("scheduler_metadata is given; a call plans by itself, and fovea.Attention plans once for all layers: pass None")


def _arithmetic(q: Any) -> Framework:
    framework = framework_of(q)
    if not framework.has_arithmetic:
        raise ValueError(
            f"q is a {type(q).__name__}; this function takes arrays of torch, cupy and numpy. Others: make the index arrays in "
            "your framework and use fovea.Attention, which takes any DLPack array"
        )
    return framework


_FLOAT32 = DTYPES["float32"]


def _padded_result(
    framework: Framework, q: Any, q_arg: Any, v_dim: int, out: Any, want_lse: bool
) -> Tuple[Any, Any, Any, Any]:
    """out [B, S, Hq, Dv] and lse [B, S, Hq] or None, and both as rows."""
    batch, rows, heads, _ = q_arg[1]
    if out is None:
        name = _dtype_of(q_arg)
        out = framework.empty((batch, rows, heads, v_dim), name, q)
        out_arg: Any = (
            framework.address(out), (batch * rows, heads, v_dim), (heads * v_dim, v_dim, 1), DTYPES[name], q_arg[4]
        )
    else:
        out_arg = describe_written(out, "out")
        if tuple(out_arg[1]) != (batch, rows, heads, v_dim):
            raise ValueError(f"out has shape {tuple(out_arg[1])}; it must be {(batch, rows, heads, v_dim)}")
        out_arg = flat_rows(out_arg)
    if not want_lse:
        return out, out_arg, None, None
    lse = framework.empty((batch, rows, heads), "float32", q)
    return out, out_arg, lse, (framework.address(lse), (batch * rows, heads), (heads, 1), _FLOAT32, q_arg[4])


def _dtype_of(arg: Any) -> str:
    name = DTYPE_NAMES.get(arg[3], "")
    return name if name in ("float16", "bfloat16", "float32") else "float32"


def _lse_of_padded(lse: Any, framework: Framework) -> Any:
    return lse.permute(0, 2, 1) if framework.name == "torch" else lse.transpose(0, 2, 1)


def flash_attn_func(
    q: Any,
    k: Any,
    v: Any,
    dropout_p: float = 0.0,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    window_size: _Window = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Any = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    *,
    return_softmax_lse: bool = False,
    qv: Any = None,
    q_descale: Any = None,
    k_descale: Any = None,
    v_descale: Any = None,
    attention_chunk: int = 0,
    num_splits: Optional[int] = 1,
    pack_gqa: Optional[bool] = None,
    sm_margin: int = 0,
    learnable_sink: Any = None,
    s_aux: Any = None,
    out: Any = None,
    tune_for: str = "many",
) -> Any:
    """Attention of padded sequences: q [B, Sq, Hq, D], k [B, Sk, Hkv, D], v [B, Sk, Hkv, Dv].

    Returns out [B, Sq, Hq, Dv], or (out, lse [B, Hq, Sq]) with return_softmax_lse. attention_chunk C: only keys of the
    query's own chunk of C positions. Results are always deterministic. See the module for the rest."""
    if dropout_p or return_attn_probs or num_splits != 1 or sm_margin:
        _refuse_unknown(dropout_p, return_attn_probs, num_splits, sm_margin=sm_margin)
    if _hooks.compiling():
        _refuse_compiled(qv=qv, q_descale=q_descale)
        result = _hooks.ops.flash_attn(
            q, k, v, softmax_scale, causal, list(window_size), softcap, alibi_slopes,
            learnable_sink if learnable_sink is not None else s_aux, k_descale, v_descale, attention_chunk, tune_for,
        )
        return _compiled(result, out, return_softmax_lse)
    if _by_sequence.needed(q, alibi_slopes):
        shape = shape_of(describe(q), "q", 4, "[B, Sq, Hq, D]")
        _same_batch(shape, describe(k), describe(v))
        batched = dict(q=q, k=k, v=v, qv=qv, q_descale=q_descale, k_descale=k_descale, v_descale=v_descale)
        options = dict(
            softmax_scale=softmax_scale, causal=causal, window_size=window_size, softcap=softcap, attention_chunk=attention_chunk,
            learnable_sink=learnable_sink, s_aux=s_aux, tune_for=tune_for,
        )
        return _by_sequence.call(flash_attn_func, shape[0], batched, {}, {}, options, alibi_slopes, out, return_softmax_lse)
    m = _masking(
        softmax_scale, causal, window_size, softcap, alibi_slopes, learnable_sink, s_aux, attention_chunk, k_descale, v_descale
    )
    framework = _arithmetic(q)
    framework.refuse_grad(q, k, v, m.sink)
    q_arg, k_arg, v_arg = framework.describe(q), describe(k), describe(v)
    stream = framework.stream(q_arg[4]) if q_arg[4][0] != 1 else None
    if q_descale is not None or k_descale is not None or v_descale is not None or q_arg[3][1] == 8:
        shape = shape_of(q_arg, "q", 4, "[B, Sq, Hq, D]")
        _same_batch(shape, k_arg, v_arg)
        if _descales.needed(framework, q_arg, k_arg, q_descale, k_descale, v_descale):
            wide = _descales.widened(framework, q, q_arg, k_arg[1][2], shape[0], None, q_descale, k_descale, v_descale)
            result = flash_attn_func(
                wide.q, k, v, 0.0, softmax_scale, causal, window_size, softcap, alibi_slopes, return_softmax_lse=True, qv=qv,
                attention_chunk=attention_chunk, learnable_sink=learnable_sink, s_aux=s_aux, tune_for=tune_for,
            )
            out = _descales.finished(framework, result[0], wide, out)
            return (out, result[1]) if return_softmax_lse else out
        m = m._replace(
            k_descale=_descales.of_blocks(framework, k_descale, k_arg, v_arg, "k_descale", shape[0]),
            v_descale=_descales.of_blocks(framework, v_descale, k_arg, v_arg, "v_descale", shape[0]),
        )
    key: Any = None
    if out is None and qv is None and k_arg is not None and v_arg is not None and not m.has_arrays():
        key = (framework.name, q_arg[1:], k_arg[1:], v_arg[1:], m, bool(return_softmax_lse), stream, tune_for)
        call = prepared_calls.kept.get(key)
        if call is not None and not (stream is not None and framework.capturing()):
            batch, rows, heads, _ = q_arg[1]
            out = framework.empty((batch, rows, heads, v_arg[1][3]), _dtype_of(q_arg), q)
            lse = framework.empty((batch, rows, heads), "float32", q) if return_softmax_lse else None
            call.run(
                q_arg[0], k_arg[0], v_arg[0], framework.address(out), None if lse is None else framework.address(lse), stream
            )
            return (out, _lse_of_padded(lse, framework)) if return_softmax_lse else out
    shape = shape_of(q_arg, "q", 4, "[B, Sq, Hq, D]")
    _same_batch(shape, k_arg, v_arg)
    same_device(q_arg, k=k_arg, v=v_arg)
    out, out_rows, lse, lse_rows = _padded_result(framework, q, q_arg, v_arg[1][-1], out, return_softmax_lse)
    if qv is not None:
        q, q_arg, k_arg, m, _kept = _with_qv(framework, q, qv, k, v, k_arg, v_arg, m)
        q_arg = (q_arg[0], shape[:2] + tuple(q_arg[1][1:]), (shape[1] * q_arg[2][0],) + tuple(q_arg[2]), *q_arg[3:])
    if shape[0] and shape[1]:
        call = _padded(framework, q, q_arg, k_arg, v_arg, m, out_rows, lse_rows, stream, None, tune_for)
        if key is not None and call is not None:
            prepared_calls.keep(key, call)
    return (out, _lse_of_padded(lse, framework)) if return_softmax_lse else out


def _with_qv(
    framework: Framework, q: Any, qv: Any, k: Any, v: Any, k_arg: Any, v_arg: Any, m: Masking
) -> Tuple[Any, Any, Any, Masking, Any]:
    """q [Tq, Hq, D + Dv], itself and described, the keys that it is multiplied with, the scale, and what must stay alive."""
    if m.k_descale is not None or m.v_descale is not None:
        raise ValueError("qv is given with a descale; it takes keys of 16 or 32 bits: pass k_descale and v_descale as None")
    joined = keys_for_qv(framework, k, v, k_arg, v_arg)
    scale = qv_scale(m.scale, k_arg[1][-1], v_arg[1][-1])
    both = query_for_qv(framework, q, qv, joined, v_arg[1][-1])
    return both, framework.describe(both), joined.k, m._replace(scale=scale), joined


def _refuse_compiled(**arguments: Any) -> None:
    for name, value in arguments.items():
        if value is not None:
            raise ValueError(f"{name} is given inside torch.compile; the operators there do not have it: leave it None")


def _same_batch(q_shape: Tuple[int, ...], k_arg: Any, v_arg: Any) -> None:
    k_shape = shape_of(k_arg, "k", 4, "[B, Sk, Hkv, D]")
    v_shape = shape_of(v_arg, "v", 4, "[B, Sk, Hkv, Dv]")
    if k_shape[:3] != v_shape[:3]:
        raise ValueError(f"k has shape {k_shape} and v {v_shape}; they must agree in all but the head size")
    if k_shape[0] != q_shape[0]:
        raise ValueError(f"q has a batch of {q_shape[0]} and k of {k_shape[0]}; they must be the same")


def _padded(
    framework: Framework, q: Any, q_arg: Any, k_arg: Any, v_arg: Any, m: Masking, out: Any, lse: Any, stream: Any,
    packed: Any = None, tune_for: str = "many",
) -> Any:
    """A function that repeats the call with other arrays; None if the call cannot be repeated."""
    batch, rows = q_arg[1][:2]
    keys, kept = _padded_keys(framework, q, q_arg[4], k_arg, v_arg, None, stream)
    offsets = constants.offsets(framework, q_arg[4], stream, batch, rows, q)
    return serve(
        framework, q, flat_rows(q_arg), keys, framework.describe(offsets), batch, rows, m, out, lse, stream, packed,
        (offsets, kept), tune_for,
    )


def _padded_keys(
    framework: Framework, q: Any, device: Any, k_arg: Any, v_arg: Any, lens: Any, stream: Any
) -> Tuple[Keys, Any]:
    """Describes k, v [B, S, Hkv, D] as rows of one ragged tensor if their strides allow that, otherwise as pages of S keys.
    Also returns what must live until the kernels are queued."""
    batch, rows = k_arg[1][:2]
    if lens is None:
        lens = constants.filled(framework, device, stream, batch, rows, q)
    k_rows, v_rows = rows_of_sequences(k_arg), rows_of_sequences(v_arg)
    if k_rows is not None and v_rows is not None and k_rows[1] == v_rows[1]:
        indptr = constants.offsets(framework, device, stream, batch, k_rows[1], q)
        keys = Keys(
            k_rows[0], v_rows[0], 1, rows, batch * rows, framework.describe(lens), indptr=framework.describe(indptr)
        )
        return keys, (lens, indptr)
    table = constants.offsets(framework, device, stream, batch, 1, q)
    return _batch_pages(framework, k_arg, v_arg, lens, table, batch), (lens, table)


def _batch_pages(framework: Framework, k_arg: Any, v_arg: Any, lens: Any, ids: Any, batch: int) -> Keys:
    """Sequence b is page ids[b] of k, v [pages, S, Hkv, D]."""
    rows = k_arg[1][1]
    table = framework.describe(ids)
    table = (table[0], (batch, 1), (table[2][0], 1), table[3], table[4])
    return Keys(k_arg, v_arg, rows, rows, batch * rows, framework.describe(lens), page_table=table)


def _compiled(result: Any, out: Any, want_lse: bool) -> Any:
    if out is not None:
        raise ValueError("out is given inside torch.compile; results are allocated there: leave it None")
    return tuple(result) if want_lse else result[0]


def flash_attn_varlen_func(
    q: Any,
    k: Any,
    v: Any,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    window_size: _Window = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Any = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    block_table: Any = None,
    *,
    return_softmax_lse: bool = False,
    seqused_q: Any = None,
    seqused_k: Any = None,
    qv: Any = None,
    q_descale: Any = None,
    k_descale: Any = None,
    v_descale: Any = None,
    attention_chunk: int = 0,
    num_splits: Optional[int] = 1,
    pack_gqa: Optional[bool] = None,
    sm_margin: int = 0,
    learnable_sink: Any = None,
    s_aux: Any = None,
    out: Any = None,
    tune_for: str = "many",
    check_pages: Optional[bool] = None,
) -> Any:
    """Attention of ragged sequences: q [Tq, Hq, D], rows cu_seqlens_q[b] to cu_seqlens_q[b + 1] are sequence b's; k [Tk, Hkv,
    D] and v [Tk, Hkv, Dv] likewise by cu_seqlens_k. With block_table [B, pages] k and v are pages [N, page_size, Hkv, D].

    seqused_k [B]: the number of keys to use of each sequence (then, with a block_table, cu_seqlens_k may be None). seqused_q [B]:
    the number of rows of each sequence that are queries; its other rows get 0 and LSE -inf.
    max_seqlen_q and max_seqlen_k must hold: rows of longer sequences may be NaN. Returns out [Tq, Hq, Dv], or (out,
    lse [Hq, Tq]) with return_softmax_lse."""
    _refuse_unknown(dropout_p, return_attn_probs, num_splits, sm_margin=sm_margin)
    if _hooks.compiling():
        _refuse_compiled(qv=qv, seqused_q=seqused_q, q_descale=q_descale)
        result = _hooks.ops.flash_attn_varlen(
            q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, softmax_scale, causal, list(window_size), softcap,
            alibi_slopes, block_table, seqused_k, learnable_sink if learnable_sink is not None else s_aux, k_descale, v_descale,
            attention_chunk, tune_for,
        )
        return _compiled(result, out, return_softmax_lse)
    if _by_sequence.needed(q, alibi_slopes) and cu_seqlens_q is not None:
        seqs = cu_seqlens_q.shape[0] - 1
        batched = dict(
            block_table=block_table, seqused_q=seqused_q, seqused_k=seqused_k, q_descale=q_descale, k_descale=k_descale,
            v_descale=v_descale,
        )
        ragged = {"q": (q, cu_seqlens_q), "qv": (qv, cu_seqlens_q)}
        if block_table is None:
            if cu_seqlens_k is None:
                raise ValueError("cu_seqlens_k is None; pass it, or seqused_k with a block_table")
            ragged.update(k=(k, cu_seqlens_k), v=(v, cu_seqlens_k))
        options = dict(
            max_seqlen_q=max_seqlen_q, max_seqlen_k=max_seqlen_k, softmax_scale=softmax_scale, causal=causal, window_size=window_size,
            softcap=softcap, attention_chunk=attention_chunk, learnable_sink=learnable_sink, s_aux=s_aux, tune_for=tune_for,
            check_pages=check_pages, **({} if block_table is None else {"k": k, "v": v}),
        )
        offsets = dict(cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k)
        return _by_sequence.call(
            flash_attn_varlen_func, seqs, batched, ragged, offsets, options, alibi_slopes, out, return_softmax_lse
        )
    m = _masking(
        softmax_scale, causal, window_size, softcap, alibi_slopes, learnable_sink, s_aux, attention_chunk, k_descale, v_descale
    )
    framework = _arithmetic(q)
    framework.refuse_grad(q, k, v, m.sink)
    q_arg, k_arg, v_arg = framework.describe(q), describe(k), describe(v)
    tokens = shape_of(q_arg, "q", 3, "[Tq, Hq, D]")[0]
    same_device(
        q_arg, k=k_arg, v=v_arg, cu_seqlens_q=describe(cu_seqlens_q), cu_seqlens_k=describe(cu_seqlens_k),
        block_table=describe(block_table), seqused_k=describe(seqused_k), seqused_q=describe(seqused_q), qv=describe(qv),
    )
    cu_seqlens_q, cu_seqlens_k = index(framework, cu_seqlens_q), index(framework, cu_seqlens_k)
    block_table, seqused_k = index(framework, block_table), index(framework, seqused_k)
    if cu_seqlens_q is None:
        raise ValueError("cu_seqlens_q is None; it says where the rows of each sequence are")
    offsets = framework.describe(cu_seqlens_q)
    seqs = shape_of(offsets, "cu_seqlens_q", 1, "[B + 1]")[0] - 1
    max_seqlen_q, max_seqlen_k = int(max_seqlen_q), int(max_seqlen_k or 0)
    _check_longest(tokens, seqs, max_seqlen_q)
    if cu_seqlens_k is None and (seqused_k is None or block_table is None):
        raise ValueError("cu_seqlens_k is None; pass it, or seqused_k with a block_table")
    if q_descale is not None or k_descale is not None or v_descale is not None or q_arg[3][1] == 8:
        if _descales.needed(framework, q_arg, k_arg, q_descale, k_descale, v_descale):
            sequence = _descales.sequences_of(framework, cu_seqlens_q, tokens, q)
            wide = _descales.widened(framework, q, q_arg, k_arg[1][-2], seqs, sequence, q_descale, k_descale, v_descale)
            result = flash_attn_varlen_func(
                wide.q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, 0.0, softmax_scale, causal, window_size, softcap,
                alibi_slopes, False, False, block_table, return_softmax_lse=True, seqused_q=seqused_q, seqused_k=seqused_k, qv=qv,
                attention_chunk=attention_chunk, learnable_sink=learnable_sink, s_aux=s_aux, tune_for=tune_for, check_pages=check_pages,
            )
            out = _descales.finished(framework, result[0], wide, out)
            return (out, result[1]) if return_softmax_lse else out
        if block_table is None:
            m = m._replace(
                k_descale=_descales.of_blocks(framework, k_descale, k_arg, v_arg, "k_descale", seqs, cu_seqlens_k),
                v_descale=_descales.of_blocks(framework, v_descale, k_arg, v_arg, "v_descale", seqs, cu_seqlens_k),
            )
    lens = seqused_k if seqused_k is not None else cu_seqlens_k[1:] - cu_seqlens_k[:-1]
    if seqused_q is not None:
        if tuple(seqused_q.shape) != (seqs,):
            raise ValueError(f"seqused_q has shape {tuple(seqused_q.shape)}; it must be [{seqs}]")
        cu_seqlens_q, lens, block_table, cu_seqlens_k = only_used_rows(
            framework, cu_seqlens_q, seqused_q, lens, block_table, cu_seqlens_k
        )
        offsets, seqs = framework.describe(cu_seqlens_q), 2 * seqs
    if qv is not None:
        q_run, q_run_arg, k_arg, m, _kept = _with_qv(framework, q, qv, k, v, k_arg, v_arg, m)
    else:
        q_run, q_run_arg = q, q_arg
    if block_table is not None:
        keys = _paged_keys(framework, k_arg, v_arg, lens, block_table, seqs, max_seqlen_k)
    else:
        shape_of(k_arg, "k", 3, "[Tk, Hkv, D], or pages with a block_table")
        shape_of(v_arg, "v", 3, "[Tk, Hkv, Dv], or pages with a block_table")
        keys = Keys(
            k_arg, v_arg, 1, max_seqlen_k, k_arg[1][0], framework.describe(lens), indptr=framework.describe(cu_seqlens_k)
        )
    out, out_arg, lse, lse_arg = _ragged_result(framework, q, q_arg, v_arg[1][-1], out, return_softmax_lse)
    if seqs > 0 and tokens:
        stream = framework.stream(q_arg[4]) if q_arg[4][0] != 1 else None
        serve(
            framework, q_run, q_run_arg, keys, offsets, seqs, max(max_seqlen_q, 1), m, out_arg, lse_arg, stream, tune_for=tune_for,
            check_pages=check_pages,
        )
    return (out, lse.T) if return_softmax_lse else out


def _check_longest(tokens: int, seqs: int, longest: int) -> None:
    """Checks max_seqlen_q as far as the host can."""
    if tokens > max(seqs, 0) * longest:
        raise ValueError(
            f"max_seqlen_q is {longest} and cu_seqlens_q has {seqs} sequences; q has {tokens} rows, more than they can have: pass "
            "the rows of the longest sequence, and q without rows that belong to no sequence"
        )


def _ragged_result(
    framework: Framework, q: Any, q_arg: Any, v_dim: int, out: Any, want_lse: bool
) -> Tuple[Any, Any, Any, Any]:
    """out [Tq, Hq, Dv] and lse [Tq, Hq] or None, each described too."""
    tokens, heads, _ = q_arg[1]
    if out is None:
        name = _dtype_of(q_arg)
        out = framework.empty((tokens, heads, v_dim), name, q)
        out_arg: Any = (framework.address(out), (tokens, heads, v_dim), (heads * v_dim, v_dim, 1), DTYPES[name], q_arg[4])
    else:
        out_arg = describe_written(out, "out")
    if not want_lse:
        return out, out_arg, None, None
    lse = framework.empty((tokens, heads), "float32", q)
    return out, out_arg, lse, (framework.address(lse), (tokens, heads), (heads, 1), _FLOAT32, q_arg[4])


def _paged_keys(
    framework: Framework, k_arg: Any, v_arg: Any, lens: Any, table: Any, seqs: int, most: int = 0
) -> Keys:
    """`most` keys of a sequence, where that is known, else what its row of the table has room for."""
    shape_of(k_arg, "k", 4, "[pages, page_size, Hkv, D] with a page table")
    shape_of(v_arg, "v", 4, "[pages, page_size, Hkv, Dv] with a page table")
    table_arg = framework.describe(table)
    if shape_of(table_arg, "the page table", 2, "[B, pages]")[0] != seqs:
        raise ValueError(f"the page table has {table_arg[1][0]} rows; the batch has {seqs} sequences")
    page = k_arg[1][1]
    longest = table_arg[1][1] * page
    if most > 0:
        longest = min(longest, most)
    return Keys(k_arg, v_arg, page, longest, seqs * longest, framework.describe(lens), page_table=table_arg)


def flash_attn_with_kvcache(
    q: Any,
    k_cache: Any,
    v_cache: Any,
    k: Any = None,
    v: Any = None,
    rotary_cos: Any = None,
    rotary_sin: Any = None,
    cache_seqlens: Union[int, Any, None] = None,
    cache_batch_idx: Any = None,
    cache_leftpad: Any = None,
    block_table: Any = None,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    window_size: _Window = (-1, -1),
    softcap: float = 0.0,
    rotary_interleaved: bool = True,
    alibi_slopes: Any = None,
    num_splits: Optional[int] = 0,
    return_softmax_lse: bool = False,
    *,
    page_table: Any = None,
    qv: Any = None,
    cu_seqlens_q: Any = None,
    cu_seqlens_k_new: Any = None,
    max_seqlen_q: Optional[int] = None,
    rotary_seqlens: Any = None,
    q_descale: Any = None,
    k_descale: Any = None,
    v_descale: Any = None,
    attention_chunk: int = 0,
    scheduler_metadata: Any = None,
    pack_gqa: Optional[bool] = None,
    sm_margin: int = 0,
    learnable_sink: Any = None,
    s_aux: Any = None,
    out: Any = None,
    tune_for: str = "many",
    check_pages: Optional[bool] = None,
) -> Any:
    """Attention over a cache, to which new rows are appended first.

    q [B, Sq, Hq, D]; or ragged [Tq, Hq, D] with cu_seqlens_q [B + 1] and max_seqlen_q. k_cache [Bc, Sc, Hkv, D] and v_cache
    [Bc, Sc, Hkv, Dv]; or, with page_table (block_table) [B, pages], pages [N, page_size, Hkv, D].

    cache_seqlens: keys of each sequence before this call, a number or [B]; None = Sc. cache_batch_idx [B]: the row of the
    cache of each sequence. cache_leftpad [B]: where the keys of each sequence begin; those in front are not seen. k [B, Sn, Hkv, D], v [B, Sn, Hkv, Dv] (or ragged with cu_seqlens_k_new [B + 1]) are written to the
    cache at cache_seqlens and on, which must have room for them, and are then seen as the rest is. The caller raises its
    cache_seqlens.

    rotary_cos, rotary_sin [positions, R / 2] (fp32; others are converted in each call), R <= D: with new k only. New k are
    rotated at positions cache_seqlens (rotary_seqlens [B], where given) and on; q so too with `causal`, a window or a chunk, else
    all of its rows at the first.
    rotary_interleaved: pairs are (2t, 2t + 1), else (t, t + R / 2). q itself is not changed.

    Returns out of q's shape with Dv for D, or (out, lse [B, Hq, Sq]; [Hq, Tq] of ragged q) with return_softmax_lse."""
    _refuse_unknown(num_splits=num_splits, sm_margin=sm_margin, scheduler_metadata=scheduler_metadata)
    if block_table is not None and page_table is not None:
        raise ValueError("block_table and page_table are both given; they are two names of the same argument: pass one")
    table = page_table if page_table is not None else block_table
    if _hooks.compiling():
        _refuse_compiled(qv=qv, cache_leftpad=cache_leftpad, rotary_seqlens=rotary_seqlens, q_descale=q_descale)
        if cu_seqlens_q is not None or cu_seqlens_k_new is not None:
            raise ValueError("cu_seqlens_q and cu_seqlens_k_new are not supported inside torch.compile; leave them None")
        result = _hooks.ops.flash_attn_with_kvcache(
            q, k_cache, v_cache, k, v, rotary_cos, rotary_sin, None if isinstance(cache_seqlens, int) else cache_seqlens,
            cache_seqlens if isinstance(cache_seqlens, int) else None, cache_batch_idx, table, softmax_scale, causal,
            list(window_size), softcap, rotary_interleaved, alibi_slopes,
            learnable_sink if learnable_sink is not None else s_aux, k_descale, v_descale, attention_chunk, tune_for,
        )
        return _compiled(result, out, return_softmax_lse)
    if _by_sequence.needed(q, alibi_slopes):
        rows = cu_seqlens_q is not None
        seqs = cu_seqlens_q.shape[0] - 1 if rows else q.shape[0]
        batched = dict(
            cache_seqlens=cache_seqlens, cache_batch_idx=cache_batch_idx, cache_leftpad=cache_leftpad, block_table=table,
            rotary_seqlens=rotary_seqlens, q_descale=q_descale, k_descale=k_descale, v_descale=v_descale,
            **({} if rows else {"q": q, "qv": qv}), **({} if cu_seqlens_k_new is not None else {"k": k, "v": v}),
        )
        caches = dict(k_cache=k_cache, v_cache=v_cache)
        (batched if table is None and cache_batch_idx is None else caches).update(caches)
        options = dict(
            caches, rotary_cos=rotary_cos, rotary_sin=rotary_sin, softmax_scale=softmax_scale, causal=causal, window_size=window_size,
            softcap=softcap, rotary_interleaved=rotary_interleaved, max_seqlen_q=max_seqlen_q, attention_chunk=attention_chunk,
            learnable_sink=learnable_sink, s_aux=s_aux, tune_for=tune_for, check_pages=check_pages,
        )
        ragged = {"q": (q, cu_seqlens_q), "qv": (qv, cu_seqlens_q)} if rows else {}
        if cu_seqlens_k_new is not None:
            ragged.update(k=(k, cu_seqlens_k_new), v=(v, cu_seqlens_k_new))
        offsets = dict(cu_seqlens_q=cu_seqlens_q, cu_seqlens_k_new=cu_seqlens_k_new) if rows else {}
        return _by_sequence.call(
            flash_attn_with_kvcache, seqs, batched, ragged, offsets, options, alibi_slopes, out, return_softmax_lse
        )
    m = _masking(
        softmax_scale, causal, window_size, softcap, alibi_slopes, learnable_sink, s_aux, attention_chunk, k_descale, v_descale
    )
    framework = _arithmetic(q)
    framework.refuse_grad(q, k_cache, v_cache, k, v, m.sink)
    q_arg, k_arg, v_arg = framework.describe(q), describe(k_cache), describe(v_cache)
    same_device(
        q_arg, k_cache=k_arg, v_cache=v_arg, k=describe(k), v=describe(v), page_table=describe(table),
        cache_batch_idx=describe(cache_batch_idx), cu_seqlens_q=describe(cu_seqlens_q), cache_leftpad=describe(cache_leftpad),
        rotary_seqlens=describe(rotary_seqlens), qv=describe(qv),
        cache_seqlens=None if isinstance(cache_seqlens, int) else describe(cache_seqlens),
    )
    same_rows = cu_seqlens_q is cu_seqlens_k_new
    table, cache_batch_idx, cache_seqlens = (index(framework, x) for x in (table, cache_batch_idx, cache_seqlens))
    cu_seqlens_q = index(framework, cu_seqlens_q)
    cu_seqlens_k_new = cu_seqlens_q if same_rows else index(framework, cu_seqlens_k_new)
    stream = framework.stream(q_arg[4]) if q_arg[4][0] != 1 else None
    step = _Step(framework, q, q_arg, cu_seqlens_q, max_seqlen_q, stream)
    cache_shape = shape_of(k_arg, "k_cache", 4, "[Bc, Sc, Hkv, D], or [pages, page_size, Hkv, D] with a page table")
    shape_of(v_arg, "v_cache", 4, "[Bc, Sc, Hkv, Dv], or [pages, page_size, Hkv, Dv] with a page table")
    if k_arg is not None and _descales.needed(framework, q_arg, k_arg, q_descale, k_descale, v_descale):
        if k is not None:
            raise ValueError(
                "k and v are appended and q is of fp8, or a descale has a value for each head or sequence; new rows are quantised with one "
                "number: append them by append_kv, and pass k and v as None"
            )
        sequence = None if cu_seqlens_q is None else _descales.sequences_of(framework, cu_seqlens_q, step.tokens, q)
        wide = _descales.widened(framework, q, q_arg, k_arg[1][-2], step.seqs, sequence, q_descale, k_descale, v_descale)
        result = flash_attn_with_kvcache(
            wide.q, k_cache, v_cache, None, None, None, None, cache_seqlens, cache_batch_idx, cache_leftpad, table, softmax_scale, causal,
            window_size, softcap, alibi_slopes=alibi_slopes, return_softmax_lse=True, qv=qv, cu_seqlens_q=cu_seqlens_q,
            max_seqlen_q=max_seqlen_q, attention_chunk=attention_chunk, learnable_sink=learnable_sink, s_aux=s_aux, tune_for=tune_for,
            check_pages=check_pages,
        )
        out = _descales.finished(framework, result[0], wide, out)
        return (out, result[1]) if return_softmax_lse else out
    if table is not None and cache_batch_idx is not None:
        raise ValueError("cache_batch_idx and a page table are both given; a page table says where sequences lie: pass one")
    if table is None and cache_batch_idx is None and cache_shape[0] != step.seqs:
        raise ValueError(
            f"q has a batch of {step.seqs} and k_cache of {cache_shape[0]}; they must be the same, or pass cache_batch_idx"
        )
    if (k is None) != (v is None):
        raise ValueError("one of k and v is None; pass both or none")
    for name, given in (("cache_leftpad", cache_leftpad), ("rotary_seqlens", rotary_seqlens)):
        if given is not None and tuple(given.shape) != (step.seqs,):
            raise ValueError(f"{name} has shape {tuple(given.shape)}; it must be [{step.seqs}]")
    if rotary_seqlens is not None and rotary_cos is None:
        raise ValueError("rotary_seqlens is given without rotary_cos; there is nothing to rotate: pass both or none")
    if k is None and (rotary_cos is not None or rotary_sin is not None):
        raise ValueError("rotary_cos is given without new k and v; rotation is part of the append: pass k and v, or rotate q yourself")
    if k is not None and cache_seqlens is None:
        raise ValueError("cache_seqlens is None; new k and v need to know where they go")

    if cache_seqlens is None or isinstance(cache_seqlens, int):
        if cache_seqlens is None and table is not None:
            raise ValueError("cache_seqlens is None; with a page table it must be given")
        value = cache_shape[1] if cache_seqlens is None else cache_seqlens
        room = cache_shape[1] * (1 if table is None else shape_of(describe(table), "the page table", 2, "[B, pages]")[1])
        new = k.shape[1] if k is not None and cu_seqlens_k_new is None and len(k.shape) == 4 else 0
        if value < 0 or value + new > room:
            raise ValueError(
                f"cache_seqlens is {value} and k has {new} new rows for each sequence; together they must be 0 to {room}, which "
                "is what a sequence has room for in the cache"
            )
        before = constants.filled(framework, q_arg[4], stream, step.seqs, value, q)
    else:
        before = cache_seqlens
    if cache_batch_idx is not None and tuple(cache_batch_idx.shape) != (step.seqs,):
        raise ValueError(f"cache_batch_idx has shape {tuple(cache_batch_idx.shape)}; it must be [{step.seqs}]")
    lens = before
    q_run, q_run_arg = q, step.rows
    if k is not None:
        lens, q_run = _append_new(
            framework, step, k, v, k_cache, v_cache, before, table, cache_batch_idx, cu_seqlens_k_new, rotary_cos, rotary_sin,
            rotary_interleaved, m, stream, rotary_seqlens,
        )
        if q_run is not q:
            q_run_arg = framework.describe(q_run)
    kept: Any = None
    v_dim = v_arg[1][-1]
    if qv is not None:
        q_run, q_run_arg, k_arg, m, _joined = _with_qv(framework, q_run, qv, k_cache, v_cache, k_arg, v_arg, m)
    if cache_leftpad is not None:
        ids, page = (table, cache_shape[1]) if table is not None else (cache_batch_idx, cache_shape[1])
        keys, kept = keys_after_padding(
            framework, k_arg, v_arg, lens, index(framework, cache_leftpad), ids, page, step.seqs, q_arg[4], q
        )
    elif table is not None:
        keys = _paged_keys(framework, k_arg, v_arg, lens, table, step.seqs)
    elif cache_batch_idx is not None:
        keys = _batch_pages(framework, k_arg, v_arg, lens, cache_batch_idx, step.seqs)
    else:
        keys, kept = _padded_keys(framework, q, q_arg[4], k_arg, v_arg, lens, stream)
    if cu_seqlens_q is None:
        out, out_arg, lse, lse_arg = _padded_result(framework, q, q_arg, v_dim, out, return_softmax_lse)
    else:
        out, out_arg, lse, lse_arg = _ragged_result(framework, q, q_arg, v_dim, out, return_softmax_lse)
    if step.tokens:
        serve(
            framework, q_run, q_run_arg, keys, framework.describe(step.offsets), step.seqs, step.longest, m, out_arg, lse_arg, stream,
            tune_for=tune_for, check_pages=check_pages,
        )
    del kept
    if not return_softmax_lse:
        return out
    return out, (_lse_of_padded(lse, framework) if cu_seqlens_q is None else lse.T)


class _Step:
    """The query rows of flash_attn_with_kvcache."""

    def __init__(self, framework: Framework, q: Any, q_arg: Any, cu_seqlens_q: Any, max_seqlen_q: Optional[int], stream: Any) -> None:
        self.ragged = cu_seqlens_q is not None
        self.q = q
        if self.ragged:
            if max_seqlen_q is None:
                raise ValueError("max_seqlen_q is None; with cu_seqlens_q it must be given")
            self.tokens = shape_of(q_arg, "q", 3, "[Tq, Hq, D] with cu_seqlens_q")[0]
            self.seqs = describe(cu_seqlens_q)[1][0] - 1
            self.longest = max(int(max_seqlen_q), 1)
            _check_longest(self.tokens, self.seqs, int(max_seqlen_q))
            self.rows, self.offsets = q_arg, cu_seqlens_q
            self.counts: Any = cu_seqlens_q[1:] - cu_seqlens_q[:-1]
        else:
            self.seqs, self.longest = shape_of(q_arg, "q", 4, "[B, Sq, Hq, D], or [Tq, Hq, D] with cu_seqlens_q")[:2]
            self.tokens = self.seqs * self.longest
            self.rows = flat_rows(q_arg)
            self.offsets = constants.offsets(framework, q_arg[4], stream, self.seqs, self.longest, q)
            self.counts = self.longest


def _append_new(
    framework: Framework,
    step: _Step,
    k: Any,
    v: Any,
    k_cache: Any,
    v_cache: Any,
    before: Any,
    table: Any,
    cache_batch_idx: Any,
    cu_seqlens_k_new: Any,
    cos: Any,
    sin: Any,
    interleaved: bool,
    m: Masking,
    stream: Any,
    rotary_seqlens: Any = None,
) -> Tuple[Any, Any]:
    """Writes k and v, rotated where cos is given, and rotates q: the lengths afterwards, and q [Tq, Hq, D] or `step.q`."""
    k_arg, v_arg, device = describe(k), describe(v), step.rows[4]
    if cu_seqlens_k_new is not None:
        shape_of(k_arg, "k", 3, "[total, Hkv, D] with cu_seqlens_k_new")
        k_offsets, k_counts = cu_seqlens_k_new, cu_seqlens_k_new[1:] - cu_seqlens_k_new[:-1]
        k_rows, v_rows = k_arg, v_arg
    else:
        k_shape = shape_of(k_arg, "k", 4, "[B, Sn, Hkv, D], or [total, Hkv, D] with cu_seqlens_k_new")
        shape_of(v_arg, "v", 4, "[B, Sn, Hkv, Dv]")
        if k_shape[0] != step.seqs:
            raise ValueError(f"k has a batch of {k_shape[0]} and q of {step.seqs}; they must be the same")
        k_counts = k_shape[1]
        k_offsets = constants.offsets(framework, device, stream, step.seqs, k_counts, step.q)
        k_rows, v_rows = rows_of_batch(k_arg, "k"), rows_of_batch(v_arg, "v")
    for name, scale in (("k_descale", m.k_descale), ("v_descale", m.v_descale)):
        if scale is not None and not isinstance(scale, (int, float)):
            raise ValueError(f"{name} is an array and k and v are appended; new rows are quantised with one number: pass a float")
    lens = before + k_counts
    if table is None:
        ids = cache_batch_idx
        if ids is None:
            ids = constants.offsets(framework, device, stream, step.seqs, 1, step.q)
        a = framework.describe(ids)
        table_arg = (a[0], (step.seqs, 1), (a[2][0], 1), a[3], a[4])
    else:
        table_arg = framework.describe(table)

    common: Dict[str, Any] = {}
    if cos is not None:
        if sin is None:
            raise ValueError("rotary_sin is None; pass both of rotary_cos and rotary_sin")
        cos, sin = framework.cast(cos, "float32"), framework.cast(sin, "float32")
        common = {"cos": framework.describe(cos), "sin": framework.describe(sin), "interleaved": bool(interleaved)}
    by_row = m.causal or m.left >= 0 or m.right >= 0 or m.chunk > 0 or step.longest == 1
    q_out: Any = step.q
    together: Dict[str, Any] = {}
    positions: Any = None
    at = before if rotary_seqlens is None else rotary_seqlens
    if rotary_seqlens is not None and k_rows[1][0]:
        positions = _positions(framework, k_offsets, at, k_rows[1][0], step.q)
        common["positions"] = framework.describe(positions)
    if cos is not None:
        if len(step.rows[1]) == 4:
            rows_of_batch(step.rows, "q")  # refuses: rotation reads rows at one distance
        tokens, heads, dim = step.rows[1]
        q_out = framework.empty((tokens, heads, dim), _dtype_of(step.rows), step.q)
        same_rows = (k_offsets is cu_seqlens_k_new and k_offsets is step.offsets) or (
            isinstance(k_counts, int) and isinstance(step.counts, int) and k_counts == step.counts
        )
        if by_row and same_rows:
            together = {"q": step.rows, "q_out": framework.describe(q_out)}
        else:
            _rotate_q(framework, step, at, q_out, by_row, common, stream)
    if k_rows[1][0]:
        append(
            dict(
                common, k=k_rows, v=v_rows, k_cache=describe_written(k_cache, "k_cache"),
                v_cache=describe_written(v_cache, "v_cache"), q_offsets=framework.describe(k_offsets),
                kv_lens=framework.describe(lens), page_table=table_arg, **together,
            ),
            stream, m.k_descale, m.v_descale,
        )
    return lens, q_out


def _rotate_q(
    framework: Framework, step: _Step, before: Any, q_out: Any, by_row: bool, common: Dict[str, Any], stream: Any
) -> None:
    """At its own positions, or all rows of a sequence at the first."""
    if not step.tokens:
        return
    positions = _positions(framework, step.offsets, before, step.tokens, step.q, by_row)
    append(dict(common, q=step.rows, q_out=framework.describe(q_out), positions=framework.describe(positions)), stream)


def _positions(framework: Framework, offsets: Any, first: Any, rows: int, like: Any, by_row: bool = True) -> Any:
    """The positions of rows: first[b] and on for those of sequence b, or first[b] for all of them."""
    at = framework.arange(0, rows, 1, like)
    sequences = framework.searchsorted(framework.cast(offsets[1:], "int32"), at)
    positions = first[sequences]
    return positions + (at - offsets[sequences]) if by_row else positions


def flash_attn_qkvpacked_func(
    qkv: Any,
    dropout_p: float = 0.0,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    window_size: _Window = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Any = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    **more: Any,
) -> Any:
    """flash_attn_func of qkv [B, S, 3, H, D]."""
    _packed_shape(qkv, "qkv", 5, 3, "[B, S, 3, H, D]")
    return flash_attn_func(
        qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2], dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes,
        deterministic, return_attn_probs, **more,
    )


def flash_attn_kvpacked_func(
    q: Any,
    kv: Any,
    dropout_p: float = 0.0,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    window_size: _Window = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Any = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    **more: Any,
) -> Any:
    """flash_attn_func of q [B, Sq, Hq, D] and kv [B, Sk, 2, Hkv, D]."""
    _packed_shape(kv, "kv", 5, 2, "[B, Sk, 2, Hkv, D]")
    return flash_attn_func(
        q, kv[:, :, 0], kv[:, :, 1], dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic,
        return_attn_probs, **more,
    )


def flash_attn_varlen_qkvpacked_func(
    qkv: Any,
    cu_seqlens: Any,
    max_seqlen: int,
    dropout_p: float = 0.0,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    window_size: _Window = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Any = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    **more: Any,
) -> Any:
    """flash_attn_varlen_func of qkv [T, 3, H, D]."""
    _packed_shape(qkv, "qkv", 4, 3, "[T, 3, H, D]")
    return flash_attn_varlen_func(
        qkv[:, 0], qkv[:, 1], qkv[:, 2], cu_seqlens, cu_seqlens, max_seqlen, max_seqlen, dropout_p, softmax_scale, causal,
        window_size, softcap, alibi_slopes, deterministic, return_attn_probs, **more,
    )


def flash_attn_varlen_kvpacked_func(
    q: Any,
    kv: Any,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    window_size: _Window = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Any = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    **more: Any,
) -> Any:
    """flash_attn_varlen_func of q [Tq, Hq, D] and kv [Tk, 2, Hkv, D]."""
    _packed_shape(kv, "kv", 4, 2, "[Tk, 2, Hkv, D]")
    return flash_attn_varlen_func(
        q, kv[:, 0], kv[:, 1], cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p, softmax_scale, causal,
        window_size, softcap, alibi_slopes, deterministic, return_attn_probs, **more,
    )


def _packed_shape(x: Any, name: str, dims: int, parts: int, layout: str) -> None:
    if len(x.shape) != dims or x.shape[dims - 3] != parts:
        raise ValueError(f"{name} has shape {tuple(x.shape)}; it must be {layout}")
