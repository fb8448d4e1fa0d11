#pragma once
// The cases that prove a backend's row: every column that its capability claims is a knob with the claimed
// values as levels, and so is everything else that kernels trip over (lengths, page orders, poison, threads).
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "attention/columns.h"
#include "conformance/batch.h"
#include "conformance/pairwise.h"

namespace fovea::conformance {

/// Those of the first lines are columns; their levels are the claimed values.
enum class Knob : uint8_t {
  dtype,
  kv_dtype,
  page_size,
  head_dim,
  v_head_dim,  ///< that of Q and K, or another one
  gqa_ratio,
  type,
  phase,
  kv_layout,
  kv_sharing,
  fp64,
  head_scales,  ///< of an fp8 cache
  graph,        ///< by which graphs the case is run, too
  invariance,   ///< what the case is run again for, to the same bits
  mask,         ///< causal, full, packed
  window,
  sides,  ///< of the position that the window lies on
  sink_tokens,
  chunk,
  spans,
  tree,
  score,  ///< what happens to scores: nothing, a soft cap, ALiBi
  scale,  ///< that of softmax, times D^0.5
  sink,
  kv_heads,
  batch,  ///< the lengths of the sequences
  values,
  page_lists,
  page_order,
  null_page,
  poison,
  shared_pages,
  padding,
  place,   ///< what lies between pages, heads and slots
  limits,  ///< that are declared
  past_kv_ready,
  threads,
  lse,
  count_,
};
std::string_view to_string(Knob knob);

/// One problem, and how it is run.
struct Case {
  Problem problem;
  Layout layout;
  int threads = 1;
  bool want_lse = true;                  ///< false: run without it, too
  std::optional<Problem> second;         ///< other queries for the same keys and values
  std::optional<Invariance> invariance;  ///< is tested on it
  std::optional<GraphSupport> graph;     ///< likewise

  /// The same for cases that ask the same of a backend, and hardly ever for others: what is computed, how it
  /// lies in memory, and what it is run for.
  uint64_t fingerprint() const;
};

class CaseSpace {
 public:
  /// Of a backend that is built; `device` is the one that it runs on.
  CaseSpace(const BackendInfo& backend, const DeviceInfo& device);

  /// Covering rows. Every row is a case that the backend claims to serve. About half of them have none of the
  /// masks and scales that fast kernels refuse, and a quarter none but the causal one. Those with nothing
  /// fixed begin with large_rows() and common_rows(). `unmet` as of pairwise_rows().
  std::vector<Levels> rows(uint64_t seed, const Levels& fixed = {},
                           std::vector<Levels>* unmet = nullptr) const;
  /// Up to `count` rows as engines have them: common head sizes, one dtype, plain masks or a window.
  std::vector<Levels> common_rows(uint64_t seed, int count, const Levels& fixed = {}) const;
  /// Likewise of few and small heads, so that many keys, rows or sequences cost little.
  std::vector<Levels> large_rows(uint64_t seed, int count, const Levels& fixed = {}) const;
  bool allowed(const Levels& row) const;

  /// The first level of every knob, the plainest.
  Levels plain() const { return Levels(levels_.size(), 0); }
  /// The row with this cell's value and all others free; nullopt when no knob turns it alone.
  std::optional<Levels> fixed_to(const Cell& cell) const;

  /// The row of all cases in `phase`, everything else free; nullopt: the backend has no such phase.
  std::optional<Levels> fixed_to(Phase phase) const;
  /// The levels that `row` has of `knobs`, everything else free.
  Levels only(std::initializer_list<Knob> knobs, const Levels& row) const;
  /// The allowed rows that differ from `row` in `knob` alone; none where `fixed` has a level of it.
  std::vector<Levels> neighbours(const Levels& row, const Levels& fixed, Knob knob) const;
  /// Those of every knob.
  std::vector<Levels> neighbours(const Levels& row, const Levels& fixed) const;
  /// As complete_row() and cover_levels() of conformance/complete_row.h.
  std::optional<Levels> complete(const Levels& partial, const Levels& prefer) const;
  std::vector<Levels> cover(const Levels& fixed, int times) const;
  /// A row as a word, to be given again; nullopt for a text that is no allowed row.
  std::string code(const Levels& row) const;
  std::optional<Levels> parse_code(std::string_view code) const;

  /// The case of `row`, its values and lengths drawn from `seed`.
  Case make(const Levels& row, uint64_t seed) const;
  /// What differs from plain(): "dtype bfloat16, window 16".
  std::string describe(const Levels& row) const;

  int num_levels(Knob knob) const { return static_cast<int>(levels_[static_cast<size_t>(knob)].size()); }

 private:
  static constexpr int kSameHeadDim = 0;  ///< of Knob::v_head_dim: that of Q and K
  static constexpr int kMaxHeads = 128;   ///< query heads of a case

  struct Level {
    std::string name;
    int value = 0;
  };
  friend class CaseDrawer;

  std::vector<int> counts() const;
  void add_columns(const Capability& c);
  void add_masks(const Capability& c);
  void add_memory();
  Hints hints() const;
  /// Of each knob values that are equally likely; those that are no level leave it plain.
  using Weights = std::vector<std::pair<Knob, std::vector<int>>>;
  std::vector<Levels> weighted_rows(uint64_t seed, int count, const Weights& weights,
                                    const Levels& fixed) const;
  void find_combinations();
  bool allowed_combination(const Levels& row) const;
  std::vector<Level>& levels(Knob knob) { return levels_[static_cast<size_t>(knob)]; }
  /// The value of `knob` in `row`; nullopt while it is unset.
  std::optional<int> value(const Levels& row, Knob knob) const;
  bool allowed_masks(const Levels& row) const;
  bool allowed_memory(const Levels& row) const;
  bool allowed_invariance(const Levels& row) const;
  bool allowed_graph(const Levels& row) const;
  /// Everything but what the batch holds.
  AttentionSpec spec_of(const Levels& row) const;

  const BackendInfo& backend_;
  DeviceInfo device_;
  std::vector<std::vector<Level>> levels_;
  /// Of the knobs that backends restrict together, each level or none: whether some row with them may be.
  /// Else that would show when a row is whole, after a long search. Empty = no restrictions.
  std::vector<bool> combinations_;
};

/// Levels of Knob::mask, of Knob::sides, of Knob::score, of Knob::sink, of Knob::page_lists, of Knob::limits
/// and of Knob::batch. A window of W is (W - 1, 0) of a causal mask.
enum class MaskLevel { causal, full, packed };
enum class SidesLevel {
  left,
  both,       ///< (W - 1, W - 1), as models of text encoders have it
  more_left,  ///< (W - 1, (W - 1) / 3)
  right,      ///< (unbounded, W - 1)
};
enum class ScoreLevel { plain, softcap, low_softcap, alibi, canonical_alibi };
enum class SinkLevel { none, drawn, extreme, in_lse };
enum class LimitsLevel {
  exact,   ///< what the step has
  larger,  ///< some more of all
  engine,  ///< 256 sequences of up to 128K keys: kernels for few sequences don't serve them
};
enum class PagesLevel { table, lists, ragged };
enum class BatchLevel {
  edges,      ///< lengths at the edges of pages, windows, chunks and tiles
  mixed,      ///< decodes, then chunks of prompts
  holes,      ///< sequences without rows, and without keys
  long_,      ///< one much longer than the others
  more_rows,  ///< than keys
  many,       ///< 9 to 300 sequences, most of them short
  split,      ///< one whose keys are several splits of every kernel
  rows,       ///< one with more than 1000 query rows
  verify,     ///< 1 + k rows each
};

}  // namespace fovea::conformance
