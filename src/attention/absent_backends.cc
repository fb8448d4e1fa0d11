#include "attention/absent_backends.h"

namespace fovea {
namespace {

constexpr std::string_view kNoCuda = "its CUDA kernels are not written yet";
constexpr std::string_view kNoBlackwell =
    "its kernels need a Blackwell GPU (compute capability 10.x or later)";
constexpr std::string_view kNoRocm = "it needs an AMD GPU and ROCm";
constexpr std::string_view kNoAscend = "it needs an Ascend NPU";
constexpr std::string_view kNoLinear = "its linear-attention kernels are not written yet";

struct Row {
  std::string_view name;
  std::vector<std::string_view> aliases;
  DeviceKind device;
  int min_cc, max_cc;  // 10 * major + minor; a max of x9 means "every minor of x"
  std::string_view absent;
};

const std::vector<Row>& rows() {
  using enum DeviceKind;
  static const std::vector<Row> table = {
      // Any head count and mask (multi-head and grouped-query attention).
      {"FLASH_ATTN", {"fa", "fa2", "fa3", "fa4"}, cuda, 80, 0, kNoCuda},
      {"FLASHINFER", {"fi"}, cuda, 80, 0, kNoCuda},
      {"TRITON_ATTN", {"triton"}, cuda, 80, 0, kNoCuda},
      {"FLEX_ATTENTION", {"flex"}, cuda, 80, 0, kNoCuda},
      {"TREE_ATTN", {}, cuda, 80, 0, kNoCuda},
      {"FLASH_ATTN_DIFFKV", {}, cuda, 80, 0, kNoCuda},
      {"TRITON_ATTN_DIFFKV", {}, cuda, 80, 0, kNoCuda},
      {"TURBOQUANT", {}, cuda, 80, 0, kNoCuda},
      {"HPC_ATTN", {"hpc_ops"}, cuda, 90, 0, kNoCuda},
      {"DUAL_CHUNK_FLASH_ATTN", {}, cuda, 80, 0, kNoCuda},
      {"TRTLLM_MHA", {"trtllm"}, cuda, 100, 109, kNoBlackwell},
      // Multi-head latent attention, dense.
      {"FLASH_ATTN_MLA", {}, cuda, 90, 99, kNoCuda},
      {"FLASHMLA", {}, cuda, 90, 109, kNoCuda},
      {"FLASHINFER_MLA", {}, cuda, 100, 109, kNoBlackwell},
      {"TRITON_MLA", {}, cuda, 80, 0, kNoCuda},
      {"CUTLASS_MLA", {}, cuda, 100, 109, kNoBlackwell},
      {"TRTLLM_MLA", {}, cuda, 100, 0, kNoBlackwell},
      {"TOKENSPEED_MLA", {}, cuda, 100, 109, kNoBlackwell},
      {"CUTEDSL_MLA", {}, cuda, 100, 109, kNoBlackwell},
      // Multi-head latent attention, sparse.
      {"FLASHMLA_SPARSE", {"dsa", "nsa"}, cuda, 90, 109, kNoCuda},
      {"FLASH_ATTN_MLA_SPARSE", {}, cuda, 90, 99, kNoCuda},
      {"FLASHINFER_MLA_SPARSE", {}, cuda, 100, 109, kNoBlackwell},
      {"FLASHINFER_MLA_SPARSE_SM90", {}, cuda, 90, 99, kNoCuda},
      {"FLASHINFER_MLA_SPARSE_SM120", {}, cuda, 120, 129, kNoBlackwell},
      {"FLASHMLA_SPARSE_DSV4", {"dsv4"}, cuda, 90, 109, kNoCuda},
      {"MINIMAX_M3_SPARSE", {}, cuda, 90, 0, kNoCuda},
      // Without softmax.
      {"LINEAR", {}, cuda, 80, 0, kNoLinear},
      {"HSTU", {}, cuda, 80, 0, kNoLinear},
      {"GDN_ATTN", {"gdn"}, cuda, 80, 0, kNoLinear},
      // Other vendors.
      {"ROCM_ATTN", {}, rocm, 0, 0, kNoRocm},
      {"ROCM_AITER_FA", {"aiter"}, rocm, 0, 0, kNoRocm},
      {"ROCM_AITER_UNIFIED_ATTN", {}, rocm, 0, 0, kNoRocm},
      {"ROCM_AITER_MLA", {}, rocm, 0, 0, kNoRocm},
      {"ROCM_AITER_MLA_SPARSE", {}, rocm, 0, 0, kNoRocm},
      {"ROCM_AITER_TRITON_MLA", {}, rocm, 0, 0, kNoRocm},
      {"WAVE", {}, rocm, 0, 0, kNoRocm},
      {"ASCEND", {}, ascend, 0, 0, kNoAscend},
  };
  return table;
}

}  // namespace

const std::vector<BackendInfo>& absent_backends() {
  static const std::vector<BackendInfo> infos = [] {
    std::vector<BackendInfo> out;
    for (const Row& row : rows()) {
      BackendInfo info;
      info.name = row.name;
      info.aliases = row.aliases;
      info.absent = row.absent;
      info.capability.device = row.device;
      info.capability.min_compute_capability = row.min_cc;
      info.capability.max_compute_capability = row.max_cc;
      out.push_back(std::move(info));
    }
    return out;
  }();
  return infos;
}

}  // namespace fovea
