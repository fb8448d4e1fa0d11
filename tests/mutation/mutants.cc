#include "mutants.h"

#include <algorithm>
#include <cmath>

namespace fovea::conformance {
namespace {

/// Writes no output where `test` holds.
template <class Test>
std::function<void(Mutant&)> silent_where(Test test) {
  return [test](Mutant& m) { m.skips = test; };
}

template <class Change>
std::function<void(Mutant&)> spec(Change change) {
  return [change](Mutant& m) { m.spec = change; };
}

template <class Change>
std::function<void(Mutant&)> arguments(Change change) {
  return [change](Mutant& m) { m.before = change; };
}

/// Defects in the code around kernels; they apply to any backend.
void add_wrappers(std::vector<Defect>& all) {
  const auto wrap = [&](std::string_view name, std::string_view breaks, std::function<void(Mutant&)> around,
                        bool reads_arrays = false) {
    all.push_back({name, breaks, std::move(around), reads_arrays});
  };
  wrap("scale-of-the-head", "scores are scaled by 1 / sqrt(D), ignoring the model's scale",
       spec([](AttentionSpec& s) { s.scale = 1.0f / std::sqrt(static_cast<float>(s.head_dim)); }));
  wrap("few-kv-heads", "nothing is written for more than 3 KV heads",
       silent_where([](const AttentionSpec& s, const BatchMeta&) { return s.num_kv_heads > 3; }));
  wrap("few-keys", "nothing is written for a step with more than 2200 keys of a sequence",
       silent_where([](const AttentionSpec&, const BatchMeta& b) {
         return std::ranges::any_of(b.kv_lens, [](int32_t keys) { return keys > 2200; });
       }),
       true);
  wrap("few-sequences", "nothing is written for more than 8 sequences",
       silent_where([](const AttentionSpec&, const BatchMeta& b) { return b.num_seqs() > 8; }));
  wrap("small-windows", "nothing is written for windows of more than 100 keys",
       silent_where([](const AttentionSpec& s, const BatchMeta&) { return s.mask.window_left >= 100; }));
  wrap("small-chunks", "nothing is written for chunks of more than 64 keys",
       silent_where([](const AttentionSpec& s, const BatchMeta&) { return s.mask.chunk > 64; }));
  wrap("small-trees", "nothing is written for trees of more than 16 nodes",
       silent_where(
           [](const AttentionSpec& s, const BatchMeta& b) { return s.mask.tree && b.tree_size > 16; }));
  wrap("few-rows", "nothing is written for a step with more than 1000 rows of a sequence",
       silent_where([](const AttentionSpec&, const BatchMeta& b) {
         for (size_t i = 1; i < b.q_offsets.size(); ++i)
           if (b.q_offsets[i] - b.q_offsets[i - 1] > 1000) return true;
         return false;
       }),
       true);
  wrap("softcap-ignored", "scores are not capped", spec([](AttentionSpec& s) { s.softcap = 0; }));
  wrap("window-one-wider", "windows of the backend alone are one key wider",
       spec([](AttentionSpec& s) { s.mask.window_left += s.mask.window_left >= 0 ? 1 : 0; }));
  all.back().sees_more = true;
  wrap("sink-tokens-fewer", "one sink token fewer is seen before a window",
       spec([](AttentionSpec& s) { s.mask.sink_tokens = std::max(0, s.mask.sink_tokens - 1); }));
  wrap("sink-in-lse", "the LSE has the sink where it must not, and lacks it where it must",
       spec([](AttentionSpec& s) { s.lse_includes_sink = s.has_sink && !s.lse_includes_sink; }));
  wrap("layer-k-scale-ignored", "the K scale of a layer's cache is taken to be 1",
       arguments([](AttentionArgs& a) { a.kv.k_scale = 1; }));
  wrap("layer-v-scale-ignored", "the V scale of a layer's cache is taken to be 1",
       arguments([](AttentionArgs& a) { a.kv.v_scale = 1; }));
  wrap("prefill-split", "prefill splits the keys of few rows although the limits forbid it",
       [](Mutant& m) { m.declared = [](AttentionLimits& l) { l.split_prefill = true; }; });
  all.back().families = {"sm80", "sm90", "portable"};
  wrap("token-scales-of-v", "keys have the scales of the values",
       arguments([](AttentionArgs& a) { a.kv.k_scales = a.kv.v_scales; }));
}

/// Defects inside kernels, and in code that kernels share with the reference.
void add_hooks(std::vector<Defect>& all) {
  const auto hook = [&](std::string_view name, std::string_view breaks, Mutation inside,
                        std::vector<std::string_view> families) {
    Defect d{name, breaks};
    d.inside = inside;
    d.families = std::move(families);
    all.push_back(std::move(d));
  };
  using enum Mutation;
  hook("window-wider", "every window of the shared visibility.h is one key wider", window_wider, {});
  all.back().shared = all.back().sees_more = true;
  hook("chunk-shifted", "every border of chunks of the shared visibility.h is one key early", chunk_shifted,
       {});
  all.back().shared = all.back().sees_more = true;
  const std::vector<std::string_view> every = {"cpu", "sm80", "sm90", "portable", "simt"};
  const std::vector<std::string_view> gpu = {"sm80", "sm90", "portable", "simt"};
  hook("slopes-of-heads", "ALiBi slopes are 2^(-8 (h + 1) / Hq), not the caller's", slopes_of_heads,
       {"cpu", "sm80", "portable", "simt"});
  hook("merge-unscaled", "splits are merged without bringing them to one maximum", merge_unscaled,
       {"cpu", "sm80", "sm90", "portable"});
  hook("split-twice", "the last split is merged twice", split_twice, {"cpu", "sm80", "sm90", "portable"});
  hook("split-lost", "the last split is not merged", split_lost, {"cpu", "sm80", "sm90", "portable"});
  hook("fused-combine-unscaled",
       "splits are not brought to one maximum where decode kernels combine them themselves",
       fused_combine_unscaled, {"sm80", "sm90"});
  hook("fused-combine-twice", "the last split is merged twice there", fused_combine_twice, {"sm80", "sm90"});
  hook("fused-combine-lost", "the last split is not merged there", fused_combine_lost, {"sm80", "sm90"});
  hook("group-lost", "the keys of one group of warps are left out of a decode kernel's sum", group_lost,
       {"sm80", "sm90"});
  hook("borders-by-work", "splits begin at other keys when the work is shared by threads", borders_by_work,
       {"cpu"});
  hook("offsets-of-32-bits", "offsets in the cache are taken to 32 bits", offsets_of_32_bits, every);
  hook("prefill-offsets", "they are in prefill kernels", prefill_offsets, {"sm80", "sm90"});
  hook("softcap-first", "the soft cap is applied before the scale", softcap_first, {"cpu"});
  hook("heads-interleaved", "query head h reads KV head h % Hkv", heads_interleaved, {"cpu"});
  hook("sink-twice", "a sink is counted twice", sink_twice, {"cpu", "sm80", "sm90", "portable"});
  hook("prefill-sum", "prefill divides a row by 1.05 times the sum of its weights", prefill_sum,
       {"sm80", "sm90"});
  hook("instance-missing", "one instance is not in the table of kernels", instance_missing, every);
  hook("prefill-instance-missing", "one prefill instance is not in the table of kernels",
       prefill_instance_missing, {"sm80", "sm90", "portable"});
  hook("last-page-lost", "the keys of a last page that is not full are not seen", last_page_lost, {"cpu"});
  hook("last-block-lost", "the last of several blocks of keys is not planned", last_block_lost, gpu);
  hook("top-left", "the causal mask begins at the first key, not before the last", top_left, {"cpu"});
}

}  // namespace

const std::vector<Defect>& defects() {
  static const std::vector<Defect> all = [] {
    std::vector<Defect> out;
    add_wrappers(out);
    add_hooks(out);
    return out;
  }();
  return all;
}

bool concerns(const Defect& defect, const BackendInfo& info) {
  if (!defect.families.empty() || (defect.inside != Mutation::none && !defect.shared)) {
    const auto has = [&](std::string_view family) { return std::ranges::count(defect.families, family) > 0; };
    const bool cpu = info.capability.device == DeviceKind::cpu;
    if (cpu ? !has("cpu") : std::ranges::none_of(info.families, has)) return false;
  }
  return !defect.reads_arrays || info.capability.device == DeviceKind::cpu;
}

}  // namespace fovea::conformance
