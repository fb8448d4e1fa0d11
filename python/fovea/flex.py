"""Attention whose mask and score are expressions. docs/flex-attention.md has the language."""

import ctypes
from typing import Any, Dict, Mapping, Optional

from ._arrays import DTYPE_NAMES, describe, describe_written, framework_of
from ._lib import BOOL, CPU, CUDA_HOST, UINT, Arg, CFlex, CFlexBuffer, Fields, Slot, check, lib
from ._serve import same_device, shape_of


def _transposed(arg: Arg) -> Arg:
    """[B, H, S, D] as [B, S, H, D]."""
    address, (b, h, s, d), (sb, sh, ss, sd), dtype, device = arg
    return address, (b, s, h, d), (sb, ss, sh, sd), dtype, device


def _buffer(name: str, x: Any) -> Arg:
    arg = describe(x)
    if arg is None:
        raise ValueError(f"buffer {name!r} is None; it must be an array")
    if arg[3] == (BOOL, 8):
        arg = (*arg[:3], (UINT, 8), arg[4])
    if not arg[2]:
        raise ValueError(f"buffer {name!r} has no dimension; it must have 1 or 2")
    return arg


def flex_attention(
    q: Any,
    k: Any,
    v: Any,
    mask: str = "",
    score: str = "",
    buffers: Optional[Mapping[str, Any]] = None,
    *,
    scale: Optional[float] = None,
    layout: str = "bhsd",
    q_offsets: Any = None,
    kv_offsets: Any = None,
    kv_lens: Any = None,
    page_table: Any = None,
    return_lse: bool = False,
    return_blocks: bool = False,
    out: Any = None,
) -> Any:
    """softmax over the keys k that `mask` shows of `score`, times v: torch's flex_attention with expressions for functions.

    fovea.flex_attention(q, k, v, mask="k <= q && doc[q] == doc[k]", score="s + bias[h] * (k - q)", buffers={"doc": ids, "bias": b})

    q [B, Hq, Sq, D], k [B, Hkv, Sk, D], v [B, Hkv, Sk, Dv] of float32, float16 or bfloat16 and any strides but the last; layout
    "bshd": [B, S, H, D], as FlashAttention's. Query head h reads kv head h // (Hq // Hkv). With q_offsets [B + 1]: q [Tq, Hq, D],
    and k, v [T, Hkv, D] with kv_offsets [B + 1], or pages [pages, page, Hkv, D] with kv_lens [B] and page_table [B, n]. Offsets,
    lengths and tables are arrays of the CPU.

    mask: a condition over b, h, q, k, qlen, klen and buffers; "" = every key is seen. score: a number over these and s, the scaled
    product of query and key; "" = s. buffers: arrays of one or two dimensions of int32, float32 or bool (on the CPU also int64) on
    q's device; indices are clamped. scale None = D ** -0.5.

    Returns out, with return_lse also the LSE (fp32, natural logarithm, [B, Hq, Sq], with "bshd" [B, Sq, Hq], [Tq, Hq]), with
    return_blocks also how many blocks of rows and 128 keys the mask leaves (empty, partial, full). A row that sees no key is 0 with LSE -inf.
    ValueError: an expression with an error, with the column and what was expected; what does not fit."""
    if layout not in ("bhsd", "bshd"):
        raise ValueError(f'layout is {layout!r}; allowed are "bhsd" and "bshd"')
    if scale is not None and not scale:
        raise ValueError(f"scale is {scale}; it must be a number other than 0, or None for D ** -0.5")
    framework = framework_of(q)
    framework.refuse_grad(q, k, v)
    ragged = q_offsets is not None
    swapped = layout == "bhsd" and not ragged
    args: Dict[str, Any] = {"q": describe(q), "k": describe(k), "v": describe(v)}
    shape = "[Tq, Hq, D]" if ragged else "[B, Hq, Sq, D]" if swapped else "[B, Sq, Hq, D]"
    q_shape = shape_of(args["q"], "q", 3 if ragged else 4, shape)
    v_shape = shape_of(args["v"], "v", 3 if ragged and kv_lens is None else 4, shape.replace("q", ""))
    shape_of(args["k"], "k", len(v_shape), shape.replace("q", ""))
    if out is None:
        out = framework.empty((*q_shape[:-1], v_shape[-1]), DTYPE_NAMES[args["q"][3]], q)
    args["out"] = describe_written(out, "out")
    shape_of(args["out"], "out", len(q_shape), shape)
    lse = None
    if return_lse:  # in the order of rows, heads
        rows = (q_shape[0], q_shape[2], q_shape[1]) if swapped else q_shape[:-1]
        lse = framework.empty(rows, "float32", q)
        args["lse"] = describe_written(lse, "lse")
    same_device(args["q"], **{name: arg for name, arg in args.items() if name != "q" and arg is not None})
    if swapped:
        for name in ("q", "k", "v", "out"):
            args[name] = _transposed(args[name])
    for name, array in (("q_offsets", q_offsets), ("kv_offsets", kv_offsets), ("kv_lens", kv_lens), ("page_table", page_table)):
        args[name] = None if array is None else describe(array)
    fields = Fields(CFlex)
    fields.put_all(args)
    given = {name: _buffer(name, x) for name, x in (buffers or {}).items()}
    same_device(args["q"], **{f"buffer {name!r}": arg for name, arg in given.items()})
    slots = [Slot() for _ in given]
    array = (CFlexBuffer * max(len(given), 1))()
    for i, (name, arg) in enumerate(given.items()):
        slots[i].put(arg)
        array[i].name, array[i].tensor = name.encode(), slots[i].ptr
    fields.c.buffers, fields.c.num_buffers = array, len(given)
    fields.c.mask, fields.c.score, fields.c.scale = mask.encode(), score.encode(), scale or 0.0
    blocks = (ctypes.c_int64 * 3)()
    fields.c.blocks = blocks
    device = args["q"][4]
    check(lib.fovea_flex_attention(fields.ref, None if device[0] in (CPU, CUDA_HOST) else framework.stream(device)))
    results = [out]
    if return_lse:
        results.append(lse.swapaxes(1, 2) if swapped else lse)
    if return_blocks:
        results.append(tuple(blocks))
    return results[0] if len(results) == 1 else tuple(results)
