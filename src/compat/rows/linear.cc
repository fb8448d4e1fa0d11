// Attention without softmax: a state of fixed size replaces keys and values, so that columns for heads, pages
// and masks do not apply.
#include "attention/row.h"
#include "compat/rows/rows.h"

namespace fovea {
namespace {

using namespace rows;

BackendInfo linear(std::string_view name, std::vector<std::string_view> aliases, LinearAttention sort,
                   std::string_view description) {
  Capability c = {.dtypes = kHalf,
                  .kv_dtypes = kKvAuto,
                  .page_sizes = IntSet::any(),
                  .types = kDecoder,
                  .unstated = {Feature::sink, Feature::non_causal, Feature::spans, Feature::dcp},
                  .device = DeviceKind::cuda};
  return {.name = name,
          .aliases = std::move(aliases),
          .capability = vllm(c),
          .absent = kNoLinear,
          .linear = sort,
          .description = description};
}

}  // namespace

std::span<const BackendInfo> linear_rows() {
  static const BackendInfo rows[] = {
      linear("LINEAR", {}, LinearAttention::lightning,
             "Lightning attention (MiniMax-Text-01): a decaying sum for each head"),
      linear("GDN_ATTN", {"gdn"}, LinearAttention::gated_delta, "Gated delta rule (Qwen3-Next, Kimi Linear)"),
      linear("HSTU", {}, LinearAttention::pointwise,
             "Pointwise SiLU in place of softmax (generative recommenders)"),
  };
  return rows;
}

}  // namespace fovea
