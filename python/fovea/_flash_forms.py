"""FlashAttention's arguments that the library does not know, put in terms of those that it does: seqused_q, qv, cache_leftpad."""

from typing import Any, NamedTuple, Optional, Tuple

from ._arrays import Framework
from ._lib import Arg
from ._serve import Keys, rows_of_sequences


class UsedRows(NamedTuple):
    """A step of 2 B sequences: of sequence b the rows in use with its keys, then the others without any."""

    offsets: Any  # [2 B + 1]
    lens: Any  # [2 B]
    table: Any  # [2 B, pages] or None
    indptr: Any  # [2 B + 1] or None


def only_used_rows(framework: Framework, offsets: Any, used: Any, lens: Any, table: Any, indptr: Any) -> UsedRows:
    """The first used[b] rows of each sequence of offsets [B + 1] are its queries; the other rows see no key."""
    xp = framework.xp
    used, lens = framework.cast(used, "int32"), framework.cast(lens, "int32")
    offsets = framework.cast(offsets, "int32")

    def between(first: Any, second: Any) -> Any:
        return xp.stack((first, second), 1).reshape((-1,) + tuple(first.shape[1:]))

    starts = offsets[:-1]
    return UsedRows(
        xp.concatenate((between(starts, starts + used), offsets[-1:]), 0),
        between(lens, lens * 0),
        None if table is None else between(table, table),
        None if indptr is None else xp.concatenate((between(indptr[:-1], indptr[1:]), indptr[-1:]), 0),
    )


class Joined(NamedTuple):
    """Keys [..., D + Dv] that scale both products of `qv`: q and qv side by side, in the order of the keys."""

    k: Arg
    v_first: bool
    kept: Any  # the copy, where there is one


def keys_for_qv(framework: Framework, k: Any, v: Any, k_arg: Arg, v_arg: Arg) -> Joined:
    """k [..., D] and v [..., Dv] as keys [..., D + Dv]: where they lie, if they are neighbours in one array (as the parts of a
    latent cache are), else in a copy."""
    size = {8: 1, 16: 2, 32: 4}.get(k_arg[3][1], 0)
    if k_arg[3] != v_arg[3] or size < 2:
        raise ValueError("qv is given and k and v are not both float16, bfloat16 or float32; qv takes keys without descales")
    dim, v_dim = k_arg[1][-1], v_arg[1][-1]
    shape = tuple(k_arg[1][:-1]) + (dim + v_dim,)
    if tuple(k_arg[2]) == tuple(v_arg[2]) and tuple(k_arg[1][:-1]) == tuple(v_arg[1][:-1]):
        if k_arg[0] + dim * size == v_arg[0]:
            return Joined((k_arg[0], shape, k_arg[2], k_arg[3], k_arg[4]), False, None)
        if v_arg[0] + v_dim * size == k_arg[0]:
            return Joined((v_arg[0], shape, k_arg[2], k_arg[3], k_arg[4]), True, None)
    both = framework.xp.concatenate((k, v), -1)
    return Joined(framework.describe(both), False, both)


def query_for_qv(framework: Framework, q: Any, qv: Any, joined: Joined, v_dim: int) -> Any:
    """[Tq, Hq, D + Dv] of q [..., Hq, D] and qv [..., Hq, Dv]."""
    wanted = tuple(q.shape[:-1]) + (v_dim,)
    if tuple(qv.shape) != wanted and tuple(qv.shape[-2:]) != wanted[-2:]:
        raise ValueError(f"qv has shape {tuple(qv.shape)}; it must be {wanted}, as q with the head size of v")
    q, qv = (x.reshape((-1,) + tuple(x.shape[-2:])) for x in (q, qv))
    if q.shape[0] != qv.shape[0] or q.dtype != qv.dtype:
        raise ValueError(f"qv is {qv.dtype} with {qv.shape[0]} rows and q {q.dtype} with {q.shape[0]}; they must be the same")
    return framework.xp.concatenate((qv, q) if joined.v_first else (q, qv), -1)


def keys_after_padding(
    framework: Framework, k_arg: Arg, v_arg: Arg, lens: Any, leftpad: Any, table: Any, page: int, seqs: int, device: Any, like: Any
) -> Tuple[Keys, Any]:
    """Keys leftpad[b] .. lens[b] - 1 of sequence b, which is row table[b] of a cache [Bc, Sc, Hkv, D], pages table[b, :] of
    [pages, page_size, Hkv, D], or without a table row b. Also returns what must live until the kernels are queued."""
    k_rows, v_rows = rows_of_sequences(k_arg), rows_of_sequences(v_arg)
    if k_rows is None or v_rows is None or k_rows[1] != v_rows[1]:
        raise ValueError(
            f"cache_leftpad is given and the caches have strides {tuple(k_arg[2])} and {tuple(v_arg[2])}; their sequences or pages must "
            "be a whole number of rows apart, the same in both"
        )
    step = k_rows[1]
    leftpad, lens = framework.cast(leftpad, "int32"), framework.cast(lens, "int32")
    left = lens - leftpad
    if table is None:
        starts = framework.arange(0, seqs * step + 1, step, like)
        indptr = framework.xp.concatenate((starts[:-1] + leftpad, starts[-1:]), 0)
        longest = k_arg[1][1]
        keys = Keys(
            k_rows[0], v_rows[0], 1, longest, seqs * longest, framework.describe(left), indptr=framework.describe(indptr)
        )
        return keys, (left, indptr)
    if len(table.shape) == 1:
        table = table.reshape(-1, 1)
    longest = table.shape[1] * page
    at = framework.arange(0, longest, 1, like)[None, :] + leftpad[:, None]
    at = longest - 1 - framework.clip_below(longest - 1 - at, 0)  # beyond the last key, where nothing is read
    ids = framework.cast(table, "int64")
    rows = framework.arange(0, seqs, 1, like)[:, None]
    slots = framework.cast(ids[framework.cast(rows, "int64"), framework.cast(at // page, "int64")] * step + at % page, "int32")
    keys = Keys(k_rows[0], v_rows[0], 1, longest, seqs * longest, framework.describe(left), page_table=framework.describe(slots))
    return keys, (left, slots)


def qv_scale(scale: Optional[float], dim: int, v_dim: int) -> float:
    return float((dim + v_dim) ** -0.5 if scale is None else scale)
