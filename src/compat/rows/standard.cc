// vLLM's table of standard attention: the contents of its first release, with versions, rows and columns that
// were added later (FA4, XQA, non-causal, graph levels) from later releases.
#include "attention/row.h"
#include "compat/rows/rows.h"

namespace fovea {
namespace {

using namespace rows;
using enum Feature;

constexpr FeatureSet kSpeculative = {verify, tree_mask};  // SGLang's "top-k = 1" and "top-k > 1"

/// vLLM uses FA2 for other sizes on Blackwell; 192 is the size of DeepSeek's prefill.
std::optional<Reason> check_fa4(const AttentionSpec& spec, const DeviceInfo& device) {
  if (device.compute_capability / 10 != 10 || spec.head_dim <= 128 || spec.head_dim == 192) return {};
  return Reason{"FlashAttention 4 takes head sizes up to 128, and 192, on compute capability 10.x",
                "-ac.flash_attn_version=2"};
}

/// FlashAttention: versions share dtypes, pages and types.
Capability flash(Capability c) {
  c.dtypes = kHalf;
  c.page_sizes = IntSet::multiples_of(16);
  c.head_dims = IntSet::any();
  c.types = kAllTypes;
  c.features = c.features | FeatureSet{non_causal, dcp, native_page};
  c.device = DeviceKind::cuda;
  return vllm(c);
}

Capability flashinfer(Capability c) {
  c.dtypes = kHalf;
  c.types = kDecoder;
  c.features = c.features | FeatureSet{dcp, native_page, verify};
  c.device = DeviceKind::cuda;
  return vllm(c);
}

std::vector<BackendInfo> make_rows() {
  const IntSet pages_of_16 = IntSet::multiples_of(16), any = IntSet::any();
  const IntSet flashinfer_pages = {16, 32, 64}, flashinfer_heads = {64, 128, 256};
  const KvDtypes kv_fp8 = kKvBf16 | kFp8s;
  std::vector<BackendInfo> out;
  const auto add = [&out](BackendInfo row) {
    if (row.absent.empty()) row.absent = kNoCuda;
    out.push_back(std::move(row));
  };
  const auto cuda = [](Capability c) {
    c.device = DeviceKind::cuda;
    return vllm(c);
  };

  // vLLM uses it on Blackwell when TRTLLM is disabled; SGLang and Mini-SGLang run it on every later GPU.
  add({.name = "FLASHINFER",
       .aliases = {"flashinfer", "fi"},
       .version = "Native",
       .capability = flashinfer({.kv_dtypes = kv_fp8,
                                 .page_sizes = flashinfer_pages,
                                 .head_dims = flashinfer_heads,
                                 .features = {non_causal, window, tree_mask},
                                 .invariance = {Invariance::batch},
                                 .graph = GraphSupport::uniform_single_token_decode,
                                 .min_compute_capability = 70,
                                 .max_compute_capability = 99}),
       .mla_sibling = "FLASHINFER_MLA",
       .description = "FlashInfer's native kernels; decode on tensor cores from a GQA ratio of 4"});
  add({.name = "FLASHINFER",
       .version = "TRTLLM",
       .capability =
           refuses({batch_invariance, tree_mask}, flashinfer({.kv_dtypes = kv_fp8,
                                                              .page_sizes = flashinfer_pages,
                                                              .head_dims = flashinfer_heads,
                                                              .features = {non_causal, window, sink},
                                                              .graph = GraphSupport::uniform_batch,
                                                              .min_compute_capability = 100,
                                                              .max_compute_capability = 109})),
       .absent = kNoBlackwell,
       .mla_sibling = "FLASHINFER_MLA",
       .description = "TensorRT-LLM's kernels in FlashInfer, the default on Blackwell"});
  add({.name = "FLASHINFER",
       .version = "XQA",
       .capability = flashinfer({.kv_dtypes = kKvHalf | kFp8s,
                                 .page_sizes = {16, 32, 64, 128, 256, 512, 1024},
                                 .head_dims = {64, 128, 256, 512},
                                 .phases = {Phase::decode},
                                 .graph = GraphSupport::uniform_batch,
                                 .min_compute_capability = 90,
                                 .max_compute_capability = 90}),
       .mla_sibling = "FLASHINFER_MLA",
       .prefill_partner = "FLASHINFER",
       .description = "TensorRT-LLM's decode kernel for Hopper in FlashInfer"});
  add({.name = "FLASH_ATTN",
       .aliases = {"fa", "fa2"},
       .version = "FA2",
       .capability = flash({.kv_dtypes = kKvBf16,
                            .features = {alibi},
                            .invariance = {Invariance::batch},
                            .graph = GraphSupport::uniform_batch,
                            .min_compute_capability = 80}),
       .mla_sibling = "FLASH_ATTN_MLA",
       .description = "FlashAttention 2, for Ampere and later GPUs"});
  add({.name = "FLASH_ATTN",
       .aliases = {"fa3"},
       .version = "FA3",
       .capability = refuses({alibi}, flash({.kv_dtypes = kv_fp8,
                                             .features = FeatureSet{sink, window} | kSpeculative,
                                             .invariance = {Invariance::batch},
                                             .graph = GraphSupport::always,
                                             .min_compute_capability = 90,
                                             .max_compute_capability = 99})),
       .mla_sibling = "FLASH_ATTN_MLA",
       .description = "FlashAttention 3, for Hopper"});
  add({.name = "FLASH_ATTN",
       .aliases = {"fa4"},
       .version = "FA4",
       .capability = refuses({alibi, batch_invariance}, flash({.kv_dtypes = kKvHalf,
                                                               .features = {sink},
                                                               .graph = GraphSupport::always,
                                                               .min_compute_capability = 100})),
       .absent = kNoBlackwell,
       .mla_sibling = "FLASH_ATTN_MLA",
       .description = "FlashAttention 4, for Blackwell",
       .supports_combination = check_fa4});
  add({.name = "FLASH_ATTN_DIFFKV",
       .capability = cuda({.dtypes = kHalf,
                           .kv_dtypes = kKvAuto,
                           .page_sizes = any,
                           .head_dims = any,
                           .types = kDecoder,
                           .features = {dcp}}),
       .description = "FlashAttention with different head sizes of K and V"});
  add({.name = "FLEX_ATTENTION",
       .aliases = {"flex_attention", "flex"},
       .capability = cuda({.dtypes = kFloats,
                           .kv_dtypes = kKvBf16,
                           .page_sizes = any,
                           .head_dims = any,
                           .types = {AttentionType::decoder, AttentionType::encoder_only},
                           .features = {spans, non_causal}}),
       .description = "Programmable masks; slower than fixed masks"});
  add({.name = "TREE_ATTN",
       .capability = cuda({.dtypes = kHalf,
                           .kv_dtypes = kKvAuto,
                           .page_sizes = pages_of_16,
                           .head_dims = {32, 64, 96, 128, 160, 192, 224, 256},
                           .types = kDecoder,
                           .features = {verify, tree_mask},
                           .unstated = {non_causal}}),
       .description = "Tree attention for speculative decoding"});
  Capability triton = {.dtypes = kFloats,
                       .kv_dtypes = kv_fp8,
                       .page_sizes = pages_of_16,
                       .head_dims = any,
                       .types = kAllTypes,
                       .features = FeatureSet{sink, spans, non_causal, alibi, window} | kSpeculative,
                       .graph = GraphSupport::always};
  add({.name = "TRITON_ATTN",
       .aliases = {"triton"},
       .capability = cuda(triton),
       .mla_sibling = "TRITON_MLA",
       .description = "Portable kernels for every GPU, with sinks and multimodal spans"});
  triton.device = DeviceKind::rocm;
  add({.name = "TRITON_ATTN",
       .version = "ROCm",
       .capability = vllm(triton),
       .absent = kNoRocm,
       .mla_sibling = "TRITON_MLA",
       .description = "Portable kernels for AMD GPUs"});
  add({.name = "TRITON_ATTN_DIFFKV",
       .capability = cuda(
           {.dtypes = kHalf, .kv_dtypes = kKvBf16, .page_sizes = any, .head_dims = any, .types = kDecoder}),
       .description = "Portable kernels with different head sizes of K and V"});
  add({.name = "TURBOQUANT",
       .capability = cuda({.dtypes = kHalf,
                           .kv_dtypes = {KvCacheDType::turboquant_k8v4, KvCacheDType::turboquant_4bit_nc,
                                         KvCacheDType::turboquant_k3v4_nc, KvCacheDType::turboquant_3bit_nc},
                           .page_sizes = {16, 32, 64, 128},
                           .head_dims = any,
                           .types = kDecoder}),
       .description = "KV caches of 3 to 8 bits (TurboQuant)"});
  add({.name = "HPC_ATTN",
       .aliases = {"hpc_ops"},
       .capability = cuda({.dtypes = kHalf,
                           .kv_dtypes = kKvBf16 | kE4m3,
                           .page_sizes = {64},
                           .preferred_page_size = 64,
                           .head_dims = {128},
                           .types = kDecoder,
                           .min_compute_capability = 90}),
       .description = "Tencent's kernels for Hopper and later"});
  add({.name = "MINIMAX_M3_SPARSE",
       .capability = cuda({.dtypes = kBf16,
                           .kv_dtypes = KvDtypes{KvCacheDType::bfloat16} | kFp8s,
                           .page_sizes = {128},
                           .preferred_page_size = 128,
                           .head_dims = {128},
                           .types = kDecoder,
                           .features = {sparse}}),
       .description = "MiniMax M3's attention to blocks of 128 keys"});
  return out;
}

}  // namespace

std::span<const BackendInfo> standard_rows() {
  static const std::vector<BackendInfo> rows = make_rows();
  return rows;
}

}  // namespace fovea
