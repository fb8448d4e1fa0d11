#include "attention/priorities.h"

namespace fovea {

std::vector<std::string_view> priorities(const DeviceInfo& device, const AttentionSpec& spec) {
  if (device.kind == DeviceKind::cpu) return {"CPU_ATTN", "TORCH_NATIVE"};
  if (device.kind != DeviceKind::cuda) return {};
  const bool blackwell = device.compute_capability / 10 == 10;
  if (spec.use_mla && blackwell)
    return {"FLASHINFER_MLA", "CUTLASS_MLA",     "FLASH_ATTN_MLA",       "FLASHMLA",
            "TRITON_MLA",     "FLASHMLA_SPARSE", "FLASHINFER_MLA_SPARSE"};
  if (spec.use_mla) return {"FLASH_ATTN_MLA", "FLASHMLA", "FLASHINFER_MLA", "TRITON_MLA", "FLASHMLA_SPARSE"};
  if (blackwell) return {"FLASHINFER", "FLASH_ATTN", "TRITON_ATTN", "FLEX_ATTENTION"};
  return {"FLASH_ATTN", "FLASHINFER", "TRITON_ATTN", "FLEX_ATTENTION"};
}

}  // namespace fovea
