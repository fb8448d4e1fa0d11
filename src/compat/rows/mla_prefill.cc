// MLA prefill, which is not absorbed: vLLM's table, including its flags.
#include "attention/row.h"
#include "compat/rows/rows.h"

namespace fovea {
namespace {

using namespace rows;
using enum Feature;

/// 0 = not known.
std::optional<Reason> check_r1_dims(const AttentionSpec& spec, const DeviceInfo&) {
  const int nope = spec.mla_nope_head_dim, rope = spec.mla_rope_head_dim, v = spec.mla_v_head_dim;
  if (nope == 0 || (nope == 128 && rope == 64 && v == 128)) return {};
  return Reason{
      "DeepSeek R1 dims only (qk_nope_head_dim 128, qk_rope_head_dim 64, v_head_dim 128), but got " +
          std::to_string(nope) + ", " + std::to_string(rope) + ", " + std::to_string(v),
      {}};
}

Capability prefill(int min_cc, int max_cc) {
  Capability c = {.dtypes = kHalf,
                  .page_sizes = IntSet::any(),
                  .head_dims = IntSet::any(),
                  .types = kDecoder,
                  .features = {mla},
                  .unstated = {sink, spans, non_causal, dcp, sparse},
                  .phases = {Phase::prefill},
                  .device = DeviceKind::cuda,
                  .min_compute_capability = min_cc,
                  .max_compute_capability = max_cc};
  // It reads keys and values that were just up-projected from the cache, so any cache dtype works.
  for (unsigned i = 0; i < static_cast<unsigned>(KvCacheDType::count_); ++i)
    c.kv_dtypes.insert(static_cast<KvCacheDType>(i));
  return vllm(c);
}

}  // namespace

std::span<const MlaPrefillRow> mla_prefill_rows() {
  static const MlaPrefillRow rows[] = {
      {.info = {.name = "TRTLLM_RAGGED",
                .aliases = {"trtllm_ragged"},
                .capability = prefill(100, 109),
                .absent = kNoBlackwell,
                .description = "TensorRT-LLM ragged attention",
                .supports_combination = check_r1_dims},
       .title = "TRT-LLM Ragged",
       .enable = "Default on SM100",
       .disable = "-ac.use_trtllm_ragged_deepseek_prefill=0",
       .notes = "DeepSeek R1 dims only"},
      {.info = {.name = "FLASHINFER",
                .aliases = {"flashinfer"},
                .capability = prefill(100, 109),
                .absent = kNoBlackwell,
                .description = "FlashInfer CUTLASS backend",
                .supports_combination = check_r1_dims},
       .title = "FlashInfer",
       .enable = "-ac.disable_flashinfer_prefill=0",
       .disable = "-ac.disable_flashinfer_prefill=1",
       .notes = "DeepSeek R1 dims only"},
      {.info = {.name = "CUDNN",
                .aliases = {"cudnn"},
                .capability = prefill(100, 109),
                .absent = kNoBlackwell,
                .description = "cuDNN-based attention"},
       .title = "cuDNN",
       .enable = "-ac.use_cudnn_prefill=1",
       .disable = "-ac.use_cudnn_prefill=0",
       .notes = ""},
      {.info = {.name = "FLASH_ATTN",
                .aliases = {"flash_attn"},
                .capability = prefill(0, 0),
                .absent = kNoCuda,
                .description = "FlashAttention varlen (FA2/FA3)"},
       .title = "FlashAttention",
       .enable = "Default fallback",
       .disable = "Use other backends",
       .notes = "FA3 on SM90, FA2 otherwise"},
  };
  return rows;
}

}  // namespace fovea
