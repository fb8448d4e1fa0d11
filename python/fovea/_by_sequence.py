"""FlashAttention's slopes of each sequence, alibi_slopes [B, Hq], on the CPU: a call for each sequence. A row's bits do not depend on
the batch, so that these are the bits of one call."""

from typing import Any, Callable, Dict, List, Tuple

from ._arrays import Framework, framework_of
from ._serve import is_cpu


def needed(q: Any, alibi_slopes: Any) -> bool:
    """Whether the sequences have slopes of their own, and lie on the CPU (elsewhere serve() refuses)."""
    if alibi_slopes is None or len(getattr(alibi_slopes, "shape", ())) != 2 or alibi_slopes.shape[0] < 2:
        return False
    framework = framework_of(q)
    if framework_of(alibi_slopes) is not framework or not framework.has_arithmetic:
        return False
    arg = framework.describe(alibi_slopes)
    return arg[2][0] != 0 and is_cpu(arg[4])


def _of(name: str, x: Any, b: int, seqs: int) -> Any:
    """Sequence b of an array [B, ...]; other values as they are, and descales [Hkv]."""
    shape = getattr(x, "shape", ())
    least = 2 if name.endswith("descale") else 1
    return x[b : b + 1] if len(shape) >= least and shape[0] == seqs else x


def call(
    function: Callable[..., Any], seqs: int, batched: Dict[str, Any], ragged: Dict[str, Tuple[Any, Any]], offsets: Dict[str, Any],
    options: Dict[str, Any], alibi_slopes: Any, out: Any, want_lse: bool,
) -> Any:
    """function(**arguments) for each sequence, and the results side by side. batched: arrays [B, ...] and descales; ragged: arrays and
    the offsets of their rows; offsets: those that the function takes."""
    results: List[Any] = []
    framework: Framework = framework_of(alibi_slopes)
    if alibi_slopes.shape[0] != seqs:
        raise ValueError(f"alibi_slopes has shape {tuple(alibi_slopes.shape)}; the batch has {seqs} sequences")
    for b in range(seqs):
        given = dict(options, alibi_slopes=alibi_slopes[b])
        given.update({name: _of(name, x, b, seqs) for name, x in batched.items()})
        given.update({name: None if x is None else x[int(at[b]) : int(at[b + 1])] for name, (x, at) in ragged.items()})
        given.update({name: None if at is None else at[b : b + 2] - at[b] for name, at in offsets.items()})
        results.append(function(return_softmax_lse=True, **given))
    join = framework.xp.concatenate
    whole = join([o for o, _ in results], 0)
    if out is not None:
        out[...] = whole
        whole = out
    if not want_lse:
        return whole
    return whole, join([lse for _, lse in results], 1 if offsets else 0)
