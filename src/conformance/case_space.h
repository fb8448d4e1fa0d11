#pragma once
// The cases that prove a backend's row. Every column of its capability is a knob with the claimed values as
// levels; other knobs are inputs on which kernels tend to fail (lengths, page orders, poison, threads).
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "attention/columns.h"
#include "conformance/batch.h"
#include "conformance/pairwise.h"
#include "fovea/backend_info.h"

namespace fovea::conformance {

/// The knobs of the first lines are columns; their levels are the claimed values.
enum class Knob : uint8_t {
  dtype,
  kv_dtype,
  page_size,
  head_dim,
  v_head_dim,  ///< the head size of Q and K, or another one
  gqa_ratio,
  type,
  phase,
  kv_layout,
  kv_sharing,
  fp64,
  head_scales,  ///< for an fp8 cache
  graph,        ///< graphs with which the case is also run
  invariance,   ///< the level for which the case is repeated and compared bitwise
  mask,         ///< causal, full, packed
  window,
  sides,  ///< sides of the position that the window covers
  sink_tokens,
  chunk,
  spans,
  tree,
  score,  ///< change of scores: none, a soft cap, ALiBi
  scale,  ///< softmax scale times D^0.5
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
  place,   ///< gaps between pages, heads and slots
  limits,  ///< declared limits
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
  bool want_lse = true;                  ///< false: also run without LSE
  std::optional<Problem> second;         ///< other queries for the same keys and values
  std::optional<Invariance> invariance;  ///< the level to test
  std::optional<GraphSupport> graph;     ///< likewise

  /// A hash of the computation, its memory layout and the tests: equal for cases that require the same of a
  /// backend, and with high probability different for others.
  uint64_t fingerprint() const;
};

class CaseSpace {
 public:
  /// `backend` must be built; `device` is the one that it runs on.
  CaseSpace(const BackendInfo& backend, const DeviceInfo& device);

  /// Covering rows. Every row is a case that the backend claims to serve. About half of them have none of the
  /// masks and scales that fast kernels refuse, and a quarter only the causal mask. If nothing is fixed, they
  /// begin with large_rows() and common_rows(); rows of prefill_chunks end with chunk_rows(). `unmet` as in
  /// pairwise_rows().
  std::vector<Levels> rows(uint64_t seed, const Levels& fixed = {},
                           std::vector<Levels>* unmet = nullptr) const;
  /// Up to `count` rows common in engines: common head sizes, one dtype, plain masks or a window.
  std::vector<Levels> common_rows(uint64_t seed, int count, const Levels& fixed = {}) const;
  /// Likewise with few and small heads, so that many keys, rows or sequences cost little.
  std::vector<Levels> large_rows(uint64_t seed, int count, const Levels& fixed = {}) const;
  /// Likewise for Invariance::prefill_chunks on a GPU: prompts whose chunks see keys of several splits. None
  /// where `fixed` asks for something else.
  std::vector<Levels> chunk_rows(uint64_t seed, int count, const Levels& fixed = {}) const;
  bool allowed(const Levels& row) const;

  /// The first level of every knob, the plainest.
  Levels plain() const { return Levels(levels_.size(), 0); }
  /// The row with this cell's value and all others free; nullopt when no knob sets it by itself.
  std::optional<Levels> fixed_to(const Cell& cell) const;

  /// The row with Knob::phase set and everything else free; nullopt: the backend has no such phase.
  std::optional<Levels> fixed_to(Phase phase) const;
  /// The levels of `knobs` in `row`, everything else free.
  Levels only(std::initializer_list<Knob> knobs, const Levels& row) const;
  /// The allowed rows that differ from `row` only in `knob`; none if `fixed` sets it.
  std::vector<Levels> neighbours(const Levels& row, const Levels& fixed, Knob knob) const;
  /// The neighbours of every knob.
  std::vector<Levels> neighbours(const Levels& row, const Levels& fixed) const;
  /// As complete_row() and cover_levels() of conformance/complete_row.h.
  std::optional<Levels> complete(const Levels& partial, const Levels& prefer) const;
  std::vector<Levels> cover(const Levels& fixed, int times) const;
  /// A row as a short text; parse_code() is the inverse, nullopt for a text that is not an allowed row.
  std::string code(const Levels& row) const;
  std::optional<Levels> parse_code(std::string_view code) const;

  /// The case of `row`, its values and lengths drawn from `seed`.
  Case make(const Levels& row, uint64_t seed) const;
  /// The differences from plain(): "dtype bfloat16, window 16".
  std::string describe(const Levels& row) const;

  int num_levels(Knob knob) const { return static_cast<int>(levels_[static_cast<size_t>(knob)].size()); }

 private:
  static constexpr int kSameHeadDim = 0;  ///< value of Knob::v_head_dim: the head size of Q and K
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
  /// Equally likely values of each knob; values that are not levels leave it plain.
  using Weights = std::vector<std::pair<Knob, std::vector<int>>>;
  std::vector<Levels> weighted_rows(uint64_t seed, int count, const Weights& weights,
                                    const Levels& fixed) const;
  void find_combinations();
  bool allowed_combination(const Levels& row) const;
  std::vector<Level>& levels(Knob knob) { return levels_[static_cast<size_t>(knob)]; }
  /// The value of `knob` in `row`; nullopt while it is unset.
  std::optional<int> value(const Levels& row, Knob knob) const {
    const auto k = static_cast<size_t>(knob);
    if (row[k] == kUnset) return std::nullopt;
    return levels_[k][static_cast<size_t>(row[k])].value;
  }
  bool allowed_masks(const Levels& row) const;
  bool allowed_memory(const Levels& row) const;
  bool allowed_invariance(const Levels& row) const;
  bool allowed_graph(const Levels& row) const;
  /// Everything except the contents of the batch.
  AttentionSpec spec_of(const Levels& row) const;

  const BackendInfo& backend_;
  DeviceInfo device_;
  std::vector<std::vector<Level>> levels_;
  /// For the knobs that backends restrict jointly, each set to a level or unset: whether some row with these
  /// levels is allowed. Without it, only a complete row would show that, after a long search. Empty = no
  /// restrictions.
  std::vector<bool> combinations_;
};

/// Levels of Knob::mask, Knob::sides, Knob::score, Knob::sink, Knob::page_lists, Knob::limits and
/// Knob::batch. A window of W is (W - 1, 0) for a causal mask.
enum class MaskLevel { causal, full, packed };
enum class SidesLevel {
  left,
  both,       ///< (W - 1, W - 1), as in text encoders
  more_left,  ///< (W - 1, (W - 1) / 3)
  right,      ///< (unbounded, W - 1)
};
enum class ScoreLevel { plain, softcap, low_softcap, alibi, canonical_alibi };
enum class SinkLevel { none, drawn, extreme, in_lse };
enum class LimitsLevel {
  exact,   ///< those of the step
  larger,  ///< somewhat larger
  engine,  ///< 256 sequences of up to 128K keys: excludes kernels for few sequences
};
enum class PagesLevel { table, lists, ragged };
enum class BatchLevel {
  edges,      ///< lengths at the edges of pages, windows, chunks and tiles
  mixed,      ///< decodes, then chunks of prompts
  holes,      ///< some sequences without rows, or without keys
  long_,      ///< one sequence much longer than the others
  more_rows,  ///< more rows than keys
  many,       ///< 9 to 300 sequences, most of them short
  split,      ///< a sequence whose keys span several splits of every kernel
  rows,       ///< a sequence with more than 1000 query rows
  verify,     ///< 1 + k rows each
};

}  // namespace fovea::conformance
