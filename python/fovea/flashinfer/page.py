"""FlashInfer's functions of paged caches."""

from typing import Any, Tuple

from .._arrays import describe, framework_of
from ..cache import append_kv, append_paged_kv_cache, slots_of_positions
from .common import sequence_of_rows


def get_seq_lens(kv_indptr: Any, kv_last_page_len: Any, page_size: int) -> Any:
    """Keys of each sequence [B]: whole pages but the last, and kv_last_page_len [B] of it; 0 without pages."""
    pages = kv_indptr[1:] - kv_indptr[:-1]
    whole = framework_of(kv_indptr).clip_below(pages - 1, 0) * page_size
    return whole + kv_last_page_len * (pages > 0)


def get_batch_indices_positions(
    append_indptr: Any, seq_lens: Any, nnz: int, batch_indices: Any = None, positions: Any = None
) -> Tuple[Any, Any]:
    """Of new rows append_indptr[b] .. append_indptr[b + 1] - 1, the last of sequence b's seq_lens[b]: their sequence and their
    position in it, both int32 [nnz]. Rows behind the last have -1 and 0. batch_indices and positions: arrays for the results."""
    framework = framework_of(append_indptr)
    sequence, i = sequence_of_rows(framework, append_indptr, nnz, append_indptr)
    at = i + (seq_lens - (append_indptr[1:] - append_indptr[:-1]))[sequence]
    there = framework.arange(0, nnz, 1, append_indptr) < append_indptr[-1]
    found = framework.cast(there * (sequence + 1) - 1, "int32"), framework.cast(there * at, "int32")
    results = []
    for name, given, values in (("batch_indices", batch_indices, found[0]), ("positions", positions, found[1])):
        if given is None:
            results.append(values)
            continue
        if tuple(given.shape) != (nnz,):
            raise ValueError(f"{name} has shape {tuple(given.shape)}; it must be [{nnz}]")
        given[...] = values
        results.append(given)
    return results[0], results[1]


def append_paged_mla_kv_cache(
    append_ckv: Any, append_kpe: Any, batch_indices: Any, positions: Any, ckv_cache: Any, kpe_cache: Any, kv_indices: Any,
    kv_indptr: Any, kv_last_page_len: Any = None,
) -> None:
    """append_paged_kv_cache of latents append_ckv [T, C] and append_kpe [T, R] into caches [pages, page_size, C] and [.., R].
    kv_last_page_len is not needed."""
    page = describe(ckv_cache)[1][1]  # type: ignore[index]
    slots = slots_of_positions(batch_indices, positions, kv_indices, kv_indptr, page)
    append_kv(
        append_ckv[:, None, :], append_kpe[:, None, :], ckv_cache[:, :, None, :], kpe_cache[:, :, None, :], slots=slots,
    )


__all__ = ["append_paged_kv_cache", "append_paged_mla_kv_cache", "get_batch_indices_positions", "get_seq_lens"]
