#pragma once
// User settings for attention: backends by name, versions, page size. The keys are those of vLLM's
// AttentionConfig where it has them.
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/capability.h"

namespace fovea {

/// Every backend by its exact name, including those that this build lacks, so that it can refuse them by
/// name.
// clang-format off
#define FOVEA_ATTENTION_BACKENDS(X) \
  X(FLASH_ATTN) X(FLASHINFER) X(TRITON_ATTN) X(FLEX_ATTENTION) X(TREE_ATTN) \
  X(FLASH_ATTN_DIFFKV) X(TRITON_ATTN_DIFFKV) X(TURBOQUANT) X(HPC_ATTN) \
  X(DUAL_CHUNK_FLASH_ATTN) X(TRTLLM_MHA) X(CPU_ATTN) X(TORCH_NATIVE) X(FLASH_ATTN_MLA) \
  X(FLASHMLA) X(FLASHINFER_MLA) X(TRITON_MLA) X(CUTLASS_MLA) X(TRTLLM_MLA) X(TOKENSPEED_MLA) \
  X(CUTEDSL_MLA) X(FLASHMLA_SPARSE) X(FLASH_ATTN_MLA_SPARSE) X(FLASHINFER_MLA_SPARSE) \
  X(FLASHINFER_MLA_SPARSE_SM90) X(FLASHINFER_MLA_SPARSE_SM120) X(FLASHMLA_SPARSE_DSV4) \
  X(FLASHINFER_MLA_SPARSE_DSV4) X(ROCM_FLASHMLA_SPARSE_DSV4) X(XPU_MLA_SPARSE) \
  X(MINIMAX_M3_SPARSE) X(LINEAR) X(HSTU) X(GDN_ATTN) X(ROCM_ATTN) X(ROCM_AITER_FA) \
  X(ROCM_AITER_UNIFIED_ATTN) X(ROCM_AITER_MLA) X(ROCM_AITER_MLA_SPARSE) \
  X(ROCM_AITER_TRITON_MLA) X(WAVE) X(ASCEND) X(INTEL_XPU) X(MINICPM_FLASHATTN) \
  X(MINICPM_FLASHINFER) X(CPU_MLA) X(TORCH_NATIVE_MLA) X(CPU_MLA_SPARSE) \
  X(TORCH_NATIVE_MLA_SPARSE) X(CUSTOM)
// clang-format on

enum class AttentionBackendEnum : uint8_t {
#define FOVEA_ENUMERATOR(name) name,
  FOVEA_ATTENTION_BACKENDS(FOVEA_ENUMERATOR)
#undef FOVEA_ENUMERATOR
};
std::string_view to_string(AttentionBackendEnum backend);

/// Layers of one kind share a backend. Names in flags: full, swa (sliding_window), chunked_local, mla,
/// sparse_mla, cross, encoder, linear.
enum class LayerKind : uint8_t {
  full,
  sliding_window,
  chunked_local,
  mla,
  sparse_mla,
  cross,
  encoder,
  linear,
  count_
};
std::string_view to_string(LayerKind kind);
/// In any letter case; also accepts vLLM's names of KV-cache groups ("full_attention", "mla_attention", ...)
/// and "swa".
std::optional<LayerKind> parse_layer_kind(std::string_view name);

/// A backend's name as the user wrote it: "FLASH_ATTN", AttentionBackendEnum::FLASH_ATTN, "fa3", "auto", "".
class BackendName : public std::string {
 public:
  BackendName() = default;
  BackendName(std::string name) : std::string(std::move(name)) {}
  BackendName(const char* name) : std::string(name) {}
  BackendName(AttentionBackendEnum backend) : std::string(fovea::to_string(backend)) {}
};

/// Empty strings and nullopt mean "not set".
struct AttentionConfig {
  /// A name; "auto"; a pair "prefill,decode"; or "prefill=fa,decode=fi,swa=triton", whose keys are phases and
  /// layer kinds, and KIND.prefill or KIND.decode for one phase of a kind.
  BackendName backend = {};
  /// Overrides a single name in `backend` for its phase; contradicting a pair there is an error.
  BackendName prefill_backend = {};
  BackendName decode_backend = {};
  std::map<LayerKind, BackendName> backend_per_kind = {};  ///< overrides all others for its layers
  std::optional<int> page_size = {};                       ///< tokens; a constraint, never changed ...
  bool allow_page_override = false;                        ///< ... unless this permits it
  std::optional<int> flash_attn_version = {};              ///< 2, 3 or 4
  std::optional<bool> use_trtllm_attention = {};           ///< FLASHINFER: TRTLLM kernels or its own
  std::optional<bool> flashinfer_use_tensor_cores = {};    ///< decode; unset = from 4 query heads per kv head
  BackendName mla_prefill_backend = {};                    ///< from the MLA prefill registry
  std::optional<bool> use_trtllm_ragged_deepseek_prefill = {};  ///< deprecated: mla_prefill_backend
  std::optional<bool> disable_flashinfer_prefill = {};          ///< deprecated: mla_prefill_backend
  std::optional<bool> use_cudnn_prefill = {};                   ///< deprecated: mla_prefill_backend
  std::optional<bool> use_prefill_decode_attention = {};        ///< ROCM_ATTN's split kernels
  std::optional<bool> use_non_causal = {};                      ///< decoder layers without causal mask
  std::optional<bool> batch_invariant =
      {};  ///< a backend without the level is refused (VLLM_BATCH_INVARIANT)
  /// Where a value was set, by its key ("page_size" -> "--block-size"); "API" for keys that are not listed.
  std::map<std::string, std::string, std::less<>> sources = {};

  /// Where `key` was set.
  std::string source(std::string_view key) const;
};

}  // namespace fovea
