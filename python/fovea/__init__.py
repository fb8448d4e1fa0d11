"""Fovea from Python: models by LLM, and the attention layer for LLM inference on arrays of torch, cupy and numpy.

- LLM, SamplingParams, LoRARequest, AttentionConfig, AttentionBackendEnum: vLLM's classes over Fovea's engine.
- Attention: plan a step once, run each of its layers; with AttentionSpec and Limits.
- flash_attn_func and its family: FlashAttention's functions; fovea.flash_attn_interface has FlashAttention 3's order of arguments.
- BatchDecodeWithPagedKVCache and its family: plan and run over FlashInfer's index arrays.
- fovea.flashinfer: FlashInfer's functions and classes by its names, with its logarithms of base 2.
- gated_delta_rule, lightning_attention, hstu_attention, hstu_time_bounds: attention without softmax.
- flex_attention: torch's FlexAttention, with mask and score as expressions.
- append_kv, append_paged_kv_cache, apply_rope, copy_pages, gather, merge_state, merge_states.
- fovea.integrations.transformers and fovea.integrations.sdpa: swaps for models of torch.

Inference only. Errors are ValueError with the library's text, MemoryError, RuntimeError."""

from . import _hooks, flash_attn_interface, flashinfer
from ._dlpack import Tensor
from ._lib import lib as _lib
from .attention import Attention
from .attention_config import AttentionBackendEnum, AttentionConfig
from .cache import (
    append_kv,
    append_paged_kv_cache,
    apply_rope,
    apply_rope_with_cos_sin_cache,
    copy_pages,
    gather,
    merge_state,
    merge_states,
)
from .flash_attn import (
    flash_attn_func,
    flash_attn_kvpacked_func,
    flash_attn_qkvpacked_func,
    flash_attn_varlen_func,
    flash_attn_varlen_kvpacked_func,
    flash_attn_varlen_qkvpacked_func,
    flash_attn_with_kvcache,
)
from .flash_mla import flash_mla_sparse_fwd, flash_mla_with_kvcache, get_mla_metadata
from .flashinfer import BatchDecodeWithPagedKVCache, BatchPrefillWithPagedKVCache, BatchPrefillWithRaggedKVCache
from .flex import flex_attention
from .info import backends, has_cuda, load_backend
from .linear_attention import gated_delta_rule, hstu_attention, hstu_time_bounds, lightning_attention
from .llm import LLM, Tokenizer
from .lora import LoRARequest
from .outputs import CompletionOutput, EmbeddingOutput, EmbeddingRequestOutput, Logprob, RequestOutput
from .sampling_params import RequestOutputKind, SamplingParams
from .spec import AttentionSpec, Limits
from .torch_ops import register as register_torch_ops

__version__: str = _lib.fovea_version().decode()

__all__ = [
    "Attention",
    "AttentionBackendEnum",
    "AttentionConfig",
    "AttentionSpec",
    "BatchDecodeWithPagedKVCache",
    "BatchPrefillWithPagedKVCache",
    "BatchPrefillWithRaggedKVCache",
    "CompletionOutput",
    "EmbeddingOutput",
    "EmbeddingRequestOutput",
    "LLM",
    "LoRARequest",
    "Limits",
    "Logprob",
    "RequestOutput",
    "RequestOutputKind",
    "SamplingParams",
    "Tensor",
    "Tokenizer",
    "append_kv",
    "append_paged_kv_cache",
    "apply_rope",
    "apply_rope_with_cos_sin_cache",
    "backends",
    "copy_pages",
    "flash_attn_func",
    "flash_attn_kvpacked_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_varlen_kvpacked_func",
    "flash_attn_varlen_qkvpacked_func",
    "flash_attn_with_kvcache",
    "flash_mla_sparse_fwd",
    "flash_mla_with_kvcache",
    "gated_delta_rule",
    "flex_attention",
    "gather",
    "get_mla_metadata",
    "has_cuda",
    "hstu_attention",
    "hstu_time_bounds",
    "lightning_attention",
    "load_backend",
    "merge_state",
    "merge_states",
    "register_torch_ops",
]
