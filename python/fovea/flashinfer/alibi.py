"""FlashInfer's ALiBi where rows see keys on both sides of them: slope * (j - i) has both signs, which flex_attention computes."""

from typing import Any, Dict, Optional, Tuple

from .._arrays import Framework
from ..flex import flex_attention
from .common import cpu, to_base_2


class SignedAlibi:
    """A step whose scores are s + slopes[h] * (j - i), on the CPU. mask: the bits and where each sequence's begin, or None."""

    def __init__(
        self, framework: Framework, q_indptr: Any, kv_indptr: Any, indices: Any, kv_lens: Any, mask: Optional[Tuple[Any, Any]],
        window_left: int, scale: float, soft_cap: Optional[float], slopes: Any,
    ) -> None:
        if not cpu(framework, q_indptr):
            raise ValueError(
                'pos_encoding_mode is "ALIBI" without causal=True on a GPU; the signed bias of keys behind a row needs offsets in host '
                'memory there: use fovea.flex_attention with score="s + slopes[h] * (k - q)", pass causal=True, or alibi_form="distance"'
            )
        if soft_cap:
            raise ValueError(
                f'pos_encoding_mode is "ALIBI" with logits_soft_cap {soft_cap}; libraries disagree on the order of the two: pass one'
            )
        self._framework, self._scale = framework, scale
        self._buffers: Dict[str, Any] = {"slopes": slopes}
        self._mask = ""
        if mask is not None:
            bits, starts = mask
            # Elements of a flex buffer are of 32 bits or booleans: bytes of the mask are widened, starts fit.
            self._buffers.update(bits=framework.cast(bits, "int32"), starts=framework.cast(starts, "int32"))
            self._mask = "(bits[starts[b] + ((q * klen + k) >> 3)] >> ((q * klen + k) & 7) & 1) != 0"
        elif window_left >= 0:
            self._mask = f"k >= q + klen - qlen - {window_left}"
        where: Dict[str, Any] = {"q_offsets": q_indptr}
        if indices is None:
            where["kv_offsets"] = kv_indptr
        else:
            counts = kv_indptr[1:] - kv_indptr[:-1]
            longest = max(int(counts.max()), 1) if counts.shape[0] else 1
            at = kv_indptr[:-1][:, None] + framework.arange(0, longest, 1, kv_indptr)[None, :]
            last = max(indices.shape[0] - 1, 0)
            at = last - framework.clip_below(last - at, 0)  # entries behind a sequence's pages are not read
            where.update(kv_lens=kv_lens, page_table=indices[framework.cast(at, "int64")])
        self._where = where

    def run(
        self, q: Any, k: Any, v: Any, out: Any, lse: Any, return_lse: bool, sinks: Any, k_scale: float, v_scale: float
    ) -> Any:
        if sinks is not None:
            raise ValueError('sinks is given with pos_encoding_mode "ALIBI" without causal=True; the two are not served together: pass one')
        result, found = flex_attention(
            q, k, v, self._mask, "s + slopes[h] * (k - q)", self._buffers, scale=self._scale * k_scale, layout="bshd", return_lse=True,
            out=out, **self._where,
        )
        if v_scale != 1.0:
            result *= v_scale
        if not return_lse:
            return result
        to_base_2(found)
        if lse is None:
            return result, found
        lse[...] = found
        return result, lse


__all__ = ["SignedAlibi"]
