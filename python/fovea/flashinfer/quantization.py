"""Bits of boolean arrays, as FlashInfer packs them."""

from typing import Any, Optional, Tuple

from .._arrays import Framework, framework_of
from .common import sequence_of_rows


def _weights(framework: Framework, bitorder: str, like: Any) -> Any:
    if bitorder not in ("big", "little"):
        raise ValueError(f'bitorder is {bitorder!r}; allowed are "big" and "little"')
    bits = [1, 2, 4, 8, 16, 32, 64, 128]
    return framework.array(bits if bitorder == "little" else bits[::-1], "int32", like)


def _pack(framework: Framework, padded: Any, bitorder: str) -> Any:
    """[8 n] of 0 and 1 as [n] uint8."""
    return framework.cast((padded.reshape(-1, 8) * _weights(framework, bitorder, padded)[None, :]).sum(-1), "uint8")


def packbits(x: Any, bitorder: str = "big") -> Any:
    """Eight elements of x [n] in a byte, the first one in the highest bit ("big") or the lowest: uint8 [ceil(n / 8)]."""
    framework = framework_of(x)
    padded = framework.full((-(-x.shape[0] // 8) * 8,), 0, "int32", x)
    padded[: x.shape[0]] = framework.cast(x != 0, "int32")
    return _pack(framework, padded, bitorder)


def segment_packbits(x: Any, indptr: Any, bitorder: str = "big") -> Tuple[Any, Any]:
    """packbits of each segment x[indptr[i] : indptr[i + 1]], which begins at a byte of its own: the bytes, and where each segment's
    begin, [B + 1]. The sizes are read back from a GPU."""
    return pack_segments(x, indptr, bitorder)


def pack_segments(x: Any, indptr: Any, bitorder: str, size: Optional[int] = None) -> Tuple[Any, Any]:
    """segment_packbits, with room for `size` bytes, where given."""
    framework = framework_of(x)
    counts = (indptr[1:] - indptr[:-1] + 7) // 8
    starts = framework.xp.concatenate((counts[:1] * 0, counts.cumsum(0)), 0)
    starts = framework.cast(starts, str(indptr.dtype).rsplit(".", 1)[-1])
    if size is None:
        size = int(starts[-1])
    padded = framework.full((size * 8,), 0, "int32", x)
    if x.shape[0]:
        segment, i = sequence_of_rows(framework, indptr, x.shape[0], indptr)
        padded[framework.cast(starts, "int64")[segment] * 8 + i] = framework.cast(x != 0, "int32")
    return _pack(framework, padded, bitorder), starts


__all__ = ["packbits", "segment_packbits"]
