#include "conformance/uses.h"

#include "conformance/textbook_mask.h"

namespace fovea::conformance {
namespace {

/// Which keys the rows of a problem see.
class Sight {
 public:
  explicit Sight(const Problem& problem) : problem_(problem) {}

  bool any_key() const {
    return any(problem_.spec.mask, [](bool sees, bool) { return sees; });
  }
  /// Whether some row sees another set of keys under `other`.
  bool differs(const MaskSpec& other) const {
    return any(other, [](bool sees, bool would_see) { return sees != would_see; });
  }

 private:
  template <class Test>
  bool any(const MaskSpec& other, Test test) const {
    for (const Sequence& s : problem_.seqs)
      for (int i = 0; i < s.n_q; ++i)
        for (int j = 0; j < s.n_k; ++j)
          if (test(textbook_sees(problem_.spec.mask, problem_, s, i, j),
                   textbook_sees(other, problem_, s, i, j)))
            return true;
    return false;
  }

  const Problem& problem_;
};

/// Whether the textbook result of `without`, which lacks one feature, is judged wrong.
bool is_wrong(const Case& c, const Problem& without, const Output& want, const Output& textbook) {
  return !judge(c.problem, naive(without), want, textbook).empty();
}

FeatureSet masks_that_count(const Problem& problem, const Sight& sight) {
  const MaskSpec& mask = problem.spec.mask;
  FeatureSet out;
  const auto count = [&](bool on, Feature feature, auto drop) {
    if (!on) return;
    MaskSpec other = mask;
    drop(other);
    if (sight.differs(other)) out.insert(feature);
  };
  count(mask.window_left >= 0 || mask.window_right >= 0, Feature::window,
        [](MaskSpec& m) { m.window_left = m.window_right = -1; });
  count(mask.sink_tokens > 0, Feature::sink_tokens, [](MaskSpec& m) { m.sink_tokens = 0; });
  count(mask.chunk > 0, Feature::chunk, [](MaskSpec& m) { m.chunk = 0; });
  count(mask.spans, Feature::spans, [](MaskSpec& m) { m.spans = false; });
  count(mask.packed, Feature::packed_mask, [](MaskSpec& m) { m.packed = false; });
  count(mask.tree, Feature::tree_mask, [](MaskSpec& m) { m.tree = false; });
  count(!mask.causal && !mask.packed && problem.spec.type == AttentionType::decoder, Feature::non_causal,
        [](MaskSpec& m) { m.causal = true; });
  return out;
}

}  // namespace

Uses uses_of(const Case& c, const Output& want, const Output& textbook) {
  const AttentionSpec& spec = c.problem.spec;
  Uses uses;
  const Sight sight(c.problem);
  uses.any_key = sight.any_key();
  if (!uses.any_key) return uses;
  uses.features = masks_that_count(c.problem, sight);
  const auto count = [&](bool on, Feature feature, auto drop) {
    if (!on) return;
    Problem without = c.problem;
    drop(without);
    if (is_wrong(c, without, want, textbook)) uses.features.insert(feature);
  };
  count(spec.softcap > 0, Feature::softcap, [](Problem& p) { p.spec.softcap = 0; });
  count(spec.has_alibi, Feature::alibi, [](Problem& p) { p.spec.has_alibi = false; });
  count(spec.has_sink, Feature::sink, [](Problem& p) { p.spec.has_sink = p.spec.lse_includes_sink = false; });
  count(spec.fp64_accumulate, Feature::fp64_accumulate, [](Problem& p) { p.spec.fp64_accumulate = false; });
  count(spec.use_sparse, Feature::sparse, [](Problem& p) { p.spec.use_sparse = false; });
  const auto use = [&](bool holds, Feature feature) {
    if (holds) uses.features.insert(feature);
  };
  use(spec.needs.has(Feature::verify), Feature::verify);
  use(has_head_scales(spec), Feature::per_head_scales);
  use(c.second.has_value(), Feature::kv_sharing);
  use(true, Feature::lse);
  use(spec.use_mla, Feature::mla);
  int with_rows = 0;
  for (const Sequence& s : c.problem.seqs) {
    with_rows += s.n_q > 0;
    use(spec.page_size > 1 && s.n_q > 0 && s.n_k > spec.page_size, Feature::native_page);
    uses.chunking |= s.n_q > 1 && s.n_q <= s.n_k;
  }
  uses.batch = with_rows > 1;
  return uses;
}

namespace {

bool proves_invariance(const Case& c, const Uses& uses, const std::string& level) {
  if (!c.invariance || to_string(*c.invariance) != level) return false;
  if (*c.invariance == Invariance::batch) return uses.batch;
  const bool chunks = *c.invariance == Invariance::chunking || *c.invariance == Invariance::prefill_chunks;
  return !chunks || uses.chunking;
}

std::string cc_text(int compute_capability) {
  return std::to_string(compute_capability / 10) + "." + std::to_string(compute_capability % 10);
}

}  // namespace

bool proves(const Case& c, const Uses& uses, const Cell& cell, const DeviceInfo& device) {
  if (!uses.any_key) return false;
  const AttentionSpec& spec = c.problem.spec;
  const std::string& v = cell.value;
  if (cell.column == "dtypes") return to_string(spec.dtype) == v;
  if (cell.column == "kv_dtypes") return to_string(spec.kv_dtype) == v;
  if (cell.column == "page_sizes") return std::to_string(spec.page_size) == v;
  if (cell.column == "head_dims") return std::to_string(spec.head_dim) == v;
  if (cell.column == "v_head_dims") return std::to_string(spec.v_head_dim) == v;
  if (cell.column == "gqa_ratios") return std::to_string(spec.num_heads / spec.num_kv_heads) == v;
  if (cell.column == "phases") return to_string(c.problem.phase) == v;
  if (cell.column == "types") return to_string(spec.type) == v;
  if (cell.column == "kv_layouts") return to_string(c.layout.kv) == v;
  if (cell.column == "graph") return c.graph && to_string(*c.graph) == v;
  if (cell.column == "invariance") return proves_invariance(c, uses, v);
  if (cell.column == "device") return to_string(device.kind) == v;
  if (cell.column == "compute_capability") return cc_text(device.compute_capability) == v;
  for (unsigned i = 0; i < static_cast<unsigned>(Feature::count_); ++i)
    if (const auto f = static_cast<Feature>(i); to_string(f) == cell.column) return uses.features.has(f);
  return false;
}

bool can_be_proven(const Cell& cell, const DeviceInfo& device) {
  if (cell.column == "device") return to_string(device.kind) == cell.value;
  if (cell.column == "compute_capability") return cc_text(device.compute_capability) == cell.value;
  return true;
}

}  // namespace fovea::conformance
