"""vLLM's AttentionConfig, which selects the attention backends of an LLM, and its enumeration of backends."""

import enum
from dataclasses import dataclass, fields
from typing import Any, Dict, Mapping, Optional, Union

_NAMES = """
FLASH_ATTN FLASHINFER TRITON_ATTN FLEX_ATTENTION TREE_ATTN FLASH_ATTN_DIFFKV TRITON_ATTN_DIFFKV TURBOQUANT HPC_ATTN
DUAL_CHUNK_FLASH_ATTN TRTLLM_MHA CPU_ATTN TORCH_NATIVE FLASH_ATTN_MLA FLASHMLA FLASHINFER_MLA TRITON_MLA CUTLASS_MLA
TRTLLM_MLA TOKENSPEED_MLA CUTEDSL_MLA FLASHMLA_SPARSE FLASH_ATTN_MLA_SPARSE FLASHINFER_MLA_SPARSE
FLASHINFER_MLA_SPARSE_SM90 FLASHINFER_MLA_SPARSE_SM120 FLASHMLA_SPARSE_DSV4 FLASHINFER_MLA_SPARSE_DSV4
ROCM_FLASHMLA_SPARSE_DSV4 XPU_MLA_SPARSE MINIMAX_M3_SPARSE LINEAR HSTU GDN_ATTN ROCM_ATTN ROCM_AITER_FA
ROCM_AITER_UNIFIED_ATTN ROCM_AITER_MLA ROCM_AITER_MLA_SPARSE ROCM_AITER_TRITON_MLA WAVE ASCEND INTEL_XPU
MINICPM_FLASHATTN MINICPM_FLASHINFER CPU_MLA TORCH_NATIVE_MLA CPU_MLA_SPARSE TORCH_NATIVE_MLA_SPARSE CUSTOM
"""


class _Named(str, enum.Enum):
    def __str__(self) -> str:
        return self.name


AttentionBackendEnum: Any = _Named("AttentionBackendEnum", {name: name for name in _NAMES.split()}, module=__name__)
AttentionBackendEnum.__doc__ = """Every backend by its exact name, including those that this build lacks: it refuses them with the reason."""

Backend = Union[str, "AttentionBackendEnum"]  # type: ignore[valid-type]


@dataclass
class AttentionConfig:
    """Settings of attention; None = not set. Names and meanings are those of `--attention-config`, which are vLLM's where
    it has them. The library checks the values when an LLM is created, and refuses those whose kernels it lacks by name."""

    backend: Optional[Backend] = None
    """A name, a member of AttentionBackendEnum, "auto", a pair "prefill,decode", or "prefill=fa,decode=fi,swa=triton"."""
    prefill_backend: Optional[Backend] = None
    decode_backend: Optional[Backend] = None
    backend_per_kind: Optional[Mapping[str, Backend]] = None
    """Backends by kind of layer: {"swa": "TRITON_ATTN"}."""
    page_size: Optional[int] = None
    """Tokens of a KV page: a constraint on backends."""
    allow_page_override: Optional[bool] = None
    flash_attn_version: Optional[int] = None
    """2, 3 or 4."""
    use_trtllm_attention: Optional[bool] = None
    flashinfer_use_tensor_cores: Optional[bool] = None
    mla_prefill_backend: Optional[str] = None
    use_prefill_decode_attention: Optional[bool] = None
    use_non_causal: Optional[bool] = None
    batch_invariant: Optional[bool] = None
    """Backends whose results depend on the batch are refused."""
    use_trtllm_ragged_deepseek_prefill: Optional[bool] = None
    disable_flashinfer_prefill: Optional[bool] = None
    use_cudnn_prefill: Optional[bool] = None
    disable_flashinfer_q_quantization: Optional[bool] = None
    use_prefill_query_quantization: Optional[bool] = None
    flash_attn_max_num_splits_for_cuda_graph: Optional[int] = None
    tq_max_kv_splits_for_cuda_graph: Optional[int] = None
    flex_attn_block_m: Optional[int] = None
    flex_attn_block_n: Optional[int] = None
    flex_attn_q_block_size: Optional[int] = None
    flex_attn_kv_block_size: Optional[int] = None
    use_fp4_indexer_cache: Optional[bool] = None
    indexer_kv_dtype: Optional[str] = None
    sparse_mla_force_mqa: Optional[bool] = None
    minimax_m3_msa_decode_backend: Optional[str] = None

    def to_options(self) -> Dict[str, Any]:
        """The settings that are not None, by key; enumeration members become their names."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        return options_of(given)


def options_of(given: Mapping[str, Any]) -> Dict[str, Any]:
    """A mapping of AttentionConfig's keys as the library reads it."""

    def plain(value: Any) -> Any:
        if isinstance(value, enum.Enum):
            return value.name
        if isinstance(value, Mapping):
            return {str(plain(key)): plain(item) for key, item in value.items()}
        return value

    return {key: plain(value) for key, value in given.items() if value is not None}
