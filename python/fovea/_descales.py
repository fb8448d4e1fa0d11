"""Descales of q, k and v that the library has no argument for, on the CPU: fp8 queries, and a descale for each sequence and KV head
(FlashAttention 3's [B, Hkv]). Scores are linear in q and results in v, so that q, widened to fp32, is multiplied by the descales of q
and k, and the result by that of v: the definition with one more rounding of fp32. Blocks of keys become a scale for each row of k."""

from typing import Any, NamedTuple, Optional, Tuple

from ._arrays import DTYPE_NAMES, Framework, framework_of
from ._lib import Arg
from ._serve import RowScales, is_cpu, rows_of_sequences

BLOCK = 128
_FP8 = ("float8_e4m3fn", "float8_e5m2")


def is_fp8(arg: Optional[Arg]) -> bool:
    return arg is not None and DTYPE_NAMES.get(arg[3]) in _FP8


def is_array(x: Any) -> bool:
    return x is not None and not isinstance(x, (int, float))


def _same_for_all(framework: Framework, x: Any) -> bool:
    """A number, one element, [heads], or rows of [B, heads] that are the same memory."""
    if not is_array(x):
        return True
    _, shape, strides = framework.describe(x)[:3]
    return len(shape) < 2 or all(n == 1 for n in shape) or len(shape) == 2 and (shape[0] == 1 or strides[0] == 0)


def needed(framework: Framework, q_arg: Arg, k_arg: Optional[Arg], q_descale: Any, k_descale: Any, v_descale: Any) -> bool:
    """Whether a call goes by widened()."""
    for name, x in (("q_descale", q_descale), ("k_descale", k_descale), ("v_descale", v_descale)):
        if is_array(x) and framework_of(x) is not framework:
            raise ValueError(f"{name} is a {type(x).__name__}; it must be a number, or an array of {framework.name}, as q is")
    if is_fp8(q_arg) or q_descale is not None:
        return True
    blocks = [is_array(x) and len(x.shape) == 3 for x in (k_descale, v_descale)]
    if any(blocks):
        return False
    if all(_same_for_all(framework, x) for x in (k_descale, v_descale)):
        # Scales of heads are the library's where the keys are of fp8.
        return not is_fp8(k_arg) and any(is_array(x) for x in (k_descale, v_descale)) and is_cpu(q_arg[4])
    return is_cpu(q_arg[4])


class Wide(NamedTuple):
    q: Any  # fp32
    v_factor: Any  # of the result's rows and heads, or None
    dtype: str  # of the result, where it is not given


def _of_sequences(framework: Framework, x: Any, seqs: int, heads: int, name: str, like: Any) -> Any:
    """[B, heads] fp32."""
    if not is_array(x):
        return framework.full((seqs, heads), 1.0 if x is None else float(x), "float32", like)
    shape = tuple(x.shape)
    x = framework.cast(x, "float32")
    if all(n == 1 for n in shape):
        return framework.full((seqs, heads), 1.0, "float32", like) * x.reshape(1)
    if shape not in ((heads,), (seqs, heads), (1, heads)):
        raise ValueError(f"{name} has shape {shape}; allowed are a number, [{heads}] of the KV heads, and [{seqs}, {heads}]")
    return framework.full((seqs, heads), 1.0, "float32", like) * (x[None, :] if len(shape) == 1 else x)


