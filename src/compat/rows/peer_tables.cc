#include "compat/rows/peer_tables.h"

#include <algorithm>

#include "base/check.h"

namespace fovea {
namespace {

/// The first five rows are from the page with these columns. The copy of the later page that added the last
/// three rows lacks its tick marks; those are from the two tables of 2026, "-" where these do not mention it.
PeerTable sglang() {
  return {"sglang",
          "SGLang, five columns",
          "Backend",
          {"Page Size > 1", "Spec Decoding", "MLA", "Sliding Window", "MultiModal"},
          {{"FlashInfer", "FLASHINFER", "Native", {"yes", "yes", "yes", "yes", "yes"}},
           {"FA3", "FLASH_ATTN", "FA3", {"yes", "yes", "yes", "yes", "yes"}},
           {"Triton", "TRITON_ATTN", "", {"no", "yes", "yes", "no", "no"}},
           {"Torch Native", "TORCH_NATIVE", "", {"no", "no", "no", "no", "no"}},
           {"FlashMLA", "FLASHMLA", "", {"yes", "yes", "yes", "no", "no"}},
           {"TRTLLM MLA", "TRTLLM_MLA", "", {"yes", "yes", "yes", "-", "by FlashInfer MLA"}},
           {"Ascend", "ASCEND", "", {"yes", "no", "yes", "no", "yes"}},
           {"Wave", "WAVE", "", {"yes", "no", "-", "no", "no"}}}};
}

PeerTable sglang_mha() {
  return {"sglang_mha",
          "SGLang, multi-head attention (2026)",
          "Backend",
          {"Page Size > 1", "FP8 KV", "FP4 KV", "Spec top-k = 1", "Spec top-k > 1", "Sliding Window",
           "MultiModal"},
          {{"FlashInfer", "FLASHINFER", "Native", {"yes", "yes", "no", "yes", "yes", "yes", "no"}},
           {"FA3", "FLASH_ATTN", "FA3", {"yes", "yes", "no", "yes", "yes", "yes", "yes"}},
           {"FA4", "FLASH_ATTN", "FA4", {"128", "no", "yes", "no", "no", "no", "yes"}},
           {"Triton", "TRITON_ATTN", "", {"no", "no", "yes", "yes", "yes", "yes", "yes"}},
           {"Torch Native (SDPA)", "TORCH_NATIVE", "", {"no", "yes", "yes", "no", "no", "no", "yes"}},
           {"FlexAttention", "FLEX_ATTENTION", "", {"no", "no", "yes", "no", "no", "no", "no"}},
           {"TRTLLM MHA", "TRTLLM_MHA", "", {"16, 32, 64", "yes", "yes", "yes", "no", "yes", "no"}},
           {"Dual Chunk FlashAttention",
            "DUAL_CHUNK_FLASH_ATTN",
            "",
            {"yes", "no", "no", "no", "no", "no", "no"}},
           {"AITER", "ROCM_AITER_FA", "", {"yes", "yes", "no", "yes", "yes", "no", "yes"}},
           {"Wave", "WAVE", "", {"yes", "no", "no", "no", "no", "no", "no"}},
           {"Ascend", "ASCEND", "", {"yes", "no", "no", "no", "no", "no", "yes"}},
           {"Intel XPU", "INTEL_XPU", "", {"yes", "no", "no", "no", "no", "yes", "no"}},
           {"Intel AMX (CPU)", "CPU_ATTN", "", {"no", "no", "no", "no", "no", "no", "no"}}}};
}

PeerTable sglang_mla() {
  return {"sglang_mla",
          "SGLang, MLA (2026)",
          "Backend",
          {"Page Size", "FP8 KV", "FP4 KV", "Chunked Prefix", "Spec top-k = 1", "Spec top-k > 1"},
          {{"FlashInfer MLA", "FLASHINFER_MLA", "", {"1", "no", "yes", "yes", "yes", "no"}},
           {"FlashMLA", "FLASHMLA", "", {"64", "yes", "yes", "yes", "yes", "no"}},
           {"Cutlass MLA", "CUTLASS_MLA", "", {"128", "yes", "yes", "yes", "yes", "no"}},
           {"TRTLLM MLA", "TRTLLM_MLA", "", {"32, 64", "yes", "yes", "yes", "yes", "no"}},
           {"FA3", "FLASH_ATTN_MLA", "", {"-", "no", "no", "yes", "yes", "page size 1 only"}},
           {"Triton", "TRITON_MLA", "", {"-", "no", "no", "no", "yes", "page size 1 only"}},
           {"FA4", "", "", {"1", "no", "yes", "no", "no", "no"}},
           {"Ascend", "ASCEND", "", {"128", "no", "no", "no", "no", "no"}}}};
}

PeerTable mini_sglang_pages() {
  return {"mini_sglang_pages",
          "Mini-SGLang, page sizes as documented",
          "Backend",
          {"Page Size Support", "Notes"},
          {{"fa", "FLASH_ATTN", "", {"Any size", "Recommended: 1 for flexibility"}},
           {"fi", "FLASHINFER", "Native", {"1 only", "Hardcoded constraint"}},
           {"trtllm", "TRTLLM_MHA", "", {"16, 32, 64 only", "Will override user setting"}}}};
}

PeerTable mini_sglang() {
  return {"mini_sglang",
          "Mini-SGLang, as its code is",
          "Backend",
          {"Page Size", "Prefill", "Decode", "Graph Decode", "GPU", "KV Dtype", "Sliding Window", "Sink",
           "MLA", "Spec Decoding", "MultiModal"},
          {{"fa",
            "FLASH_ATTN",
            "",
            {"any", "yes", "yes", "yes", "SM80-90 (version 3), SM100 (version 4)", "the model's", "no", "no",
             "no", "no", "no"}},
           {"fi",
            "FLASHINFER",
            "Native",
            {"any (the kernel sees 1)", "yes", "yes", "yes", "SM80+", "the model's", "no", "no", "no", "no",
             "no"}},
           {"trtllm",
            "TRTLLM_MHA",
            "",
            {"16, 32, 64", "yes", "yes", "yes", "SM100", "the model's", "no", "no", "no", "no", "no"}}}};
}

PeerTable orders() {
  return {"orders",
          "What SGLang and Mini-SGLang take where nothing is set",
          "Device",
          {"SGLang", "SGLang, MLA", "Mini-SGLang"},
          {{"Blackwell (SM 10.x)",
            "",
            "",
            {"trtllm_mha (fa4 where heads of K and V differ)", "flashinfer; trtllm_mla for DeepSeek V3",
             "trtllm"}},
           {"Blackwell for consumers (SM 12.x)",
            "",
            "",
            {"flashinfer; triton with sinks or without the library", "triton", "trtllm"}},
           {"Hopper (SM 9.0)", "", "", {"fa3", "fa3", "fa,fi"}},
           {"Other NVIDIA GPUs",
            "",
            "",
            {"flashinfer; triton with sinks or without the library", "triton", "fi"}},
           {"AMD GPUs", "", "", {"aiter", "aiter with 16 or 128 heads, else triton", "-"}},
           {"CPUs", "", "", {"intel_amx; torch_native without AMX", "intel_amx", "-"}}}};
}

}  // namespace

std::span<const PeerTable> peer_tables() {
  static const PeerTable tables[] = {sglang(),      sglang_mha(), sglang_mla(), mini_sglang_pages(),
                                     mini_sglang(), orders()};
  return tables;
}

const PeerTable& peer_table(std::string_view id) {
  const auto tables = peer_tables();
  const auto at = std::ranges::find(tables, id, &PeerTable::id);
  FOVEA_CHECK(at != tables.end());
  return *at;
}

}  // namespace fovea
