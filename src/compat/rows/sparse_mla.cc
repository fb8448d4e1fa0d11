// Sparse multi-head latent attention (DeepSeek V3.2 and V4, GLM-5): vLLM's tables. Two of its rows have "no"
// under Sparse although they serve nothing else; here they have "yes".
#include "attention/row.h"
#include "compat/rows/rows.h"

namespace fovea {
namespace {

using namespace rows;
using enum Feature;

std::optional<Reason> check_flashmla(const AttentionSpec&, const DeviceInfo& device) {
  const int major = device.compute_capability / 10;
  if (device.kind == DeviceKind::cuda && (major == 9 || major == 10)) return {};
  return Reason{"FlashMLA Sparse is only supported on Hopper and Blackwell DC devices.", {}};
}

Capability sparse_row(Capability c) {
  if (c.head_dims.empty()) c.head_dims = {576};
  c.v_head_dims = IntSet::any();
  c.types = kDecoder;
  c.features = c.features | FeatureSet{mla, sparse};
  return vllm(c);
}

Capability cuda(Capability c) {
  c.device = DeviceKind::cuda;
  return sparse_row(c);
}

/// DeepSeek V4's compressed cache.
Capability v4(Capability c) {
  c.dtypes = kBf16;
  c.kv_dtypes = {KvCacheDType::auto_, KvCacheDType::fp8_ds_mla, KvCacheDType::nvfp4_ds_mla};
  c.page_sizes = {256};
  c.preferred_page_size = 256;
  c.head_dims = {512};
  c.features = {sink};
  return sparse_row(c);
}

std::vector<BackendInfo> make_rows() {
  std::vector<BackendInfo> out;
  const auto add = [&out](BackendInfo row) { out.push_back(std::move(row)); };
  const KvDtypes ds_mla = {KvCacheDType::fp8_ds_mla};

  add({.name = "FLASHINFER_MLA_SPARSE",
       .capability = cuda({.dtypes = kHalf,
                           .kv_dtypes = kKvBf16,
                           .page_sizes = {32, 64},
                           .preferred_page_size = 64,
                           .graph = GraphSupport::uniform_batch,
                           .min_compute_capability = 100,
                           .max_compute_capability = 109}),
       .absent = kNoBlackwell,
       .description = "FlashInfer's sparse MLA"});
  add({.name = "FLASHINFER_MLA_SPARSE_SM90",
       .capability = cuda({.dtypes = kHalf,
                           .kv_dtypes = kKvBf16,
                           .page_sizes = {64},
                           .preferred_page_size = 64,
                           .head_dims = {512, 576},
                           .unstated = {sink, non_causal, spans, dcp},
                           .graph = GraphSupport::uniform_batch,
                           .min_compute_capability = 90,
                           .max_compute_capability = 90}),
       .absent = kNoCuda,
       .description = "FlashInfer's sparse MLA for Hopper"});
  add({.name = "FLASHINFER_MLA_SPARSE_SM120",
       .capability = cuda({.dtypes = kBf16,
                           .kv_dtypes = kKvAuto | kE4m3 | ds_mla,
                           .page_sizes = {64, 256},
                           .preferred_page_size = 64,
                           .graph = GraphSupport::uniform_batch,
                           .min_compute_capability = 120,
                           .max_compute_capability = 129}),
       .absent = kNoBlackwell,
       .description = "FlashInfer's sparse MLA for Blackwell's consumer GPUs"});
  add({.name = "FLASHMLA_SPARSE",
       .aliases = {"dsa", "nsa"},
       .capability = cuda({.dtypes = kBf16,
                           .kv_dtypes = kKvBf16 | ds_mla,
                           .page_sizes = {64},
                           .preferred_page_size = 64,
                           .graph = GraphSupport::uniform_batch,
                           .min_compute_capability = 90,
                           .max_compute_capability = 109}),
       .absent = kNoCuda,
       .description = "DeepSeek's sparse MLA: an indexer selects the keys",
       .supports_combination = check_flashmla});
  add({.name = "FLASH_ATTN_MLA_SPARSE",
       .capability = cuda({.dtypes = kHalf,
                           .kv_dtypes = kKvHalf,
                           .page_sizes = {64},
                           .preferred_page_size = 64,
                           .graph = GraphSupport::uniform_batch,
                           .min_compute_capability = 90,
                           .max_compute_capability = 99}),
       .absent = kNoCuda,
       .description = "FlashAttention's sparse MLA for Hopper"});
  add({.name = "FLASHMLA_SPARSE_DSV4",
       .aliases = {"dsv4", "compressed"},
       .capability =
           v4({.device = DeviceKind::cuda, .min_compute_capability = 90, .max_compute_capability = 109}),
       .absent = kNoCuda,
       .description = "DeepSeek V4's compressed attention"});
  add({.name = "FLASHINFER_MLA_SPARSE_DSV4",
       .capability =
           v4({.device = DeviceKind::cuda, .min_compute_capability = 100, .max_compute_capability = 129}),
       .absent = kNoBlackwell,
       .description = "DeepSeek V4's compressed attention, FlashInfer's kernels"});
  add({.name = "ROCM_FLASHMLA_SPARSE_DSV4",
       .capability = v4({.device = DeviceKind::rocm}),
       .absent = kNoRocm,
       .description = "DeepSeek V4's compressed attention on AMD GPUs"});
  add({.name = "XPU_MLA_SPARSE",
       .capability = sparse_row(
           {.dtypes = kBf16, .kv_dtypes = kKvBf16, .page_sizes = IntSet::any(), .device = DeviceKind::xpu}),
       .absent = kNoXpu,
       .description = "Sparse MLA on Intel GPUs"});
  return out;
}

}  // namespace

std::span<const BackendInfo> sparse_mla_rows() {
  static const std::vector<BackendInfo> rows = make_rows();
  return rows;
}

}  // namespace fovea
