"""FlashInfer's functions and classes for inference, by its names, arguments and semantics: `import fovea.flashinfer as flashinfer`.

- single_decode_with_kv_cache, single_prefill_with_kv_cache, BatchDecodeWithPagedKVCacheWrapper,
  BatchPrefillWithPagedKVCacheWrapper, BatchPrefillWithRaggedKVCacheWrapper, BatchAttention,
  BatchAttentionWithAttentionSinkWrapper, BatchMLAPagedAttentionWrapper, MultiLevelCascadeAttentionWrapper, merge_state(s), the functions of pages and of
  rotary embedding, packbits and segment_packbits.
- Here, as in FlashInfer, LSE is of base 2 (log2 of the sum of 2^(s log2 e)); everywhere else in Fovea it is of base e.
- pos_encoding_mode "ALIBI" is slope * (j - i), j the key's number and i the row's, with the slopes of ALiBi's paper; FlashAttention's
  functions have -slope * |i + n_k - n_q - j|. "ROPE_LLAMA" rotates copies of q and k in each call: caches hold keys without rotation.
- A row that sees no key is 0 with LSE -inf.

Nothing is copied to the host and workspace buffers are not used. What FlashInfer has and Fovea does not is refused with the reason.
BatchDecodeWithPagedKVCache, BatchPrefillWithPagedKVCache and BatchPrefillWithRaggedKVCache are Fovea's own forms of the wrappers,
with LSE of base e."""

from typing import Any

from .attention import BatchAttention, BatchAttentionWithAttentionSinkWrapper
from .batch import BatchDecodeWithPagedKVCache, BatchPrefillWithPagedKVCache, BatchPrefillWithRaggedKVCache
from .cascade import MultiLevelCascadeAttentionWrapper, merge_state, merge_state_in_place, merge_states
from .decode import BatchDecodeWithPagedKVCacheWrapper, single_decode_with_kv_cache
from .mla import BatchMLAPagedAttentionWrapper
from .page import append_paged_kv_cache, append_paged_mla_kv_cache, get_batch_indices_positions, get_seq_lens
from .prefill import BatchPrefillWithPagedKVCacheWrapper, BatchPrefillWithRaggedKVCacheWrapper, single_prefill_with_kv_cache
from .quantization import packbits, segment_packbits
from .rope import (
    apply_llama31_rope,
    apply_llama31_rope_inplace,
    apply_llama31_rope_pos_ids,
    apply_llama31_rope_pos_ids_inplace,
    apply_rope,
    apply_rope_inplace,
    apply_rope_pos_ids,
    apply_rope_pos_ids_inplace,
    apply_rope_with_cos_sin_cache,
    apply_rope_with_cos_sin_cache_inplace,
)

_POD = "one BatchAttention step holds prefill and decode rows"
_STATELESS = "it belongs to one vendor's kernels: BatchPrefillWithPagedKVCacheWrapper, or fovea.flash_attn_with_kvcache with a page_table"
_FP4 = "no backend reads an NVFP4 cache: append_paged_kv_cache, of 16 bits or fp8"
_QUANTIZE = "apply_rope_with_cos_sin_cache, then append_paged_kv_cache, which quantises into an fp8 cache"
_PREFIX = "MultiLevelCascadeAttentionWrapper with two levels"
_SPARSE = "fovea.flex_attention, which leaves out the blocks that its mask hides"
_JIT = "kernels are not compiled from the caller's C++: fovea.flex_attention takes masks and scores as expressions"

REFUSED = {
    "BatchDecodeMlaWithPagedKVCacheWrapper": "superseded in FlashInfer by BatchMLAPagedAttentionWrapper",
    "BatchDecodeWithSharedPrefixPagedKVCacheWrapper": _PREFIX,
    "BatchPODWithPagedKVCacheWrapper": _POD,
    "BatchPrefillWithSharedPrefixPagedKVCacheWrapper": _PREFIX,
    "BlockSparseAttentionWrapper": _SPARSE,
    "CUDAGraphBatchDecodeWithPagedKVCacheWrapper": "fovea.Attention with prepare_capture() and update_capture()",
    "PODWithPagedKVCacheWrapper": _POD,
    "VariableBlockSparseAttentionWrapper": _SPARSE,
    "cudnn_batch_decode_with_kv_cache": _STATELESS,
    "cudnn_batch_prefill_with_kv_cache": _STATELESS,
    "fast_decode_plan": "plan() copies nothing to the host",
    "mla_rope_quantize_fp8": _QUANTIZE,
    "nvfp4_quantize_append_paged_kv_cache": _FP4,
    "nvfp4_quantize_append_paged_kv_cache_with_slot_mapping": _FP4,
    "rope_quantize_fp8": _QUANTIZE,
    "rope_quantize_fp8_append_paged_kv_cache": _QUANTIZE,
    "single_decode_with_kv_cache_with_jit_module": _JIT,
    "single_prefill_with_kv_cache_with_jit_module": _JIT,
    "trtllm_batch_context_with_kv_cache": _STATELESS,
    "trtllm_batch_decode_with_kv_cache": _STATELESS,
    "trtllm_fmha_v2_prefill": _STATELESS,
    "trtllm_ragged_attention_deepseek": _STATELESS,
    "xqa": _STATELESS,
    "xqa_batch_decode_with_kv_cache": _STATELESS,
}
"""Names of FlashInfer that are not here, and what there is instead."""


def __getattr__(name: str) -> Any:
    instead = REFUSED.get(name)
    if instead is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    raise AttributeError(f"fovea.flashinfer has no {name}; instead: {instead}")


__all__ = [
    "BatchAttention",
    "BatchAttentionWithAttentionSinkWrapper",
    "BatchDecodeWithPagedKVCache",
    "BatchDecodeWithPagedKVCacheWrapper",
    "BatchMLAPagedAttentionWrapper",
    "BatchPrefillWithPagedKVCache",
    "BatchPrefillWithPagedKVCacheWrapper",
    "BatchPrefillWithRaggedKVCache",
    "BatchPrefillWithRaggedKVCacheWrapper",
    "MultiLevelCascadeAttentionWrapper",
    "append_paged_kv_cache",
    "append_paged_mla_kv_cache",
    "apply_llama31_rope",
    "apply_llama31_rope_inplace",
    "apply_llama31_rope_pos_ids",
    "apply_llama31_rope_pos_ids_inplace",
    "apply_rope",
    "apply_rope_inplace",
    "apply_rope_pos_ids",
    "apply_rope_pos_ids_inplace",
    "apply_rope_with_cos_sin_cache",
    "apply_rope_with_cos_sin_cache_inplace",
    "get_batch_indices_positions",
    "get_seq_lens",
    "merge_state",
    "merge_state_in_place",
    "merge_states",
    "packbits",
    "segment_packbits",
    "single_decode_with_kv_cache",
    "single_prefill_with_kv_cache",
]
