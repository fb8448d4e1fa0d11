#include "conformance/case_space.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "attention/kv_view.h"
#include "base/check.h"

namespace fovea::conformance {
namespace {

constexpr std::string_view kNames[] = {
    "dtype",      "KV dtype",  "page size",    "head size",    "V head size", "GQA ratio", "type",
    "phase",      "KV layout", "KV sharing",   "fp64",         "head scales", "graph",     "invariance",
    "mask",       "window",    "window sides", "sink tokens",  "chunk",       "spans",     "tree",
    "score",      "scale",     "sink",         "KV heads",     "batch",       "values",    "page lists",
    "page order", "null page", "poison",       "shared pages", "padding",     "KV place",  "limits",
    "KV settled", "threads",   "LSE"};
static_assert(std::size(kNames) == static_cast<size_t>(Knob::count_));

constexpr int kSameHeadDim = 0;  // of Knob::v_head_dim

/// Elements of one page of K: bounds the memory that a case fills with NaN.
constexpr int64_t kMaxPageElements = int64_t{1} << 21;
constexpr int kMaxHeads = 128;
constexpr int kCommonRows = 64, kLargeRows = 48;

int to_int(const std::string& text) {
  int value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

/// The enumerator of E that to_string() calls `name`.
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

std::string_view to_string(Knob knob) {
  return kNames[static_cast<size_t>(knob)];
}

CaseSpace::CaseSpace(const BackendInfo& backend, const DeviceInfo& device)
    : backend_(backend), device_(device), levels_(static_cast<size_t>(Knob::count_)) {
  add_columns(backend.capability);
  add_masks(backend.capability);
  add_memory();
  for (auto& levels : levels_)
    if (levels.empty()) levels.push_back({"none", 0});  // nothing claimed: validate() refuses all
  find_combinations();
}

namespace {

constexpr Knob kCombined[] = {Knob::dtype, Knob::kv_dtype, Knob::head_dim, Knob::v_head_dim};

}  // namespace

void CaseSpace::find_combinations() {
  if (backend_.supports_combination == nullptr) return;
  constexpr size_t kKnobs = std::size(kCombined);
  std::vector<int> row(kKnobs, 0);
  size_t size = 1;
  for (const Knob knob : kCombined)
    size *= static_cast<size_t>(num_levels(knob)) + 1;
  std::vector<bool> found(size, false);
  Levels whole = plain();
  for (bool more = true; more;) {
    for (size_t i = 0; i < kKnobs; ++i)
      whole[static_cast<size_t>(kCombined[i])] = row[i];
    if (!backend_.supports_combination(spec_of(whole), device_)) {
      for (unsigned unset = 0; unset < 1u << kKnobs; ++unset) {
        size_t at = 0;
        for (size_t i = 0; i < kKnobs; ++i)
          at = at * (static_cast<size_t>(num_levels(kCombined[i])) + 1) +
               ((unset >> i & 1u) != 0 ? 0 : static_cast<size_t>(row[i]) + 1);
        found[at] = true;
      }
    }
    size_t i = 0;
    while (i < kKnobs && ++row[i] == num_levels(kCombined[i]))
      row[i++] = 0;
    more = i < kKnobs;
  }
  if (found.front()) combinations_ = std::move(found);  // else the plain row is refused for something else
}

bool CaseSpace::allowed_combination(const Levels& row) const {
  if (combinations_.empty()) return true;
  size_t at = 0;
  for (const Knob knob : kCombined)
    at = at * (static_cast<size_t>(num_levels(knob)) + 1) +
         static_cast<size_t>(row[static_cast<size_t>(knob)] + 1);
  return combinations_[at];
}

void CaseSpace::add_columns(const Capability& c) {
  for (const Cell& cell : cells(c)) {
    if (!cell.claimed) continue;
    const std::string& v = cell.value;
    if (cell.column == "dtypes") levels(Knob::dtype).push_back({v, dtype_index(v)});
    if (cell.column == "kv_dtypes") {
      const auto kv =
          static_cast<KvCacheDType>(index_of<KvCacheDType>(v, static_cast<int>(KvCacheDType::count_)));
      // Others can't be stored here, so that no case has them.
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
  levels(Knob::v_head_dim) = {{"same", kSameHeadDim}};
  for (const int d : {128, 64, 512, 33, 24, 256})
    if (c.v_head_dims.has(d) && c.head_dims.has(d) && num_levels(Knob::v_head_dim) < 5)
      levels(Knob::v_head_dim).push_back({std::to_string(d), d});
  for (const Cell& cell : cells(c))  // those that cannot be reached as "same"
    if (const int d = to_int(cell.value); cell.column == "v_head_dims" && cell.claimed && !c.head_dims.has(d))
      levels(Knob::v_head_dim).push_back({cell.value, d});
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
  // In hundredths. Gemma's, Granite's and MLA's are none of D^-0.5; below 0 the largest product is the least.
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
  levels(Knob::poison) = {{"what nobody owns", 0}, {"what nobody sees", 1}};
  levels(Knob::shared_pages) = {{"no", 0}, {"yes", 1}};
  levels(Knob::padding) = {{"0", 0}, {"1", 1}, {"8", 8}, {"48", 48}};
  levels(Knob::place) = {
      {"dense", level(KvPlace::dense)}, {"gaps", level(KvPlace::gaps)}, {"beyond 2^31", level(KvPlace::far)}};
  levels(Knob::limits) = {{"exact", level(LimitsLevel::exact)},
                          {"larger", level(LimitsLevel::larger)},
                          {"an engine's", level(LimitsLevel::engine)}};
  levels(Knob::kv_settled) = {{"no", 0}, {"yes", 1}};
  levels(Knob::threads) = {{"1", 1}, {"2", 2}, {"3", 3}};
  if (gpu) {
    levels(Knob::threads).resize(1);  // of the host: they only queue
    // Kernels load 16 bytes at once.
    std::erase_if(levels(Knob::padding), [](const Level& l) { return l.value % 8 != 0; });
  }
  levels(Knob::lse) = {{"yes", 1}, {"also without", 0}};
}

std::optional<int> CaseSpace::value(const Levels& row, Knob knob) const {
  const auto k = static_cast<size_t>(knob);
  if (row[k] == kUnset) return std::nullopt;
  return levels_[k][static_cast<size_t>(row[k])].value;
}

bool CaseSpace::allowed(const Levels& row) const {
  if (!allowed_combination(row) || !allowed_masks(row) || !allowed_memory(row) || !allowed_invariance(row) ||
      !allowed_graph(row))
    return false;
  if (std::find(row.begin(), row.end(), kUnset) != row.end()) return true;
  const auto phase = static_cast<Phase>(*value(row, Knob::phase));
  return validate(backend_, spec_of(row), device_, phase).empty();
}

bool CaseSpace::allowed_masks(const Levels& row) const {
  // `test` of two knobs that are both set.
  const auto both = [&](Knob a, Knob b, auto test) {
    const auto x = value(row, a), y = value(row, b);
    return !x || !y || test(*x, *y);
  };
  const auto is = [](int value, auto level) { return value == static_cast<int>(level); };
  const auto decoder = [&](int type) { return is(type, AttentionType::decoder); };
  const bool non_causal = backend_.capability.features.has(Feature::non_causal);
  return both(Knob::type, Knob::mask,
              [&](int type, int mask) {
                return decoder(type) ? !is(mask, MaskLevel::full) || non_causal : is(mask, MaskLevel::full);
              }) &&
         // Encoders are not computed token by token; a decoder reads the encoder's keys so.
         both(Knob::type, Knob::phase,
              [&](int type, int phase) {
                return decoder(type) || is(type, AttentionType::encoder_decoder) || is(phase, Phase::prefill);
              }) &&
         both(Knob::type, Knob::batch,
              [&](int type, int batch) {
                if (is(batch, BatchLevel::verify)) return decoder(type);
                return !is(batch, BatchLevel::more_rows) || decoder(type) ||
                       is(type, AttentionType::encoder_decoder);
              }) &&
         both(Knob::phase, Knob::batch,
              [&](int phase, int batch) {
                return is(phase, Phase::prefill) || !is(batch, BatchLevel::more_rows);
              }) &&
         both(Knob::spans, Knob::mask,
              [&](int spans, int mask) { return spans == 0 || is(mask, MaskLevel::causal); }) &&
         both(Knob::tree, Knob::mask,
              [&](int tree, int mask) { return tree == 0 || is(mask, MaskLevel::causal); }) &&
         both(Knob::phase, Knob::batch,
              [&](int phase, int batch) {
                return is(phase, Phase::prefill) || !is(batch, BatchLevel::rows);
              }) &&
         both(Knob::sink_tokens, Knob::window,
              [](int tokens, int window) { return tokens == 0 || window >= 0; }) &&
         both(Knob::sides, Knob::window,
              [&](int sides, int window) { return is(sides, SidesLevel::left) || window >= 0; }) &&
         // A causal mask has no right side; the bound that models give for it must change nothing.
         both(Knob::sides, Knob::spans,
              [&](int sides, int spans) {
                return spans == 0 || is(sides, SidesLevel::left) || is(sides, SidesLevel::both);
              }) &&
         both(Knob::sides, Knob::tree,
              [&](int sides, int tree) {
                return tree == 0 || is(sides, SidesLevel::left) || is(sides, SidesLevel::both);
              }) &&
         both(Knob::sides, Knob::mask, [&](int sides, int mask) {
           return is(sides, SidesLevel::left) || is(sides, SidesLevel::both) || !is(mask, MaskLevel::causal);
         });
}

bool CaseSpace::allowed_memory(const Levels& row) const {
  const auto head_dim = value(row, Knob::head_dim), kv_heads = value(row, Knob::kv_heads);
  const auto page = value(row, Knob::page_size), ratio = value(row, Knob::gqa_ratio);
  const auto v_head_dim = value(row, Knob::v_head_dim);
  if (ratio.value_or(1) * kv_heads.value_or(1) > kMaxHeads) return false;
  const int widest = std::max(head_dim.value_or(1), v_head_dim.value_or(1));
  if (int64_t{page.value_or(1)} * widest * kv_heads.value_or(1) > kMaxPageElements) return false;
  // "same" is for those that V may have, and any other is not the same.
  if (head_dim && v_head_dim) {
    if (*v_head_dim == *head_dim) return false;
    if (*v_head_dim == kSameHeadDim && !backend_.capability.v_head_dims.has(*head_dim)) return false;
  }
  // Of a GPU gigabytes are poisoned for each run of a case beyond 2^31: not for runs that repeat it.
  if (device_.kind != DeviceKind::cpu && value(row, Knob::place) == static_cast<int>(KvPlace::far) &&
      (value(row, Knob::invariance).value_or(-1) >= 0 || value(row, Knob::graph).value_or(0) != 0))
    return false;
  const auto pages = value(row, Knob::page_lists);
  if (page.value_or(1) != 1 && pages == static_cast<int>(PagesLevel::ragged)) return false;
  const auto kv = value(row, Knob::kv_dtype), dtype = value(row, Knob::dtype);
  if (kv && value(row, Knob::head_scales) == 1 && !is_fp8(static_cast<KvCacheDType>(*kv))) return false;
  const bool shuffled = value(row, Knob::kv_layout) == static_cast<int>(KvLayout::shuffle);
  constexpr int kLeastX = x_of(KvCacheDType::float32);
  if (shuffled && page.value_or(kLeastX) % kLeastX != 0) return false;
  if (!head_dim || !kv || !dtype) return true;
  const int x = x_of(resolve(static_cast<KvCacheDType>(*kv), static_cast<DType>(*dtype)));
  const auto layout = value(row, Knob::kv_layout);
  if (!layout) return true;
  const KvLayout kv_layout = static_cast<KvLayout>(*layout);
  if (kv_layout == KvLayout::shuffle && page.value_or(x) % x != 0) return false;
  return (kv_layout != KvLayout::x_packed && kv_layout != KvLayout::shuffle) || *head_dim % x == 0;
}

/// Chunks are computed where every row's keys are before it.
bool CaseSpace::allowed_invariance(const Levels& row) const {
  if (value(row, Knob::invariance) != static_cast<int>(Invariance::chunking)) return true;
  const auto one_of = [&](Knob knob, auto... allowed) {
    const auto v = value(row, knob);
    return !v || ((*v == static_cast<int>(allowed)) || ...);
  };
  return one_of(Knob::type, AttentionType::decoder) && one_of(Knob::mask, MaskLevel::causal) &&
         one_of(Knob::sides, SidesLevel::left, SidesLevel::both) && one_of(Knob::spans, 0) &&
         one_of(Knob::tree, 0) && one_of(Knob::phase, Phase::prefill) &&
         one_of(Knob::batch, BatchLevel::edges, BatchLevel::mixed, BatchLevel::long_, BatchLevel::holes);
}

/// Uniform batches are those whose sequences have as many rows each.
bool CaseSpace::allowed_graph(const Levels& row) const {
  const auto graph = value(row, Knob::graph);
  if (!graph || *graph == static_cast<int>(GraphSupport::never)) return true;
  const auto batch = value(row, Knob::batch), phase = value(row, Knob::phase);
  if (*graph == static_cast<int>(GraphSupport::always)) return true;
  if (value(row, Knob::tree).value_or(0) != 0) return false;
  const auto is = [](const std::optional<int>& value, auto... levels) {
    return !value || ((*value == static_cast<int>(levels)) || ...);
  };
  const bool single = is(phase, Phase::decode) && is(batch, BatchLevel::edges, BatchLevel::long_);
  return single || (*graph == static_cast<int>(GraphSupport::uniform_batch) && is(batch, BatchLevel::verify));
}

AttentionSpec CaseSpace::spec_of(const Levels& row) const {
  const auto at = [&](Knob knob) { return *value(row, knob); };
  AttentionSpec spec;
  spec.dtype = static_cast<DType>(at(Knob::dtype));
  spec.kv_dtype = static_cast<KvCacheDType>(at(Knob::kv_dtype));
  spec.page_size = at(Knob::page_size);
  spec.head_dim = at(Knob::head_dim);
  spec.v_head_dim = at(Knob::v_head_dim) == kSameHeadDim ? spec.head_dim : at(Knob::v_head_dim);
  spec.num_kv_heads = at(Knob::kv_heads);
  spec.num_heads = spec.num_kv_heads * at(Knob::gqa_ratio);
  spec.scale = 0.01f * static_cast<float>(at(Knob::scale)) / std::sqrt(static_cast<float>(spec.head_dim));
  spec.type = static_cast<AttentionType>(at(Knob::type));
  set_layout(spec, static_cast<KvLayout>(at(Knob::kv_layout)));
  spec.fp64_accumulate = at(Knob::fp64) != 0;
  spec.use_mla = backend_.capability.features.has(Feature::mla);
  spec.use_sparse = backend_.capability.features.has(Feature::sparse);
  MaskSpec& mask = spec.mask;
  const auto causality = static_cast<MaskLevel>(at(Knob::mask));
  mask.causal = causality == MaskLevel::causal;
  mask.packed = causality == MaskLevel::packed;
  mask.window_left = at(Knob::window);
  switch (static_cast<SidesLevel>(at(Knob::sides))) {
    case SidesLevel::left: break;
    case SidesLevel::both: mask.window_right = mask.window_left; break;
    case SidesLevel::more_left: mask.window_right = mask.window_left / 3; break;
    case SidesLevel::right: mask.window_right = std::exchange(mask.window_left, -1); break;
  }
  mask.sink_tokens = at(Knob::sink_tokens);
  mask.chunk = at(Knob::chunk);
  mask.spans = at(Knob::spans) != 0;
  mask.tree = at(Knob::tree) != 0;
  const auto score = static_cast<ScoreLevel>(at(Knob::score));
  spec.softcap = score == ScoreLevel::softcap ? 20.0f : score == ScoreLevel::low_softcap ? 3.0f : 0.0f;
  spec.has_alibi = score == ScoreLevel::alibi || score == ScoreLevel::canonical_alibi;
  spec.has_sink = static_cast<SinkLevel>(at(Knob::sink)) != SinkLevel::none;
  spec.lse_includes_sink = static_cast<SinkLevel>(at(Knob::sink)) == SinkLevel::in_lse;
  if (static_cast<BatchLevel>(at(Knob::batch)) == BatchLevel::verify) spec.needs.insert(Feature::verify);
  if (at(Knob::kv_sharing) != 0) spec.needs.insert(Feature::kv_sharing);
  if (at(Knob::head_scales) != 0) spec.needs.insert(Feature::per_head_scales);
  if (backend_.capability.features.has(Feature::lse)) spec.needs.insert(Feature::lse);
  return spec;
}

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
  return rows;
}

Hints CaseSpace::hints() const {
  // Nothing but the causal limit; then what every fast kernel has beside it; then any mask, of cases that are
  // neither large nor far: those cost most, and the last hint leaves enough of them.
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
  // Decodes of many sequences have kernels of their own.
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
  // What any case may have, beside the knobs with weights.
  constexpr Knob kFree[] = {Knob::phase,      Knob::kv_layout, Knob::values,     Knob::page_order,
                            Knob::null_page,  Knob::poison,    Knob::padding,    Knob::shared_pages,
                            Knob::kv_settled, Knob::threads,   Knob::page_lists, Knob::lse,
                            Knob::v_head_dim, Knob::sink};
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
    // V as wide as Q and K where that may be.
    const auto v = static_cast<size_t>(Knob::v_head_dim);
    if (const int drawn = std::exchange(row[v], 0); !allowed(row) || random.chance(10)) row[v] = drawn;
    for (size_t k = 0; k < fixed.size(); ++k)
      if (fixed[k] != kUnset) row[k] = fixed[k];
    if (allowed(row)) rows.push_back(std::move(row));
  }
  return rows;
}

namespace {

constexpr int value_of(auto level) {
  return static_cast<int>(level);
}

}  // namespace

std::vector<Levels> CaseSpace::common_rows(uint64_t seed, int count, const Levels& fixed) const {
  const Weights weights = {
      {Knob::dtype, {value_of(DType::bf16), value_of(DType::f16)}},
      {Knob::kv_dtype,
       {value_of(KvCacheDType::auto_), value_of(KvCacheDType::auto_), value_of(KvCacheDType::fp8_e4m3)}},
      {Knob::page_size, {1, 16, 16, 32, 64, 128}},
      {Knob::head_dim, {64, 96, 128, 128, 192, 256}},
      {Knob::gqa_ratio, {1, 2, 4, 5, 7, 8, 16}},
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
  const Weights weights = {
      {Knob::dtype, {value_of(DType::bf16), value_of(DType::f16), value_of(DType::f32)}},
      {Knob::kv_dtype,
       {value_of(KvCacheDType::auto_), value_of(KvCacheDType::auto_), value_of(KvCacheDType::fp8_e4m3),
        value_of(KvCacheDType::int8_per_token_head)}},
      {Knob::page_size, {16, 16, 64, 128, 544}},
      {Knob::head_dim, {16, 64, 64, 128}},
      {Knob::gqa_ratio, {1, 2, 4}},
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

std::optional<Levels> CaseSpace::fixed_to(const Cell& cell) const {
  struct Column {
    std::string_view id;
    Knob knob;
  };
  static constexpr Column kColumns[] = {{"dtypes", Knob::dtype},
                                        {"kv_dtypes", Knob::kv_dtype},
                                        {"page_sizes", Knob::page_size},
                                        {"head_dims", Knob::head_dim},
                                        {"gqa_ratios", Knob::gqa_ratio},
                                        {"types", Knob::type},
                                        {"phases", Knob::phase},
                                        {"kv_layouts", Knob::kv_layout},
                                        {"kv_sharing", Knob::kv_sharing},
                                        {"fp64_accumulate", Knob::fp64},
                                        {"invariance", Knob::invariance},
                                        {"graph", Knob::graph},
                                        {"per_head_scales", Knob::head_scales},
                                        {"spans", Knob::spans},
                                        {"tree_mask", Knob::tree}};
  // Columns with one value, and a level that asks for it.
  struct Feature {
    std::string_view id;
    Knob knob;
    std::string_view level;
  };
  static constexpr Feature kFeatures[] = {
      {"window", Knob::window, "16"},         {"chunk", Knob::chunk, "33"},
      {"softcap", Knob::score, "soft cap 3"}, {"alibi", Knob::score, "ALiBi"},
      {"sink", Knob::sink, "drawn"},          {"sink_tokens", Knob::sink_tokens, "4"},
      {"packed_mask", Knob::mask, "packed"},  {"verify", Knob::batch, "verify"},
      {"lse", Knob::lse, "also without"}};
  Levels row(levels_.size(), kUnset);
  const auto fix = [&](Knob knob, std::string_view name) {
    const auto& levels = levels_[static_cast<size_t>(knob)];
    const auto at =
        std::find_if(levels.begin(), levels.end(), [&](const Level& l) { return l.name == name; });
    if (at == levels.end()) return false;
    row[static_cast<size_t>(knob)] = static_cast<int>(at - levels.begin());
    return true;
  };
  if (cell.column == "non_causal") {
    if (fix(Knob::mask, "full") && fix(Knob::type, "decoder")) return row;
    return std::nullopt;
  }
  if (cell.column == "v_head_dims") {  // as that of Q and K where that is possible, and else beside any
    if (fix(Knob::head_dim, cell.value) && fix(Knob::v_head_dim, "same")) return row;
    row.assign(row.size(), kUnset);
    if (fix(Knob::v_head_dim, cell.value)) return row;
    return std::nullopt;
  }
  for (const Column& column : kColumns)
    if (column.id == cell.column && fix(column.knob, cell.value)) return row;
  for (const Feature& feature : kFeatures)
    if (feature.id == cell.column && fix(feature.knob, feature.level)) return row;
  return std::nullopt;
}

std::string CaseSpace::describe(const Levels& row) const {
  std::string text;
  for (size_t k = 0; k < row.size(); ++k) {
    if (row[k] <= 0) continue;
    if (!text.empty()) text += ", ";
    text.append(to_string(static_cast<Knob>(k))).append(" ").append(levels_[k][row[k]].name);
  }
  return text.empty() ? "all plain" : text;
}

}  // namespace fovea::conformance
