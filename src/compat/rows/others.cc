// Backends in SGLang's and Mini-SGLang's documents that vLLM's tables lack; other vendors' devices.
#include "attention/row.h"
#include "compat/rows/rows.h"

namespace fovea {
namespace {

using namespace rows;
using enum Feature;

/// SGLang's tables list no head sizes and, for most backends, no page sizes: any.
Capability any_size(Capability c) {
  c.head_dims = IntSet::any();
  if (c.page_sizes.empty()) {
    c.page_sizes = IntSet::any();
    c.preferred_page_size = 1;
  }
  return sglang(c);
}

/// Serves MLA models and others; `mla` is unstated so that neither is refused.
constexpr FeatureSet kAlsoMla = {mla};

Capability also_mla(Capability c) {
  c = any_size(c);
  c.features = c.features | kAlsoMla;
  c.unstated = c.unstated | kAlsoMla;
  return c;
}

std::vector<BackendInfo> make_rows() {
  std::vector<BackendInfo> out;
  const auto add = [&out](BackendInfo row) { out.push_back(std::move(row)); };
  add({.name = "TRTLLM_MHA",
       .aliases = {"trtllm_mha", "trtllm"},
       .capability = any_size({.kv_dtypes = kKvBf16 | kFp8s | KvDtypes{KvCacheDType::nvfp4},
                               .page_sizes = {16, 32, 64},
                               .preferred_page_size = 64,
                               .features = {native_page, verify, window, sink},
                               .graph = GraphSupport::uniform_single_token_decode,
                               .device = DeviceKind::cuda,
                               .min_compute_capability = 100,
                               .max_compute_capability = 109}),
       .absent = kNoBlackwell,
       .description = "TensorRT-LLM's kernels for Blackwell, both phases"});
  add({.name = "DUAL_CHUNK_FLASH_ATTN",
       .aliases = {"dual_chunk_flash_attn"},
       .capability = any_size({.kv_dtypes = kKvBf16,
                               .features = {native_page},
                               .device = DeviceKind::cuda,
                               .min_compute_capability = 80}),
       .absent = kNoCuda,
       .description = "Dual chunk attention (Qwen2.5-1M)"});
  for (const auto& [name, alias] : {std::pair{"MINICPM_FLASHATTN", "minicpm_flashattn"},
                                    std::pair{"MINICPM_FLASHINFER", "minicpm_flashinfer"}})
    add({.name = name,
         .aliases = {alias},
         .capability = any_size({.kv_dtypes = kKvBf16,
                                 .unstated = {native_page, verify, tree_mask, window},
                                 .device = DeviceKind::cuda,
                                 .min_compute_capability = 80}),
         .absent = kNoCuda,
         .description = "MiniCPM's trainable sparse attention"});
  add({.name = "ASCEND",
       .aliases = {"ascend"},
       .capability = also_mla({.kv_dtypes = kKvAuto,
                               .page_sizes = IntSet::any(),
                               .preferred_page_size = 128,
                               .features = {native_page},
                               .device = DeviceKind::ascend}),
       .absent = kNoAscend,
       .description = "Ascend NPUs, MLA included"});
  add({.name = "INTEL_XPU",
       .aliases = {"intel_xpu"},
       .capability = also_mla({.kv_dtypes = kKvAuto,
                               .page_sizes = {64, 128},
                               .preferred_page_size = 128,
                               .features = {native_page, window},
                               .device = DeviceKind::xpu}),
       .absent = kNoXpu,
       .description = "Intel GPUs, MLA included"});
  return out;
}

}  // namespace

std::span<const BackendInfo> other_rows() {
  static const std::vector<BackendInfo> rows = make_rows();
  return rows;
}

}  // namespace fovea
