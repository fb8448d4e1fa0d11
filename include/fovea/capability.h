#pragma once
// What a backend can do, as data. Capability is the single source: validation, selection, help, the matrix in
// the documentation, the JSON export and the conformance tests all read it.
#include <array>
#include <climits>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/dtype.h"

namespace fovea {

enum class Phase : uint8_t { prefill, decode };
enum class AttentionType : uint8_t { decoder, encoder, encoder_only, encoder_decoder };
enum class DeviceKind : uint8_t { cpu, cuda, rocm, ascend, xpu };

std::string_view to_string(Phase phase);
std::string_view to_string(AttentionType type);
std::string_view to_string(DeviceKind kind);

/// A set of small enumerators, usable in constexpr tables.
template <class E>
struct EnumSet {
  uint64_t bits = 0;
  constexpr EnumSet() = default;
  constexpr EnumSet(std::initializer_list<E> items) {
    for (E e : items)
      insert(e);
  }
  constexpr void insert(E e) { bits |= uint64_t{1} << static_cast<unsigned>(e); }
  constexpr bool has(E e) const { return (bits >> static_cast<unsigned>(e)) & 1u; }
  constexpr bool empty() const { return bits == 0; }
  constexpr EnumSet operator|(EnumSet other) const {
    EnumSet both = *this;
    both.bits |= other.bits;
    return both;
  }
  /// The members of this set that are not in `other`.
  constexpr EnumSet without(EnumSet other) const {
    EnumSet rest = *this;
    rest.bits &= ~other.bits;
    return rest;
  }
  bool operator==(const EnumSet&) const = default;
};

/// Positive integers: first, first + step, ..., last, and up to 12 listed values. Usable in constexpr tables.
class IntSet {
 public:
  static constexpr int kMaxListed = 12;
  constexpr IntSet() = default;
  constexpr IntSet(std::initializer_list<int> values) {
    for (int v : values)
      insert(v);
  }
  static constexpr IntSet any() { return range(1, INT_MAX); }
  static constexpr IntSet range(int first, int last, int step = 1) {
    IntSet s;
    s.first_ = first;
    s.last_ = last;
    s.step_ = step;
    return s;
  }
  /// Adds a listed member; at most kMaxListed.
  constexpr void insert(int v) { listed_.at(static_cast<size_t>(count_++)) = v; }
  /// Without upper bound.
  static constexpr IntSet multiples_of(int n) { return range(n, INT_MAX, n); }

  constexpr bool has(int v) const {
    for (int i = 0; i < count_; ++i)
      if (listed_[static_cast<size_t>(i)] == v) return true;
    return v >= first_ && v <= last_ && (v - first_) % step_ == 0;
  }
  constexpr bool empty() const { return count_ == 0 && last_ < first_; }
  constexpr int smallest() const;
  /// The range's first, last (INT_MAX = unbounded) and step; no range when last < first.
  constexpr int first() const { return first_; }
  constexpr int last() const { return last_; }
  constexpr int step() const { return step_; }
  /// The members listed in addition to the range.
  std::vector<int> listed() const { return {listed_.begin(), listed_.begin() + count_}; }
  /// The member nearest to `wanted`, the smaller one on a tie; the set must not be empty.
  int nearest(int wanted) const;
  /// The smallest member >= `at_least`; nullopt when there is none.
  std::optional<int> next(int at_least) const;
  /// "Any", "%16", "32, 64", "16-512 step 8", "none": the notation of the tables in the documentation.
  std::string to_string() const;
  /// The same in words, for messages: "multiples of 8 from 16 to 512".
  std::string describe() const;
  bool operator==(const IntSet&) const = default;

 private:
  int first_ = 1, last_ = 0, step_ = 1;
  std::array<int, kMaxListed> listed_{};
  int count_ = 0;
};

constexpr int IntSet::smallest() const {
  int least = last_ < first_ ? INT_MAX : first_;
  for (int i = 0; i < count_; ++i)
    least = listed_[static_cast<size_t>(i)] < least ? listed_[static_cast<size_t>(i)] : least;
  return least;
}

/// Columns of the matrix with a yes or no value.
enum class Feature : uint8_t {
  window,  // sliding window, either side
  chunk,   // chunked-local
  softcap,
  sink,         // learned sink logits (gpt-oss)
  sink_tokens,  // StreamingLLM: the first keys stay visible
  alibi,
  spans,  // bidirectional multimodal spans in a causal sequence ("MM prefix")
  packed_mask,
  verify,      // speculative decoding with one chain of drafts (top-k = 1): a few query rows a sequence
  tree_mask,   // speculative decoding with a tree of drafts (top-k > 1)
  non_causal,  // for a decoder
  mla,
  sparse,
  chunked_prefix,  // MLA prefill in chunks of the prefix, merged by LSE
  dcp,             // decode context parallelism
  non_causal_dcp,  // MLA, both
  pcp,             // prefill context parallelism
  lse,             // returns LSE when asked
  native_page,     // the kernel reads pages of more than one token, rather than a view of single slots
  kv_x_packed,     // reads KvLayout::x_packed
  kv_shuffle,      // reads KvLayout::shuffle
  kv_sharing,      // a layer reads the keys and values that another layer wrote
  kv_connector,    // its KV pages can be moved to and from other processes
  per_head_scales,
  output_quant,           // writes its output quantised
  batch_invariance,       // requested for a run; claimed by Capability::invariance
  adaptive_verification,  // device and host may differ on query lengths
  fp64_accumulate,
  count_,
};
using FeatureSet = EnumSet<Feature>;

/// What a sequence's bits do not depend on; conformance proves each claimed level with a bitwise test.
/// `prefill_chunks`: how its rows are divided into prefill steps, with AttentionLimits::split_prefill off.
/// `chunking`: how its rows are divided into steps, those of one row that decode included, so that prefill
/// and decode of a backend that claims it give a position the same bits.
enum class Invariance : uint8_t { run, batch, page_size, prefill_chunks, chunking, threads, count_ };

enum class GraphSupport : uint8_t { never, uniform_single_token_decode, uniform_batch, always };

std::string_view to_string(Feature feature);
std::string_view to_string(Invariance level);
/// vLLM's names: "NEVER", "UNIFORM_SINGLE_TOKEN_DECODE", "UNIFORM_BATCH", "ALWAYS".
std::string_view to_string(GraphSupport support);

struct Capability {
  EnumSet<DType> dtypes = {};
  EnumSet<KvCacheDType> kv_dtypes = {};
  IntSet page_sizes = {};
  int preferred_page_size = 16;
  IntSet head_dims = {};              ///< of Q and K
  IntSet v_head_dims = {};            ///< of V
  IntSet gqa_ratios = IntSet::any();  ///< query heads per kv head
  EnumSet<AttentionType> types = {};
  FeatureSet features = {};
  /// Columns that this row's source document does not mention: shown as "-", and reported where one is
  /// required. Empty for a backend that is built.
  FeatureSet unstated = {};
  EnumSet<Phase> phases = {};
  EnumSet<Invariance> invariance = {};
  GraphSupport graph = GraphSupport::never;
  DeviceKind device = DeviceKind::cpu;
  int min_compute_capability = 0;  ///< 10 * major + minor; 0 = any, and on devices other than CUDA
  int max_compute_capability = 0;  ///< 0 = no upper bound

  bool operator==(const Capability&) const = default;
};

}  // namespace fovea
