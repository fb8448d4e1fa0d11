// Rows of a case space: pairwise rows, rows common in engines, and large rows.
#include <algorithm>
#include <utility>

#include "conformance/case_space.h"

namespace fovea::conformance {
namespace {

constexpr int kCommonRows = 64, kLargeRows = 48, kChunkRows = 4, kChunkRowsOfCell = 24;

constexpr int value_of(auto level) {
  return static_cast<int>(level);
}

}  // namespace

std::vector<Levels> CaseSpace::rows(uint64_t seed, const Levels& fixed, std::vector<Levels>* unmet) const {
  std::vector<Levels> rows;
  const bool all_free = std::all_of(fixed.begin(), fixed.end(), [](int level) { return level == kUnset; });
  if (all_free) {
    rows = large_rows(seed, kLargeRows);
    for (Levels& row : common_rows(seed, kCommonRows))
      rows.push_back(std::move(row));
  }
  for (Levels& row :
       pairwise_rows(counts(), [&](const Levels& row) { return allowed(row); }, seed, fixed, unmet, hints()))
    rows.push_back(std::move(row));
  for (Levels& row : chunk_rows(seed, all_free ? kChunkRows : kChunkRowsOfCell, fixed))
    rows.push_back(std::move(row));
  return rows;
}

Hints CaseSpace::hints() const {
  // Only the causal limit; what every fast kernel supports in addition; any mask. None of these is far: far
  // cases cost most, and the last hint leaves enough of them.
  const auto set = [&](Levels& row, std::initializer_list<Knob> knobs) {
    for (const Knob knob : knobs)
      row[static_cast<size_t>(knob)] = 0;
  };
  Levels small(levels_.size(), kUnset);
  set(small, {Knob::place});
  Levels fast = small;
  set(fast, {Knob::head_scales, Knob::sink_tokens, Knob::spans, Knob::tree, Knob::score, Knob::scale});
  Levels plain_mask = fast;
  set(plain_mask, {Knob::type, Knob::mask, Knob::window, Knob::sides, Knob::chunk});
  // Decodes of many sequences have separate kernels.
  Levels decode = plain_mask;
  const auto level_of = [&](Knob knob, auto value) {
    const auto& levels = levels_[static_cast<size_t>(knob)];
    for (size_t i = 0; i < levels.size(); ++i)
      if (levels[i].value == static_cast<int>(value)) decode[static_cast<size_t>(knob)] = static_cast<int>(i);
  };
  level_of(Knob::phase, Phase::decode);
  level_of(Knob::limits, LimitsLevel::engine);
  level_of(Knob::kv_dtype, KvCacheDType::auto_);
  return {plain_mask, small, decode, fast, Levels(levels_.size(), kUnset)};
}

std::vector<Levels> CaseSpace::weighted_rows(uint64_t seed, int count, const Weights& weights,
                                             const Levels& fixed) const {
  // Knobs that are drawn uniformly, in addition to those with weights.
  constexpr Knob kFree[] = {Knob::phase,         Knob::kv_layout, Knob::values,     Knob::page_order,
                            Knob::null_page,     Knob::poison,    Knob::padding,    Knob::shared_pages,
                            Knob::past_kv_ready, Knob::threads,   Knob::page_lists, Knob::lse,
                            Knob::v_head_dim,    Knob::sink};
  Random random(seed);
  std::vector<Levels> rows;
  for (int tries = 0; tries < 60 * count && static_cast<int>(rows.size()) < count; ++tries) {
    Levels row = plain();
    for (const Knob knob : kFree)
      row[static_cast<size_t>(knob)] = random.below(num_levels(knob));
    for (const auto& [knob, values] : weights) {
      const int value = random.pick(values);
      const auto& levels = levels_[static_cast<size_t>(knob)];
      for (size_t i = 0; i < levels.size(); ++i)
        if (levels[i].value == value) row[static_cast<size_t>(knob)] = static_cast<int>(i);
    }
    // Prefer V with the head size of Q and K where that is allowed.
    const auto v = static_cast<size_t>(Knob::v_head_dim);
    const int percent = backend_.capability.features.has(Feature::mla) ? 70 : 10;
    if (const int drawn = std::exchange(row[v], 0); !allowed(row) || random.chance(percent)) row[v] = drawn;
    for (size_t k = 0; k < fixed.size(); ++k)
      if (fixed[k] != kUnset) row[k] = fixed[k];
    if (allowed(row)) rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<Levels> CaseSpace::common_rows(uint64_t seed, int count, const Levels& fixed) const {
  const bool mla = backend_.capability.features.has(Feature::mla);
  // Where there are records of fp8_ds_mla, they are the usual ones.
  const bool records = backend_.capability.kv_dtypes.has(KvCacheDType::fp8_ds_mla);
  using Ints = std::vector<int>;
  const Weights weights = {
      {Knob::dtype, {value_of(DType::bf16), value_of(DType::f16)}},
      {Knob::kv_dtype,
       {value_of(KvCacheDType::auto_), value_of(records ? KvCacheDType::fp8_ds_mla : KvCacheDType::auto_),
        value_of(KvCacheDType::fp8_e4m3)}},
      {Knob::page_size, {1, 16, 16, 32, 64, 128}},
      {Knob::head_dim, mla ? Ints{576, 576, 576, 288, 64} : Ints{64, 96, 128, 128, 192, 256}},
      {Knob::gqa_ratio, mla ? Ints{1, 8, 16, 16, 32, 64, 128} : Ints{1, 2, 4, 5, 7, 8, 16}},
      {Knob::kv_heads, {1, 2, 4, 8, 8}},
      {Knob::window, {-1, -1, -1, 99, 699}},
      {Knob::sink, {value_of(SinkLevel::none), value_of(SinkLevel::none), value_of(SinkLevel::drawn)}},
      {Knob::scale, {100, 100, 40, 170}},
      {Knob::limits,
       {value_of(LimitsLevel::exact), value_of(LimitsLevel::engine), value_of(LimitsLevel::engine)}},
      {Knob::batch,
       {value_of(BatchLevel::edges), value_of(BatchLevel::mixed), value_of(BatchLevel::many),
        value_of(BatchLevel::many)}}};
  return weighted_rows(seed ^ 0x636f6d6d6f6eu, count, weights, fixed);
}

std::vector<Levels> CaseSpace::large_rows(uint64_t seed, int count, const Levels& fixed) const {
  const bool mla = backend_.capability.features.has(Feature::mla);
  using Ints = std::vector<int>;
  const Weights weights = {
      {Knob::dtype, {value_of(DType::bf16), value_of(DType::f16), value_of(DType::f32)}},
      {Knob::kv_dtype,
       {value_of(KvCacheDType::auto_), value_of(KvCacheDType::auto_), value_of(KvCacheDType::fp8_e4m3),
        value_of(KvCacheDType::int8_per_token_head)}},
      {Knob::page_size, {16, 16, 64, 128, 544}},
      {Knob::head_dim, mla ? Ints{576, 576, 288, 64} : Ints{16, 64, 64, 128}},
      {Knob::gqa_ratio, mla ? Ints{1, 2, 4, 16, 64, 128} : Ints{1, 2, 4}},
      {Knob::kv_heads, {1, 1, 2}},
      {Knob::type,
       {value_of(AttentionType::decoder), value_of(AttentionType::decoder),
        value_of(AttentionType::encoder)}},
      {Knob::mask, {value_of(MaskLevel::causal), value_of(MaskLevel::full)}},
      {Knob::window, {-1, -1, 699, 2499}},
      {Knob::sides, {value_of(SidesLevel::left), value_of(SidesLevel::both), value_of(SidesLevel::right)}},
      {Knob::chunk, {0, 0, 0, 512, 3000}},
      {Knob::tree, {0, 0, 0, 0, 0, 2}},
      {Knob::scale, {100, 100, 40, 170}},
      {Knob::sink, {value_of(SinkLevel::none), value_of(SinkLevel::drawn)}},
      {Knob::limits,
       {value_of(LimitsLevel::exact), value_of(LimitsLevel::larger), value_of(LimitsLevel::engine)}},
      {Knob::place, {value_of(KvPlace::dense), value_of(KvPlace::dense), value_of(KvPlace::far)}},
      {Knob::batch,
       {value_of(BatchLevel::split), value_of(BatchLevel::split), value_of(BatchLevel::rows),
        value_of(BatchLevel::many)}}};
  return weighted_rows(seed ^ 0x6c61726765u, count, weights, fixed);
}

std::vector<Levels> CaseSpace::chunk_rows(uint64_t seed, int count, const Levels& fixed) const {
  const auto level_of = [&](Knob knob, int value) {
    const auto& levels = levels_[static_cast<size_t>(knob)];
    const auto at = std::ranges::find(levels, value, &Level::value);
    return at == levels.end() ? kUnset : static_cast<int>(at - levels.begin());
  };
  Levels wanted = fixed;
  const auto invariance = static_cast<size_t>(Knob::invariance);
  const int chunks = level_of(Knob::invariance, value_of(Invariance::prefill_chunks));
  const bool all_free = std::ranges::all_of(fixed, [](int level) { return level == kUnset; });
  if (device_.kind != DeviceKind::cuda || chunks == kUnset) return {};
  if (!all_free && (fixed.size() <= invariance || fixed[invariance] != chunks)) return {};
  wanted.resize(levels_.size(), kUnset);
  wanted[invariance] = chunks;
  wanted[static_cast<size_t>(Knob::batch)] = level_of(Knob::batch, value_of(BatchLevel::split));
  wanted[static_cast<size_t>(Knob::phase)] = level_of(Knob::phase, value_of(Phase::prefill));
  const Weights weights = {
      {Knob::dtype, {value_of(DType::bf16), value_of(DType::f16), value_of(DType::f32)}},
      {Knob::page_size, {16, 64, 128}},
      {Knob::head_dim, {64, 64, 128}},
      {Knob::gqa_ratio, {1, 2, 4}},
      {Knob::kv_heads, {1}},
      {Knob::limits,
       {value_of(LimitsLevel::exact), value_of(LimitsLevel::larger), value_of(LimitsLevel::engine)}}};
  return weighted_rows(seed ^ 0x6368756e6bu, count, weights, wanted);
}

}  // namespace fovea::conformance
