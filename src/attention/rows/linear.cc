// Attention without softmax: a state of fixed size takes the place of keys and values, so that columns about
// heads, pages and masks have nothing to say, and a layer with softmax is refused for its head size.
#include "attention/rows/row.h"
#include "attention/rows/rows.h"

namespace fovea {
namespace {

using namespace rows;

std::optional<Reason> check_kind(const AttentionSpec& spec, const DeviceInfo&) {
  if (kind_of(spec) == LayerKind::linear) return {};
  return Reason{"softmax attention not supported",
                "--attention-backend auto: this one serves layers without softmax only"};
}

BackendInfo linear(std::string_view name, std::vector<std::string_view> aliases,
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
          .description = description,
          .supports_combination = check_kind};
}

}  // namespace

std::span<const BackendInfo> linear_rows() {
  static const BackendInfo rows[] = {
      linear("LINEAR", {}, "Lightning attention (MiniMax-Text-01): a decaying sum for each head"),
      linear("GDN_ATTN", {"gdn"}, "Gated delta rule (Qwen3-Next)"),
      linear("HSTU", {}, "Pointwise SiLU in place of softmax (generative recommenders)"),
  };
  return rows;
}

}  // namespace fovea