def widened(
    framework: Framework, q: Any, q_arg: Arg, kv_heads: int, seqs: int, sequence: Any, q_descale: Any, k_descale: Any, v_descale: Any
) -> Wide:
    """q [..., Hq, D] with its descale and that of k. sequence: the sequence of each row [Tq], or None for q [B, S, Hq, D]."""
    if not is_cpu(q_arg[4]):
        raise ValueError(
            f"{'q is of fp8' if is_fp8(q_arg) else 'q_descale is given'} on a GPU; fp8 queries run on CPUs only: pass q in bfloat16 or "
            "float16, and fold q_descale into softmax_scale"
        )
    if q_descale is not None and not is_fp8(q_arg):
        raise ValueError(
            f"q_descale is given and q is {DTYPE_NAMES.get(q_arg[3])}; only fp8 has one: fold it into softmax_scale, and pass None"
        )
    heads = q_arg[1][-2]
    scales = {"q_descale": q_descale, "k_descale": k_descale, "v_descale": v_descale}
    for name, x in scales.items():
        if is_array(x) and len(x.shape) == 3:
            raise ValueError(f"{name} has three dimensions with fp8 queries; blocks of keys are served with queries of 16 or 32 bits")
    of = {name: _of_sequences(framework, x, seqs, kv_heads, name, q) for name, x in scales.items()}

    def of_rows(x: Any) -> Any:
        """[B, Hkv] as [B, 1, Hq, 1], or [Tq, Hq, 1]."""
        head = framework.cast(framework.arange(0, heads, 1, q) // (heads // kv_heads), "int64")
        x = x[:, head]
        return x[:, None, :, None] if sequence is None else x[sequence][:, :, None]

    wide = framework.cast(q, "float32") * of_rows(of["q_descale"] * of["k_descale"])
    dtype = DTYPE_NAMES[q_arg[3]] if not is_fp8(q_arg) else "bfloat16" if framework.name == "torch" else "float32"
    return Wide(wide, None if v_descale is None else of_rows(of["v_descale"]), dtype)


def finished(framework: Framework, result: Any, wide: Wide, out: Any) -> Any:
    """The fp32 result with the descale of v, in `out` or a new array."""
    if wide.v_factor is not None:
        result = result * wide.v_factor
    if out is None:
        return framework.cast(result, wide.dtype)
    out[...] = result
    return out


def of_blocks(
    framework: Framework, x: Any, k_arg: Arg, v_arg: Arg, name: str, seqs: int, indptr: Any = None
) -> Any:
    """x [B, Hkv, blocks of 128 keys] as RowScales of the rows that k [B, S, Hkv, D] or, with indptr, [Tk, Hkv, D] are; other x as it is."""
    if not is_array(x) or len(x.shape) != 3:
        return x
    if not is_fp8(k_arg) or not is_cpu(k_arg[4]):
        raise ValueError(f"{name} has three dimensions; descales of blocks of {BLOCK} keys are of fp8 keys on the CPU: pass a number or [Hkv]")
    heads = k_arg[1][-2]
    if indptr is None:
        rows = rows_of_sequences(k_arg), rows_of_sequences(v_arg)
        if rows[0] is None or rows[1] is None or rows[0][1] != rows[1][1]:
            raise ValueError(f"{name} has three dimensions and the strides of k and v differ; their rows must lie at one distance")
        step, longest = rows[0][1], k_arg[1][1]
        at = framework.arange(0, seqs * step, 1, x)
        sequence, position = at // max(step, 1), at % max(step, 1)
        total = rows[0][0][1][0]
        sequence, position = sequence[:total], position[:total]
    else:
        total = k_arg[1][0]
        at = framework.arange(0, total, 1, x)
        starts = framework.cast(indptr, "int32")
        sequence = framework.searchsorted(starts[1:-1], at)
        position = at - starts[sequence]
        longest = int((starts[1:] - starts[:-1]).max()) if seqs else 0
    blocks = -(-longest // BLOCK)
    if tuple(x.shape[:2]) != (seqs, heads) or x.shape[2] < blocks:
        raise ValueError(f"{name} has shape {tuple(x.shape)}; with blocks of {BLOCK} keys it must be [{seqs}, {heads}, {max(blocks, 1)}]")
    block = position // BLOCK
    last = x.shape[2] - 1
    block = last - framework.clip_below(last - block, 0)  # between sequences, where nothing is read
    scales = framework.cast(x, "float32")[framework.cast(sequence, "int64"), :, framework.cast(block, "int64")]
    return RowScales(framework.contiguous(scales))


def sequences_of(framework: Framework, offsets: Any, rows: int, like: Any) -> Any:
    """[rows] int64, by offsets [B + 1]."""
    starts = framework.cast(offsets, "int32")
    return framework.cast(framework.searchsorted(starts[1:-1], framework.arange(0, rows, 1, like)), "int64")


__all__: Tuple[str, ...] = ()
