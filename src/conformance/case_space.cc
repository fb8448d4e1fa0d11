// Which rows are allowed, and the spec and the cells of a row.
#include "conformance/case_space.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "attention/kv_view.h"
#include "fovea/attention.h"
#include "fovea/backend_info.h"

namespace fovea::conformance {
namespace {

constexpr std::string_view kNames[] = {
    "dtype",         "KV dtype",  "page size",    "head size",    "V head size", "GQA ratio", "type",
    "phase",         "KV layout", "KV sharing",   "fp64",         "head scales", "graph",     "invariance",
    "mask",          "window",    "window sides", "sink tokens",  "chunk",       "spans",     "tree",
    "score",         "scale",     "sink",         "KV heads",     "batch",       "values",    "page lists",
    "page order",    "null page", "poison",       "shared pages", "padding",     "KV place",  "limits",
    "past KV ready", "threads",   "LSE"};
static_assert(std::size(kNames) == static_cast<size_t>(Knob::count_));

/// Elements of one page of K: bounds the memory that a case fills with NaN.
constexpr int64_t kMaxPageElements = int64_t{1} << 21;

/// Keys that rows of sparse attention list, not whole tiles; with the long cases, more than one split.
constexpr int kListed = 70, kManyListed = 2100;

/// The knobs of CaseSpace::combinations_.
constexpr Knob kCombined[] = {Knob::dtype, Knob::kv_dtype, Knob::head_dim, Knob::v_head_dim};

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
  if (found.front()) combinations_ = std::move(found);  // else the plain row is refused for another reason
}

bool CaseSpace::allowed_combination(const Levels& row) const {
  if (combinations_.empty()) return true;
  size_t at = 0;
  for (const Knob knob : kCombined)
    at = at * (static_cast<size_t>(num_levels(knob)) + 1) +
         static_cast<size_t>(row[static_cast<size_t>(knob)] + 1);
  return combinations_[at];
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
  // `test` of two knobs; true if one of them is unset.
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
         // Encoders don't decode; cross attention of a decoder does.
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
         // A causal mask has no right side; a right bound given by models must have no effect.
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
  // "same" needs a head size that V may have; other levels must differ from it.
  if (head_dim && v_head_dim) {
    if (*v_head_dim == *head_dim) return false;
    // V is a part of MLA's records.
    if (*v_head_dim > *head_dim && backend_.capability.features.has(Feature::mla)) return false;
    if (*v_head_dim == kSameHeadDim && !backend_.capability.v_head_dims.has(*head_dim)) return false;
  }
  // On a GPU each run of a case beyond 2^31 poisons gigabytes: such cases are not repeated.
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

/// Chunks need masks in which a row sees only itself and earlier keys.
bool CaseSpace::allowed_invariance(const Levels& row) const {
  const auto level = value(row, Knob::invariance);
  if (level != static_cast<int>(Invariance::chunking) &&
      level != static_cast<int>(Invariance::prefill_chunks))
    return true;
  const auto one_of = [&](Knob knob, auto... allowed) {
    const auto v = value(row, knob);
    return !v || ((*v == static_cast<int>(allowed)) || ...);
  };
  // GPU kernels that split the keys of a chunk do so every 512 to 16384 keys.
  const bool splits =
      device_.kind == DeviceKind::cuda && level == static_cast<int>(Invariance::prefill_chunks);
  return one_of(Knob::type, AttentionType::decoder) && one_of(Knob::mask, MaskLevel::causal) &&
         one_of(Knob::sides, SidesLevel::left, SidesLevel::both) && one_of(Knob::spans, 0) &&
         one_of(Knob::tree, 0) && one_of(Knob::phase, Phase::prefill) &&
         (one_of(Knob::batch, BatchLevel::edges, BatchLevel::mixed, BatchLevel::long_, BatchLevel::holes) ||
          (splits && one_of(Knob::batch, BatchLevel::split)));
}

/// Uniform batches are those whose sequences all have the same number of rows.
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
  if (spec.use_sparse) {
    const auto batch = static_cast<BatchLevel>(at(Knob::batch));
    const bool many = batch == BatchLevel::long_ || batch == BatchLevel::split;
    spec.sparse_topk = many ? kManyListed : kListed;
  }
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
  // Columns with one value, and a level that requests it.
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
  if (cell.column == "v_head_dims") {  // equal to that of Q and K where possible, else with any
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
