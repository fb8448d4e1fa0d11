"""Attention of padded torch tensors under masks that are tensors."""

import weakref
from typing import Any, Optional, Tuple

from .. import _hooks
from .._arrays import Framework, framework_of
from .._serve import Keys, Masking, Packed, constants, flat_rows, rows_of_sequences, serve, shape_of
from ..flash_attn import _padded, _padded_result, _same_batch


def pack(mask: Any, batch: int) -> Packed:
    """A boolean mask [B or 1, Sq, Sk], True = seen, as bits: those of a sequence row by row from the low end of its bytes on."""
    import torch

    rows, keys = mask.shape[-2:]
    flat = mask.expand(batch, rows, keys).reshape(batch, rows * keys)
    size = (rows * keys + 7) // 8
    flat = torch.nn.functional.pad(flat, (0, size * 8 - rows * keys)).view(batch, size, 8)
    shifts = torch.arange(8, dtype=torch.uint8, device=mask.device)
    bits = (flat.to(torch.uint8) << shifts).sum(-1, dtype=torch.uint8).reshape(-1)
    return Packed(bits, torch.arange(batch + 1, dtype=torch.int64, device=mask.device) * size)


_last: Tuple[Any, Any, Optional[Packed]] = (None, None, None)


def _pack_once(framework: Framework, mask: Any, batch: int, stream: Any) -> Packed:
    """All layers of a model get the same mask: the last one's bits are kept as long as it lives and is not changed."""
    global _last
    if framework.capturing() or mask.is_inference():
        return pack(mask[:, 0], batch)
    key = (mask._version, tuple(mask.shape), batch, stream)
    owner, known, packed = _last
    if owner is not None and owner() is mask and known == key and packed is not None:
        return packed
    packed = pack(mask[:, 0], batch)
    _last = (weakref.ref(mask), key, packed)
    return packed


def masked_attention(
    q: Any, k: Any, v: Any, mask: Any, *, softmax_scale: Optional[float] = None, softcap: float = 0.0, learnable_sink: Any = None
) -> Any:
    """q [B, Sq, Hq, D], k [B, Sk, Hkv, D], v [B, Sk, Hkv, Dv] under a boolean mask [B or 1, 1, Sq or 1, Sk], True = seen. Returns
    [B, Sq, Hq, Dv]; a row that sees nothing is 0. Errors: ValueError for other masks."""
    if _hooks.compiling():
        return _hooks.ops.masked_attention(q, k, v, mask, softmax_scale, softcap, learnable_sink)
    framework = framework_of(q)
    framework.refuse_grad(q, k, v)
    q_arg, k_arg, v_arg = framework.describe(q), framework.describe(k), framework.describe(v)
    shape = shape_of(q_arg, "q", 4, "[B, Sq, Hq, D]")
    _same_batch(shape, k_arg, v_arg)
    batch, rows, keys = shape[0], shape[1], k_arg[1][1]
    if str(mask.dtype) != "torch.bool":
        raise ValueError(f"the mask has dtype {mask.dtype}; only boolean masks (True = seen) are supported, no additive ones")
    allowed = ((1, batch), (1,), (1, rows), (keys,))
    if mask.dim() != 4 or any(n not in sizes for n, sizes in zip(mask.shape, allowed)):
        raise ValueError(
            f"the mask has shape {tuple(mask.shape)}; it must be [{batch} or 1, 1, {rows} or 1, {keys}]: the same for all heads"
        )
    out, out_rows, _, _ = _padded_result(framework, q, q_arg, v_arg[1][-1], None, False)
    if batch and rows:
        if mask.shape[2] != rows:
            mask = mask.expand(-1, -1, rows, -1)
        stream = framework.stream(q_arg[4]) if q_arg[4][0] != 1 else None
        packed = _pack_once(framework, mask, batch, stream)
        m = Masking(softmax_scale, softcap=softcap, sink=learnable_sink)
        _padded(framework, q, q_arg, k_arg, v_arg, m, out_rows, None, stream, packed)
    return out


def left_padded_attention(
    q: Any, k: Any, v: Any, seen: Any, *, softmax_scale: Optional[float] = None, window_left: int = -1, softcap: float = 0.0,
    learnable_sink: Any = None,
) -> Any:
    """Causal attention where the first keys of a sequence are padding: seen [B, Sk] boolean, False then True. Query rows are the
    last Sq positions; those that are padding are 0. Nothing is waited for: keys are read from where they begin."""
    framework = framework_of(q)
    framework.refuse_grad(q, k, v)
    q_arg, k_arg, v_arg = framework.describe(q), framework.describe(k), framework.describe(v)
    shape = shape_of(q_arg, "q", 4, "[B, Sq, Hq, D]")
    _same_batch(shape, k_arg, v_arg)
    batch, rows, keys = shape[0], shape[1], k_arg[1][1]
    k_rows, v_rows = rows_of_sequences(k_arg), rows_of_sequences(v_arg)
    if k_rows is None or v_rows is None or k_rows[1] != v_rows[1]:
        raise ValueError(
            f"k and v have strides {tuple(k_arg[2])} and {tuple(v_arg[2])}; sequences must lie whole numbers of rows apart, as "
            "many in both: pass .contiguous()"
        )
    out, out_rows, _, _ = _padded_result(framework, q, q_arg, v_arg[1][-1], None, False)
    if batch and rows:
        stream = framework.stream(q_arg[4]) if q_arg[4][0] != 1 else None
        lens = framework.cast(seen.sum(-1), "int32")
        starts = constants.offsets(framework, q_arg[4], stream, batch, k_rows[1], q).clone()
        starts[:-1] += keys - lens
        offsets = constants.offsets(framework, q_arg[4], stream, batch, rows, q)
        serve(
            framework, q, flat_rows(q_arg),
            Keys(
                k_rows[0], v_rows[0], 1, keys, batch * keys, framework.describe(lens), indptr=framework.describe(starts)
            ),
            framework.describe(offsets), batch, rows,
            Masking(softmax_scale, True, window_left, -1, softcap, sink=learnable_sink), out_rows, None, stream,
        )
    return out
