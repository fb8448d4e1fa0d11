// Multi-head latent attention over all keys: vLLM's table of MLA decode, and SGLang's of MLA.
#include "attention/row.h"
#include "compat/rows/rows.h"

namespace fovea {
namespace {

using namespace rows;
using enum Feature;

/// FlashInfer's kernel is compiled for these sizes of the dimensions without RoPE.
std::optional<Reason> check_flashinfer(const AttentionSpec& spec, const DeviceInfo&) {
  const int nope = spec.mla_nope_head_dim;
  if (nope == 0 || nope == 64 || nope == 128 || nope == 192) return {};
  return Reason{
      "FlashInfer MLA kernel requires qk_nope_head_dim in [64, 128, 192], but got " + std::to_string(nope),
      {}};
}

std::optional<Reason> check_flash_attn(const AttentionSpec&, const DeviceInfo& device) {
  if (device.kind == DeviceKind::cuda && device.compute_capability / 10 == 9) return {};
  return Reason{"FlashAttention MLA not supported on this device", {}};
}

/// The kernel is compiled for DeepSeek R1's dimensions; 0 = not known.
std::optional<Reason> check_r1_dims(const AttentionSpec& spec, const DeviceInfo&) {
  if (spec.mla_nope_head_dim == 0) return {};
  if (spec.mla_nope_head_dim == 128 && spec.mla_rope_head_dim == 64 && spec.mla_v_head_dim == 128) return {};
  return Reason{"DeepSeek R1 dims only (qk_nope_head_dim 128, qk_rope_head_dim 64, v_head_dim 128)", {}};
}

Capability mla_row(Capability c) {
  if (c.dtypes.empty()) c.dtypes = kHalf;
  c.head_dims = IntSet::any();
  c.types = kDecoder;
  c.features = c.features | FeatureSet{mla, verify};
  return vllm(c);
}

Capability cuda(Capability c) {
  c.device = DeviceKind::cuda;
  return mla_row(c);
}

Capability blackwell(Capability c) {
  c.min_compute_capability = 100;
  c.max_compute_capability = 109;
  return cuda(c);
}

std::vector<BackendInfo> make_rows() {
  std::vector<BackendInfo> out;
  const auto add = [&out](BackendInfo row) { out.push_back(std::move(row)); };
  const KvDtypes kv_fp8 = kKvBf16 | kE4m3;

  add({.name = "CUTLASS_MLA",
       .aliases = {"cutlass_mla"},
       .capability = blackwell({.kv_dtypes = kv_fp8,
                                .page_sizes = {128},
                                .preferred_page_size = 128,
                                .features = {dcp, chunked_prefix, native_page},
                                .graph = GraphSupport::uniform_single_token_decode}),
       .absent = kNoBlackwell,
       .description = "CUTLASS's MLA decode for Blackwell"});
  add({.name = "FLASHINFER_MLA",
       .capability = blackwell({.kv_dtypes = kv_fp8,
                                .page_sizes = {32, 64},
                                .preferred_page_size = 64,
                                .features = {dcp, chunked_prefix},
                                .graph = GraphSupport::uniform_batch}),
       .absent = kNoBlackwell,
       .description = "FlashInfer's MLA; also prefills for TRTLLM_MLA",
       .supports_combination = check_flashinfer});
  add({.name = "FLASHMLA",
       .aliases = {"flashmla"},
       .capability = cuda({.kv_dtypes = kv_fp8,
                           .page_sizes = {64},
                           .preferred_page_size = 64,
                           .features = {dcp, chunked_prefix, native_page},
                           .graph = GraphSupport::uniform_batch,
                           .min_compute_capability = 90,
                           .max_compute_capability = 109}),
       .absent = kNoCuda,
       .description = "DeepSeek's MLA decode for Hopper"});
  add({.name = "FLASH_ATTN_MLA",
       .capability = cuda({.kv_dtypes = kKvBf16,
                           .page_sizes = IntSet::multiples_of(16),
                           .features = {dcp, chunked_prefix},
                           .min_compute_capability = 90,
                           .max_compute_capability = 99}),
       .absent = kNoCuda,
       .description = "FlashAttention 3's MLA",
       .supports_combination = check_flash_attn});
  Capability triton = {.kv_dtypes = kKvBf16,
                       .page_sizes = IntSet::any(),
                       .features = {dcp},
                       .invariance = {Invariance::batch}};
  add({.name = "TRITON_MLA",
       .capability = cuda(triton),
       .absent = kNoCuda,
       .description = "Portable MLA for every GPU"});
  triton.device = DeviceKind::rocm;
  add({.name = "TRITON_MLA",
       .version = "ROCm",
       .capability = mla_row(triton),
       .absent = kNoRocm,
       .description = "Portable MLA for AMD GPUs"});
  add({.name = "TOKENSPEED_MLA",
       .aliases = {"tokenspeed_mla"},
       .capability = blackwell(
           {.kv_dtypes = kE4m3, .page_sizes = {32, 64}, .preferred_page_size = 64, .features = {dcp}}),
       .absent = kNoBlackwell,
       .description = "TokenSpeed's MLA for Blackwell and fp8 caches",
       .supports_combination = check_r1_dims});

  // SGLang's own backends. They only decode there; another backend prefills.
  const auto decodes = [](Capability c) {
    c.dtypes = kHalf;
    c.page_sizes = {32, 64};
    c.preferred_page_size = 64;
    c.head_dims = IntSet::any();
    c.phases = {Phase::decode};
    c.device = DeviceKind::cuda;
    c.min_compute_capability = 100;
    return sglang(c);
  };
  add({.name = "TRTLLM_MLA",
       .aliases = {"trtllm_mla"},
       .capability = decodes({.kv_dtypes = kKvBf16 | kE4m3 | KvDtypes{KvCacheDType::nvfp4},
                              .features = {mla, verify, chunked_prefix, native_page},
                              .unstated = {window}}),
       .absent = kNoBlackwell,
       .prefill_partner = "FLASHINFER_MLA",
       .description = "TensorRT-LLM's MLA decode for Blackwell; FLASHINFER_MLA prefills for it"});
  add({.name = "CUTEDSL_MLA",
       .aliases = {"cutedsl_mla"},
       .capability = decodes({.kv_dtypes = kKvBf16,
                              .features = {mla},
                              .unstated = {native_page, verify, tree_mask, window, chunked_prefix},
                              .max_compute_capability = 109}),
       .absent = kNoBlackwell,
       .prefill_partner = "FLASHINFER_MLA",
       .description = "MLA decode in CuTe DSL for Blackwell; FLASHINFER_MLA prefills for it"});
  return out;
}

}  // namespace

std::span<const BackendInfo> mla_rows() {
  static const std::vector<BackendInfo> rows = make_rows();
  return rows;
}

}  // namespace fovea
