"""What FlashInfer's functions share: its logarithms, slopes, rotation, masks, and what is refused."""

import math
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from .._arrays import Framework, describe, dtype_name, framework_of
from .._lib import CPU, CUDA_HOST
from ..cache import append

LOG2E = math.log2(math.e)
LN2 = math.log(2.0)


def to_base_2(lse: Any) -> Any:
    """In place."""
    lse *= LOG2E
    return lse


def from_base_2(lse: Any) -> Any:
    return lse * LN2


def refuse(reasons: Dict[str, str], **given: Any) -> None:
    """Raises for the first argument that is neither None nor False."""
    for name, value in given.items():
        if value is not None and value is not False:
            raise ValueError(f"{name} is given; {reasons[name]}")


def check_layout(kv_layout: str) -> None:
    if kv_layout not in ("NHD", "HND"):
        raise ValueError(f'kv_layout is {kv_layout!r}; allowed are "NHD" and "HND"')


def check_output_type(o_type: Any, q_type: str, name: str) -> None:
    if o_type is not None and dtype_name(o_type) != q_type:
        raise ValueError(f"{name} is {dtype_name(o_type)}; results have the dtype of q, {q_type}: leave it None and convert them")


def number(x: Any, name: str, default: float = 1.0) -> float:
    """A scale: a number, or an array of one element on the CPU."""
    if x is None:
        return default
    if isinstance(x, (int, float)):
        return float(x)
    arg = describe(x)
    if arg is None or arg[4][0] not in (CPU, CUDA_HOST) or any(n != 1 for n in arg[1]):
        raise ValueError(
            f"{name} is an array of shape {tuple(x.shape)}; it must be a number: one scale for all heads, which the host knows"
        )
    return float(x)


class Positions(NamedTuple):
    """What pos_encoding_mode stands for."""

    alibi: str = ""  # "signed" or "distance"
    theta: Optional[float] = None  # of ROPE_LLAMA
    scale: float = 1.0


def positions(
    mode: str, rope_scale: Optional[float], rope_theta: Optional[float], alibi_form: str = "signed"
) -> Positions:
    """alibi_form: "signed", slope * (j - i) as FlashInfer has it, or "distance", -slope * |i + n_k - n_q - j| as FlashAttention."""
    if mode not in ("NONE", "ROPE_LLAMA", "ALIBI"):
        raise ValueError(f'pos_encoding_mode is {mode!r}; allowed are "NONE", "ROPE_LLAMA" and "ALIBI"')
    if alibi_form not in ("signed", "distance"):
        raise ValueError(f'alibi_form is {alibi_form!r}; allowed are "signed" and "distance"')
    if mode != "ROPE_LLAMA":
        return Positions(alibi_form if mode == "ALIBI" else "")
    return Positions("", float(rope_theta or 1e4), float(rope_scale or 1.0))


def alibi_slopes(heads: int) -> List[float]:
    """Of ALiBi's paper, with steps in between for numbers that are no powers of 2."""
    whole = 1 << (heads.bit_length() - 1)
    slopes = [2.0 ** (-8.0 * (h + 1) / whole) for h in range(whole)]
    return slopes + [2.0 ** (-4.0 * (2 * (h - whole) + 1) / whole) for h in range(whole, heads)]


def frequencies(
    rotary_dim: int, theta: float, scale: float, low_freq: float = 0.0, high_freq: float = 0.0, old_context: float = 0.0
) -> List[float]:
    """[rotary_dim / 2]: theta^(-2 t / rotary_dim), divided by `scale`; with old_context as Llama 3.1 does, whose long waves are
    divided, short ones not, and those in between blended."""
    out = []
    for t in range(rotary_dim // 2):
        f = theta ** (-2.0 * t / rotary_dim)
        if old_context:
            blend = (old_context * f / (2.0 * math.pi) - low_freq) / (high_freq - low_freq)
            blend = min(max(blend, 0.0), 1.0)
            out.append((1.0 - blend) * f / scale + blend * f)
        else:
            out.append(f / scale)
    return out


def angle_tables(framework: Framework, at: Any, of: List[float]) -> Tuple[Any, Any]:
    """cos and sin [T, len(of)] fp32 of the positions `at` [T], from angles in fp64: fp32 has none of a long context's."""
    angles = framework.cast(at, "float64")[:, None] * framework.array(of, "float64", at)[None, :]
    xp = framework.xp
    return framework.cast(xp.cos(angles), "float32"), framework.cast(xp.sin(angles), "float32")


def rotate(framework: Framework, x: Any, cos: Any, sin: Any, interleaved: bool, out: Any) -> Any:
    """x [T, H, D] into out, which may be x, row t with row t of cos, sin [T, R / 2]. Rows whose heads lie apart go through a copy."""
    arg, out_arg = framework.describe(x), framework.describe_written(out, "out")
    dense = all(tuple(a[2][1:]) == (a[1][2], 1) for a in (arg, out_arg))
    rotated = out if dense else framework.empty(tuple(arg[1]), dtype_name(x.dtype), x)
    ready = x if dense else framework.contiguous(x)
    append(
        {
            "q": framework.describe(ready), "q_out": framework.describe(rotated), "cos": framework.describe(cos),
            "sin": framework.describe(sin), "interleaved": interleaved,
        },
        None if arg[4][0] in (CPU, CUDA_HOST) else framework.stream(arg[4]),
    )
    if not dense:
        out[...] = rotated
    return out


def sequence_of_rows(framework: Framework, indptr: Any, rows: int, like: Any) -> Tuple[Any, Any]:
    """For rows 0 .. rows - 1 the sequence (int64) and the row in it, by indptr [B + 1]; rows behind the last are in it too."""
    indptr = framework.cast(indptr, "int32")
    at = framework.arange(0, rows, 1, like)
    found = framework.cast(framework.searchsorted(indptr[1:-1], at), "int64")
    return found, at - indptr[found]


def query_positions(framework: Framework, q_indptr: Any, kv_lens: Any, rows: int, like: Any) -> Any:
    """[rows]: i + n_k - n_q."""
    sequence, i = sequence_of_rows(framework, q_indptr, rows, like)
    return i + (kv_lens - (q_indptr[1:] - q_indptr[:-1]))[sequence]


def uniform_rows(indptr: Any, rows: int) -> Any:
    """[0, rows, 2 rows, ...], as long as indptr."""
    count = describe(indptr)[1][0]  # type: ignore[index]
    return framework_of(indptr).arange(0, (count - 1) * rows + 1, rows, indptr)


def cpu(framework: Framework, x: Any) -> bool:
    return framework.describe(x)[4][0] in (CPU, CUDA_HOST)
