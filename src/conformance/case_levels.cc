// The knobs and their levels: the claimed values of each column, and other inputs on which kernels tend to
// fail.
#include <algorithm>
#include <charconv>

#include "base/check.h"
#include "conformance/case_space.h"

namespace fovea::conformance {
namespace {

int to_int(const std::string& text) {
  int value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

/// The enumerator of E whose to_string() is `name`.
template <class E>
int index_of(const std::string& name, int count) {
  for (int i = 0; i < count; ++i)
    if (to_string(static_cast<E>(i)) == name) return i;
  FOVEA_CHECK(false);
  return 0;
}

int dtype_index(const std::string& name) {
  return static_cast<int>(*parse_dtype(name));
}

template <class L>
void move_to_front(std::vector<L>& levels, int value) {
  const auto at = std::find_if(levels.begin(), levels.end(), [&](const L& l) { return l.value == value; });
  if (at != levels.end()) std::rotate(levels.begin(), at, at + 1);
}

}  // namespace

void CaseSpace::add_columns(const Capability& c) {
  for (const Cell& cell : cells(c)) {
    if (!cell.claimed) continue;
    const std::string& v = cell.value;
    if (cell.column == "dtypes") levels(Knob::dtype).push_back({v, dtype_index(v)});
    if (cell.column == "kv_dtypes") {
      const auto kv =
          static_cast<KvCacheDType>(index_of<KvCacheDType>(v, static_cast<int>(KvCacheDType::count_)));
      // Other types can't be stored here, so no case has them.
      if (kv == KvCacheDType::auto_ || size_of(kv) > 0)
        levels(Knob::kv_dtype).push_back({v, static_cast<int>(kv)});
    }
    if (cell.column == "page_sizes") levels(Knob::page_size).push_back({v, to_int(v)});
    if (cell.column == "head_dims") levels(Knob::head_dim).push_back({v, to_int(v)});
    if (cell.column == "gqa_ratios" && to_int(v) <= kMaxHeads)
      levels(Knob::gqa_ratio).push_back({v, to_int(v)});
    if (cell.column == "types") levels(Knob::type).push_back({v, index_of<AttentionType>(v, 4)});
    if (cell.column == "phases") levels(Knob::phase).push_back({v, index_of<Phase>(v, 2)});
    if (cell.column == "kv_layouts")
      levels(Knob::kv_layout).push_back({v, index_of<KvLayout>(v, static_cast<int>(KvLayout::count_))});
    if (cell.column == "invariance")
      levels(Knob::invariance).push_back({v, index_of<Invariance>(v, static_cast<int>(Invariance::count_))});
    if (cell.column == "graph") levels(Knob::graph).push_back({v, index_of<GraphSupport>(v, 4)});
  }
  const bool mla = c.features.has(Feature::mla);
  levels(Knob::v_head_dim) = {{"same", kSameHeadDim}};
  for (const int d : mla ? std::vector<int>{512, 256, 64, 24} : std::vector<int>{128, 64, 512, 33, 24, 256})
    if (c.v_head_dims.has(d) && c.head_dims.has(d) && num_levels(Knob::v_head_dim) < 5)
      levels(Knob::v_head_dim).push_back({std::to_string(d), d});
  for (const Cell& cell : cells(c))  // those that "same" cannot reach
    if (const int d = to_int(cell.value); cell.column == "v_head_dims" && cell.claimed && !c.head_dims.has(d))
      levels(Knob::v_head_dim).push_back({cell.value, d});
  const auto& sizes = levels(Knob::head_dim);
  if (mla && std::ranges::none_of(sizes, [&](const Level& l) { return c.v_head_dims.has(l.value); })) {
    levels(Knob::v_head_dim).erase(levels(Knob::v_head_dim).begin());  // no record is all V
    move_to_front(levels(Knob::v_head_dim), 512);
  }
  for (const auto& [knob, feature] : {std::pair{Knob::kv_sharing, Feature::kv_sharing},
                                      {Knob::fp64, Feature::fp64_accumulate},
                                      {Knob::head_scales, Feature::per_head_scales}}) {
    levels(knob) = {{"no", 0}};
    if (c.features.has(feature)) levels(knob).push_back({"yes", 1});
  }
  levels(Knob::graph).insert(levels(Knob::graph).begin(), {"none", 0});
  levels(Knob::invariance).insert(levels(Knob::invariance).begin(), {"not tested", -1});
  move_to_front(levels(Knob::dtype), static_cast<int>(DType::f32));
  move_to_front(levels(Knob::page_size), c.preferred_page_size);
  if (mla) move_to_front(levels(Knob::head_dim), 576);
  move_to_front(levels(Knob::head_dim), 64);
  move_to_front(levels(Knob::kv_layout), static_cast<int>(KvLayout::hnd));
}

void CaseSpace::add_masks(const Capability& c) {
  const auto has = [&](Feature f) { return c.features.has(f); };
  const auto level = [](auto value) { return static_cast<int>(value); };
  if (c.types.has(AttentionType::decoder)) levels(Knob::mask).push_back({"causal", level(MaskLevel::causal)});
  if (has(Feature::non_causal) || !c.types.without({AttentionType::decoder}).empty())
    levels(Knob::mask).push_back({"full", level(MaskLevel::full)});
  if (has(Feature::packed_mask)) levels(Knob::mask).push_back({"packed", level(MaskLevel::packed)});
  levels(Knob::window) = {{"off", -1}};
  if (has(Feature::window))
    levels(Knob::window)
        .insert(levels(Knob::window).end(),
                {{"1", 0}, {"16", 15}, {"64", 63}, {"100", 99}, {"700", 699}, {"2500", 2499}});
  levels(Knob::sides) = {{"left", level(SidesLevel::left)}};
  if (has(Feature::window))
    levels(Knob::sides)
        .insert(levels(Knob::sides).end(), {{"both", level(SidesLevel::both)},
                                            {"both, more left", level(SidesLevel::more_left)},
                                            {"right", level(SidesLevel::right)}});
  levels(Knob::sink_tokens) = {{"0", 0}};
  if (has(Feature::sink_tokens) && has(Feature::window))
    levels(Knob::sink_tokens).insert(levels(Knob::sink_tokens).end(), {{"1", 1}, {"4", 4}, {"17", 17}});
  levels(Knob::chunk) = {{"off", 0}};
  if (has(Feature::chunk))
    levels(Knob::chunk)
        .insert(levels(Knob::chunk).end(), {{"4", 4}, {"33", 33}, {"64", 64}, {"512", 512}, {"3000", 3000}});
  levels(Knob::spans) = {{"no", 0}};
  if (has(Feature::spans)) levels(Knob::spans).push_back({"yes", 1});
  levels(Knob::tree) = {{"no", 0}};
  if (has(Feature::tree_mask)) {
    levels(Knob::tree).push_back({"yes", 1});
    levels(Knob::tree).push_back({"large", 2});
  }
  levels(Knob::score) = {{"plain", level(ScoreLevel::plain)}};
  if (has(Feature::softcap))
    levels(Knob::score)
        .insert(levels(Knob::score).end(), {{"soft cap 20", level(ScoreLevel::softcap)},
                                            {"soft cap 3", level(ScoreLevel::low_softcap)}});
  if (has(Feature::alibi)) {
    levels(Knob::score).push_back({"ALiBi", level(ScoreLevel::alibi)});
    levels(Knob::score).push_back({"ALiBi of the paper", level(ScoreLevel::canonical_alibi)});
  }
  // In hundredths. Gemma's, Granite's and MLA's scales are not D^-0.5; below 0 the largest product is the
  // lowest score.
  levels(Knob::scale) = {{"1", 100}, {"0.4", 40}, {"1.7", 170}, {"-0.8", -80}};
  levels(Knob::sink) = {{"none", level(SinkLevel::none)}};
  if (has(Feature::sink))
    levels(Knob::sink)
        .insert(levels(Knob::sink).end(), {{"drawn", level(SinkLevel::drawn)},
                                           {"-inf and large", level(SinkLevel::extreme)},
                                           {"in the LSE", level(SinkLevel::in_lse)}});
}

void CaseSpace::add_memory() {
  const auto level = [](auto value) { return static_cast<int>(value); };
  levels(Knob::kv_heads) = {{"1", 1}, {"2", 2},   {"3", 3},   {"4", 4},    {"5", 5},
                            {"8", 8}, {"16", 16}, {"32", 32}, {"128", 128}};
  if (backend_.capability.features.has(Feature::mla)) levels(Knob::kv_heads).resize(1);
  levels(Knob::batch) = {{"edges", level(BatchLevel::edges)},
                         {"mixed", level(BatchLevel::mixed)},
                         {"holes", level(BatchLevel::holes)},
                         {"long", level(BatchLevel::long_)},
                         {"more rows than keys", level(BatchLevel::more_rows)},
                         {"many", level(BatchLevel::many)},
                         {"split", level(BatchLevel::split)},
                         {"rows", level(BatchLevel::rows)}};
  if (backend_.capability.features.has(Feature::verify))
    levels(Knob::batch).push_back({"verify", level(BatchLevel::verify)});
  levels(Knob::values) = {
      {"normal", 1}, {"sharp", 4}, {"equal scores", 0}, {"very sharp", 30}, {"coded V", -1}};
  const bool gpu = device_.kind != DeviceKind::cpu;
  levels(Knob::page_lists) = {{"no", level(PagesLevel::table)}, {"yes", level(PagesLevel::lists)}};
  if (gpu && backend_.capability.page_sizes.has(1))
    levels(Knob::page_lists).push_back({"ragged", level(PagesLevel::ragged)});
  levels(Knob::page_order) = {{"shuffled", level(PageOrder::shuffled)},
                              {"ascending", level(PageOrder::ascending)},
                              {"descending", level(PageOrder::descending)},
                              {"interleaved", level(PageOrder::interleaved)}};
  levels(Knob::null_page) = {{"no", 0}, {"yes", 1}};
  levels(Knob::poison) = {{"unowned slots", 0}, {"hidden slots", 1}};
  levels(Knob::shared_pages) = {{"no", 0}, {"yes", 1}};
  levels(Knob::padding) = {{"0", 0}, {"1", 1}, {"8", 8}, {"48", 48}};
  levels(Knob::place) = {
      {"dense", level(KvPlace::dense)}, {"gaps", level(KvPlace::gaps)}, {"beyond 2^31", level(KvPlace::far)}};
  levels(Knob::limits) = {{"exact", level(LimitsLevel::exact)},
                          {"larger", level(LimitsLevel::larger)},
                          {"an engine's", level(LimitsLevel::engine)}};
  levels(Knob::past_kv_ready) = {{"no", 0}, {"yes", 1}};
  levels(Knob::threads) = {{"1", 1}, {"2", 2}, {"3", 3}};
  if (gpu) {
    levels(Knob::threads).resize(1);  // host threads only queue work
    // Kernels load 16 bytes at once.
    std::erase_if(levels(Knob::padding), [](const Level& l) { return l.value % 8 != 0; });
  }
  levels(Knob::lse) = {{"yes", 1}, {"also without", 0}};
}

}  // namespace fovea::conformance
