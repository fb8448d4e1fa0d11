#include "base/check.h"
#include "lora/adapter_files.h"

namespace fovea {
namespace {

LoraPlace place_of(int64_t k, std::initializer_list<int64_t> outputs) {
  LoraPlace place;
  place.k = k;
  for (const int64_t n : outputs) {
    FOVEA_CHECK(place.modules < kLoraModules);
    place.first_output[static_cast<size_t>(place.modules++)] = place.n;
    place.n += n;
  }
  place.first_output[static_cast<size_t>(place.modules)] = place.n;
  return place;
}

/// The places of the routed experts, then of the shared one.
std::vector<std::array<LoraPlace, 2>> expert_places(const LoraShape& shape) {
  const auto of = [&](int64_t wide) {
    return std::array{place_of(shape.hidden, {wide, wide}), place_of(wide, {shape.hidden})};
  };
  std::vector<std::array<LoraPlace, 2>> places(static_cast<size_t>(shape.experts),
                                               of(shape.expert_intermediate));
  if (shape.experts > 0 && shape.shared_intermediate > 0) places.push_back(of(shape.shared_intermediate));
  return places;
}

}  // namespace

LoraLayout lora_layout(const LoraShape& shape, int max_rank, DType dtype) {
  LoraLayout layout;
  layout.dtype = dtype;
  layout.max_rank = max_rank;
  for (const bool dense_mlp : shape.dense_mlp) {
    auto& sites = layout.layers.emplace_back();
    const auto at = [&](LoraSite site) -> LoraPlace& { return sites[static_cast<size_t>(site)]; };
    if (shape.record > 0) {
      at(LoraSite::qkv) =
          place_of(shape.hidden, {shape.q_rank > 0 ? shape.q_rank : shape.queries, shape.record});
      if (shape.q_rank > 0) at(LoraSite::q_up) = place_of(shape.q_rank, {shape.queries});
    } else
      at(LoraSite::qkv) = shape.stacked ? place_of(shape.hidden, {shape.q + 2 * shape.kv})
                                        : place_of(shape.hidden, {shape.q, shape.kv, shape.kv});
    at(LoraSite::o) = place_of(shape.q, {shape.hidden});
    if (!dense_mlp) {
      layout.experts.emplace_back(expert_places(shape));
      continue;
    }
    layout.experts.emplace_back();
    at(LoraSite::gate_up) = shape.stacked ? place_of(shape.hidden, {2 * shape.intermediate})
                                          : place_of(shape.hidden, {shape.intermediate, shape.intermediate});
    at(LoraSite::down) = place_of(shape.intermediate, {shape.hidden});
  }
  finish(layout);
  return layout;
}

}  // namespace fovea
