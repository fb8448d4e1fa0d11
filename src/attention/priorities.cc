#include "attention/priorities.h"

#include <array>

#include "fovea/attention.h"
#include "fovea/attention_config.h"

namespace fovea {
namespace {

using Name = std::string_view;

constexpr Name kBlackwell[] = {"FLASHINFER", "FLASH_ATTN", "TRITON_ATTN", "FLEX_ATTENTION"};
constexpr Name kCuda[] = {"FLASH_ATTN", "FLASHINFER", "TRITON_ATTN", "FLEX_ATTENTION"};
constexpr Name kBlackwellMla[] = {"FLASHINFER_MLA", "CUTLASS_MLA",     "FLASH_ATTN_MLA",       "FLASHMLA",
                                  "TRITON_MLA",     "FLASHMLA_SPARSE", "FLASHINFER_MLA_SPARSE"};
constexpr Name kCudaMla[] = {"FLASH_ATTN_MLA", "FLASHMLA", "FLASHINFER_MLA", "TRITON_MLA", "FLASHMLA_SPARSE"};
constexpr Name kCudaSparseMla[] = {"FLASH_ATTN_MLA", "FLASHMLA",        "FLASHINFER_MLA",
                                   "TRITON_MLA",     "FLASHMLA_SPARSE", "FLASHINFER_MLA_SPARSE"};
constexpr Name kConsumerBlackwellMla[] = {"TRITON_MLA", "FLASHINFER_MLA_SPARSE_SM120"};
constexpr Name kRocm[] = {"ROCM_ATTN", "ROCM_AITER_FA", "ROCM_AITER_UNIFIED_ATTN", "TRITON_ATTN"};
constexpr Name kRocmMla[] = {"ROCM_AITER_MLA", "TRITON_MLA", "ROCM_AITER_TRITON_MLA"};
constexpr Name kRocmSparseMla[] = {"ROCM_AITER_MLA_SPARSE"};
constexpr Name kCpu[] = {"CPU_ATTN", "TORCH_NATIVE"};
constexpr Name kCpuMla[] = {"CPU_MLA", "TORCH_NATIVE_MLA"};
constexpr Name kCpuSparseMla[] = {"CPU_MLA_SPARSE", "TORCH_NATIVE_MLA_SPARSE"};
constexpr Name kAscend[] = {"ASCEND"};
constexpr Name kXpu[] = {"INTEL_XPU"};
constexpr Name kXpuSparseMla[] = {"XPU_MLA_SPARSE"};
constexpr Name kLinear[] = {"LINEAR", "GDN_ATTN", "HSTU"};
constexpr Name kBlockSparse[] = {"MINIMAX_M3_SPARSE"};
constexpr Name kDeepSeekV4[] = {"FLASHMLA_SPARSE_DSV4", "FLASHINFER_MLA_SPARSE_DSV4"};
constexpr Name kRocmDeepSeekV4[] = {"ROCM_FLASHMLA_SPARSE_DSV4"};
// For GLM-5.3, whose latent has no RoPE part.
constexpr Name kHopperSparse512[] = {"FLASHINFER_MLA_SPARSE_SM90"};

enum Id {
  blackwell,
  cuda,
  blackwell_mla,
  cuda_mla,
  consumer_blackwell_mla,
  rocm,
  rocm_mla,
  rocm_sparse_mla,
  cpu,
  cpu_mla,
  ascend,
  xpu,
  xpu_sparse_mla,
  linear,
  block_sparse,
  deepseek_v4,
  rocm_deepseek_v4,
  hopper_sparse_512,
  cpu_sparse_mla,
  cuda_sparse_mla,
  count_
};

constexpr std::array<PriorityList, count_> kLists = {{
    {"Blackwell (SM 10.x)", false, kBlackwell},
    {"Ampere/Hopper (SM 8.x-9.x) and any other NVIDIA GPU", false, kCuda},
    {"Blackwell (SM 10.x)", true, kBlackwellMla},
    {"Ampere/Hopper (SM 8.x-9.x) and older", true, kCudaMla},
    {"Consumer Blackwell (SM 12.x)", true, kConsumerBlackwellMla},
    {"ROCm", false, kRocm},
    {"ROCm", true, kRocmMla},
    {"ROCm, sparse", true, kRocmSparseMla},
    {"CPU", false, kCpu},
    {"CPU", true, kCpuMla},
    {"Ascend", false, kAscend},
    {"Intel GPU", false, kXpu},
    {"Intel GPU, sparse", true, kXpuSparseMla},
    {"CUDA, layers without softmax", false, kLinear},
    {"CUDA, block-sparse (MiniMax M3)", false, kBlockSparse},
    {"CUDA, DeepSeek V4 (sinks, head size 512)", true, kDeepSeekV4},
    {"ROCm, DeepSeek V4", true, kRocmDeepSeekV4},
    {"Hopper, sparse with head size 512 (GLM-5.3)", true, kHopperSparse512},
    {"CPU, sparse", true, kCpuSparseMla},
    {"Ampere/Hopper (SM 8.x-9.x) and older, sparse", true, kCudaSparseMla},
}};

Id cuda_list(int major, const AttentionSpec& spec) {
  if (kind_of(spec) == LayerKind::linear) return linear;
  if (!spec.use_mla) {
    if (spec.use_sparse) return block_sparse;
    return major == 10 ? blackwell : cuda;
  }
  if (spec.use_sparse && spec.head_dim == 512) {
    if (spec.has_sink) return deepseek_v4;
    if (major == 9) return hopper_sparse_512;
  }
  if (major == 10) return blackwell_mla;
  if (major == 12) return consumer_blackwell_mla;
  return spec.use_sparse ? cuda_sparse_mla : cuda_mla;
}

Id rocm_list(const AttentionSpec& spec) {
  if (!spec.use_mla) return rocm;
  if (!spec.use_sparse) return rocm_mla;
  return spec.has_sink && spec.head_dim == 512 ? rocm_deepseek_v4 : rocm_sparse_mla;
}

Id list_of(const DeviceInfo& device, const AttentionSpec& spec) {
  switch (device.kind) {
    case DeviceKind::cpu: return !spec.use_mla ? cpu : spec.use_sparse ? cpu_sparse_mla : cpu_mla;
    case DeviceKind::cuda: return cuda_list(device.compute_capability / 10, spec);
    case DeviceKind::rocm: return rocm_list(spec);
    case DeviceKind::ascend: return ascend;
    case DeviceKind::xpu: return spec.use_mla && spec.use_sparse ? xpu_sparse_mla : xpu;
  }
  return cpu;
}

}  // namespace

std::span<const PriorityList> priority_lists() {
  return kLists;
}

std::vector<std::string_view> priorities(const DeviceInfo& device, const AttentionSpec& spec) {
  const auto names = kLists[list_of(device, spec)].names;
  return {names.begin(), names.end()};
}

}  // namespace fovea
