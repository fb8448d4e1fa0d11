#pragma once
// The conformance library: attention problems as plain fp32 arrays, laid out in paged memory full of traps,
// run through any backend, and judged against TORCH_NATIVE in fp64.
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/aligned.h"
#include "base/thread_pool.h"
#include "fovea/attention_backend.h"

namespace fovea::test {

/// Deterministic on every platform (std distributions are not).
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t bits();
  /// In [0, n), n >= 1.
  int below(int n) { return static_cast<int>(bits() % static_cast<uint64_t>(n)); }
  bool chance(int percent) { return below(100) < percent; }
  /// In [0, 1).
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  float normal();  ///< about N(0, 1), within 3.5
  template <class T>
  const T& pick(const std::vector<T>& from) {
    return from[bits() % from.size()];
  }

 private:
  uint64_t state_;
};

/// One sequence; values are already rounded to the dtypes of the spec.
struct Sequence {
  int n_q = 0, n_k = 0;
  std::vector<float> q;  ///< [n_q, Hq, D]
  std::vector<float> k;  ///< [n_k, Hkv, D]
  std::vector<float> v;  ///< [n_k, Hkv, Dv]
  /// [n_k, Hkv], of a cache with a scale for each token and head: k and v are integers times them.
  std::vector<float> k_scales, v_scales;
  std::vector<Span> spans;
  std::vector<uint8_t> packed;  ///< bit i * n_k + j
};

struct Problem {
  AttentionSpec spec;
  std::vector<Sequence> seqs;
  std::vector<float> sinks, slopes;  ///< [Hq]
  std::vector<float> tree_bias;      ///< [tree_size, tree_size]
  int tree_size = 0;
  Phase phase = Phase::prefill;
  std::string describe() const;
};

/// The dtype that the cache of `spec` stores.
KvCacheDType kv_dtype_of(const AttentionSpec& spec);

/// The scales of an fp8 cache, no powers of two; 1 for the others.
float k_scale_of(const AttentionSpec& spec);
float v_scale_of(const AttentionSpec& spec);

/// Rounds to `dtype` and back.
float round_to(DType dtype, float value);

/// How values are drawn.
struct Values {
  float qk_gain = 1.0f;  ///< scores spread like its square; 0 = all scores equal
  bool coded_v = false;  ///< V tells its position: (j + d + head) mod 7 - 3
};

/// A sequence with values of `seed`, whatever else the problem holds.
Sequence make_sequence(const AttentionSpec& spec, int n_q, int n_k, uint64_t seed, Values values = {});

/// A problem within what `capability` claims, drawn from `seed`. `page_size` of its spec is set.
Problem random_problem(uint64_t seed, const Capability& capability);

/// Rows [first, last) of sequence `s` alone, with the keys that a step computing them would have.
/// For masks that look only backwards.
Problem chunk_of(const Problem& problem, int s, int first, int last);
/// Sequence `s` alone.
Problem alone(const Problem& problem, int s);

/// How a problem lies in memory.
struct Layout {
  uint64_t shuffle = 1;          ///< seed of the page order
  KvLayout kv = KvLayout::hnd;   ///< of the pages
  bool page_lists = false;       ///< kv_indptr and kv_indices instead of the page table
  int row_padding = 0;           ///< elements between rows of Q and of O
  bool poison_invisible = true;  ///< NaN in keys that no row sees; garbage ids for pages without others
};

/// A problem laid out in memory: NaN in every slot that must not be read, garbage page ids past the end.
class Batch {
 public:
  Batch(const Problem& problem, const Layout& layout);
  const BatchMeta& meta() const { return meta_; }
  AttentionLimits limits() const;
  /// Inputs filled in; outputs not.
  AttentionArgs args() const { return args_; }

 private:
  void lay_out_queries(const Problem& problem, const Layout& layout);
  void lay_out_cache(const Problem& problem, const Layout& layout);
  void lay_out_masks(const Problem& problem);

  BatchMeta meta_;
  AttentionArgs args_;
  std::vector<int32_t> q_offsets_, kv_lens_, page_table_, kv_indptr_, kv_indices_, span_offsets_;
  std::vector<Span> spans_;
  std::vector<uint8_t> packed_;
  std::vector<int64_t> packed_offsets_;
  std::vector<float> tree_bias_, sinks_, slopes_, k_scales_, v_scales_;
  AlignedArray<std::byte> q_, k_, v_;
};

/// What a backend wrote.
struct Output {
  std::string error;       ///< why there is none, or which guard was overwritten
  std::vector<float> o;    ///< [Tq, Hq, Dv] widened
  std::vector<float> lse;  ///< [Tq, Hq]
  // Of naive() only: how far rounding scores to fp32 may move O [Tq, Hq, Dv] and the LSE [Tq, Hq].
  std::vector<float> o_noise, lse_noise;
  bool operator==(const Output& other) const;  ///< bit for bit
};

/// Plans and runs one layer. Outputs, workspace and what surrounds them are poisoned before and checked
/// after.
Output run(AttentionBackend& backend, const Problem& problem, const Layout& layout, ThreadPool& pool);

/// TORCH_NATIVE in fp64 on the same (rounded) inputs, its output not rounded to spec.dtype.
Output reference(const Problem& problem, ThreadPool& pool);

/// The textbook in fp32 with P and O rounded to spec.dtype: how large an honest error is.
Output naive(const Problem& problem);

/// Empty when `got` is as near to the reference as it must be: max error <= 2x the naive one (3x with a soft
/// cap) + 2 ulp, mean error <= 1.5x, LSE within 1e-5 + 2e-6 |LSE|, empty rows exact. All of them also allow
/// for the rounding of fp32 scores, which near-equal large scores turn into an error of O (see ScoreNoise).
std::string judge(const Problem& problem, const Output& got, const Output& reference, const Output& naive);

/// run + reference + naive + judge; empty = accepted, else the failure with the problem's description.
std::string conform(AttentionBackend& backend, const Problem& problem, const Layout& layout,
                    ThreadPool& pool);

/// A layout that `spec` allows, drawn from `seed`.
Layout random_layout(uint64_t seed, const AttentionSpec& spec);

/// Calls fn() under every instruction set that this CPU has and `backend` has code for, the best one last
/// (and left set).
void each_isa(const BackendInfo& backend, const std::function<void()>& fn);

/// The built backends that run on a CPU.
std::vector<const BackendRegistry::Entry*> cpu_backends();

}  // namespace fovea::test
