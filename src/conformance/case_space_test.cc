// The contents of a run's cases: they cross each bound that a kernel may have, and many cases are plain.
#include "conformance/case_space.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "backends/cpu_attn/cpu_attn.h"
#include "conformance/run.h"

namespace fovea::conformance {
namespace {

/// The first array of a run of CPU_ATTN, with the values of its cases.
class Cases : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    rows_ = new std::vector<Levels>(space().rows(16));  // the two arrays of a full run
    for (Levels& row : space().rows(17))
      rows_->push_back(std::move(row));
    for (size_t r = 0; r < rows_->size(); ++r) {
      const Case c = space().make((*rows_)[r], r);
      for (const auto& [name, holds] : facts_of(c))
        counts()[name] += holds;
      fingerprints().insert(c.fingerprint());
    }
  }
  static const CaseSpace& space() {
    static const CaseSpace cases(cpu_attn_info(), {});
    return cases;
  }
  static std::map<std::string, int>& counts() {
    static std::map<std::string, int> seen;
    return seen;
  }
  static std::set<uint64_t>& fingerprints() {
    static std::set<uint64_t> seen;
    return seen;
  }

  static std::vector<std::pair<std::string, bool>> facts_of(const Case& c) {
    const Problem& p = c.problem;
    const AttentionSpec& spec = p.spec;
    const MaskSpec& m = spec.mask;
    const auto some = [&](auto test) { return std::any_of(p.seqs.begin(), p.seqs.end(), test); };
    const auto keys = [&](int n) { return some([n](const Sequence& s) { return s.n_q > 0 && s.n_k > n; }); };
    const bool prefill = p.phase == Phase::prefill;
    // What Hopper's kernels refuse, and what needs another instance.
    const bool refused = m.spans || m.packed || m.tree || spec.has_alibi || spec.scale < 0 ||
                         (m.window_left >= 0 && m.sink_tokens > 0) || has_head_scales(spec);
    const bool plain = !refused && m.causal && m.window_left < 0 && m.chunk == 0 && spec.softcap == 0;
    const AttentionLimits& l = c.layout.declared;
    const int64_t few = 128 / std::max<int64_t>((int64_t{l.max_kv_len} + 1023) / 1024, 1);
    const bool many = int64_t{l.max_seqs} * spec.num_kv_heads > few;
    return {
        {"scale", std::abs(spec.scale * std::sqrt(static_cast<float>(spec.head_dim)) - 1.0f) > 0.1f},
        {"negative scale", spec.scale < 0},
        {"slopes", spec.has_alibi && p.slopes != canonical_slopes(spec.num_heads)},
        {"slopes of the paper", spec.has_alibi && p.slopes == canonical_slopes(spec.num_heads)},
        {"more than 3 KV heads", spec.num_kv_heads > 3},
        {"more than 8 sequences", p.seqs.size() > 8},
        {"more than 100 sequences", p.seqs.size() > 100},
        {"more than 2200 keys", keys(2200)},
        {"a decode of more than 2 splits of 2048", !prefill && keys(4096)},
        {"a prefill of two splits", prefill && keys(16384)},
        {"more than 1000 rows", some([](const Sequence& s) { return s.n_q > 1000 && s.n_k > 0; })},
        {"a window over 100", m.window_left > 100 && keys(m.window_left + 1)},
        {"a right window alone", !m.causal && m.window_left < 0 && m.window_right >= 0},
        {"rows that see over 100 keys after them",
         !m.causal && !m.packed && m.window_right > 100 &&
             some([](const Sequence& s) { return s.n_q > 102 && s.n_k > 102; })},
        {"a window as wide to the right", !m.causal && m.window_left > 0 && m.window_right == m.window_left},
        {"a chunk over 64", m.chunk > 64 && keys(m.chunk)},
        {"a tree over 16", p.tree_size > 16},
        {"a tree of biases", std::any_of(p.tree_bias.begin(), p.tree_bias.end(),
                                         [](float b) { return std::isfinite(b) && b != 0; })},
        {"past KV ready", c.layout.past_kv_ready},
        {"gaps", c.layout.place == KvPlace::gaps},
        {"far pages", c.layout.place == KvPlace::far},
        {"limits of an engine", l.max_seqs >= 256},
        {"plain causal prefill", plain && prefill},
        {"plain causal decode of many sequences", plain && !prefill && many},
        {"plain 16-bit decode of many sequences",
         plain && !prefill && many && spec.dtype != DType::f32 && spec.kv_dtype == KvCacheDType::auto_},
        {"without what Hopper's kernels refuse", !refused},
    };
  }

  static std::vector<Levels>* rows_;
};
std::vector<Levels>* Cases::rows_ = nullptr;

TEST_F(Cases, CrossEveryBound) {
  ASSERT_FALSE(rows_->empty());
  for (const auto& [name, count] : counts())
    EXPECT_GE(count, 4) << name;
}

TEST_F(Cases, ManyArePlain) {
  const int all = static_cast<int>(rows_->size());
  EXPECT_GE(counts()["without what Hopper's kernels refuse"], all / 2) << all;
  EXPECT_GE(counts()["plain causal prefill"], 60);
  EXPECT_GE(counts()["plain causal decode of many sequences"], 40);
  EXPECT_GE(counts()["plain 16-bit decode of many sequences"], 16);
}

TEST_F(Cases, HaveEachLevelOfEachKnob) {
  for (unsigned k = 0; k < static_cast<unsigned>(Knob::count_); ++k) {
    std::map<int, int> seen;
    for (const Levels& row : *rows_)
      ++seen[row[k]];
    for (int level = 0; level < space().num_levels(static_cast<Knob>(k)); ++level)
      EXPECT_GE(seen[level], 2) << to_string(static_cast<Knob>(k)) << " level " << level;
  }
}

TEST_F(Cases, AreAllOthers) {
  EXPECT_EQ(fingerprints().size(), rows_->size());
  const Case c = space().make(rows_->front(), 0);
  EXPECT_TRUE(fingerprints().contains(c.fingerprint()));
  Case other = c;
  other.layout.past_kv_ready = !other.layout.past_kv_ready;
  EXPECT_NE(other.fingerprint(), c.fingerprint());
  other = c;
  other.problem.spec.mask.chunk += 1;
  EXPECT_NE(other.fingerprint(), c.fingerprint());
}

TEST_F(Cases, CommonRowsHaveWhatIsFixed) {
  Levels fixed(space().plain().size(), kUnset);
  fixed[static_cast<size_t>(Knob::tree)] = 1;
  const std::vector<Levels> rows = space().common_rows(3, 20, fixed);
  EXPECT_EQ(rows.size(), 20u);
  for (const Levels& row : rows) {
    EXPECT_EQ(row[static_cast<size_t>(Knob::tree)], 1);
    EXPECT_TRUE(space().allowed(row)) << space().describe(row);
  }
}

}  // namespace
}  // namespace fovea::conformance
