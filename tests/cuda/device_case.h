#pragma once
// One attention problem for the device tests of the CUDA kernels, made on the host, and its reference in
// fp64. Keys and values lie in shuffled pages. Unused slots, and slots of keys that no row sees, hold NaN;
// page ids past the end of a sequence, and of pages that no row sees, are invalid and must not be followed.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "base/float16.h"
#include "base/float8.h"
#include "kernels/cuda/common/params.h"
#include "kernels/reference/visibility.h"

namespace fovea::cuda {

enum class Element : uint8_t { f16, bf16, e4m3, e5m2, int8, f32 };

inline int element_bytes(Element e) {
  if (e == Element::f32) return 4;
  return e == Element::f16 || e == Element::bf16 ? 2 : 1;
}
/// Conversions for the two 16-bit types.
inline uint16_t to16(Element e, float x) {
  return e == Element::f16 ? float_to_fp16(x) : float_to_bf16(x);
}
inline float from16(Element e, uint16_t x) {
  return e == Element::f16 ? fp16_to_float(x) : bf16_to_float(x);
}
/// Rounds to the element type.
inline float round_to(Element e, float x) {
  return e == Element::f32 ? x : from16(e, to16(e, x));
}

/// A counter-based normal generator: a (stream, index) gives the same number everywhere.
inline float gaussian(uint64_t stream, uint64_t index) {
  uint64_t x = stream * 0x9e3779b97f4a7c15ull + index * 0xbf58476d1ce4e5b9ull + 1;
  float sum = 0;
  for (int i = 0; i < 4; ++i) {
    x ^= x >> 30, x *= 0xbf58476d1ce4e5b9ull, x ^= x >> 27, x *= 0x94d049bb133111ebull, x ^= x >> 31;
    sum += static_cast<float>(x >> 40) * 0x1p-24f - 0.5f;
  }
  return sum * 1.7320508f;  // the sum of four uniform numbers has variance 4 / 12
}

struct Sequence {
  int n_q, n_k;
  int id = 0;  ///< equal ids have equal keys and, row for row from the end, equal queries
};

struct Problem {
  std::string name;
  Element q = Element::bf16, kv = Element::bf16;
  int head_dim = 128, v_head_dim = 128, kv_heads = 2, group = 4;
  int page_size = 16;
  bool ragged = false, heads_first = false;
  bool x_packed = false;  ///< pages [head, D / x, slot, x] of K and [head, Dv, slot] of V
  bool shuffle = false;   ///< with x_packed: [head, slot / x, Dv, x] of V; page_size % x == 0
  /// Elements by which tensors are shifted and their rows (K and V: of a head) are padded, so that nothing is
  /// aligned to more than an element.
  int skew = 0;
  bool joined = false;  ///< V of a key and head follows its K in memory
  bool latent = false;  ///< MLA: one KV head; a value is the beginning of its key, in the same memory
  bool scales_per_token = false;
  bool few_sequences = false;  ///< as in sm80::Problem
  float k_scale = 1, v_scale = 1;
  float scale = 0;  ///< 0 = D^-0.5
  float sharp = 1;  ///< factor for q
  float large = 1;  ///< factor for v
  std::vector<Sequence> seqs;
  MaskSpec mask;
  float softcap = 0;
  bool alibi = false, sinks = false, lse_includes_sink = false;
  int tree_size = 0;

  float real_scale() const { return scale > 0 ? scale : 1.0f / std::sqrt(static_cast<float>(head_dim)); }
  int heads() const { return kv_heads * group; }
};

/// The problem in host memory, in the layout of the device.
struct HostCase {
  Problem problem;
  std::vector<uint16_t> q;    ///< [Tq, Hq, D]; empty for fp32 queries, which are in q_float
  std::vector<uint8_t> pool;  ///< K pool, then V pool
  int64_t v_pool = 0;         ///< byte offset
  std::vector<float> k_scales, v_scales;
  int num_pages = 0;
  std::vector<int32_t> table;  ///< [B, table_stride]
  int table_stride = 0;
  std::vector<int> q_first;  ///< [B + 1]
  std::vector<int64_t> ragged_first;
  std::vector<float> sinks, slopes, tree_bias;
  std::vector<Span> spans;
  std::vector<int32_t> span_offsets;
  std::vector<uint8_t> packed;
  std::vector<int64_t> packed_offsets;
  /// Dequantised [B][n_k][Hkv][D or Dv].
  std::vector<std::vector<float>> k, v;
  std::vector<float> q_float;

  int tokens() const { return q_first.back(); }
  /// Strides of K or V in elements.
  struct Strides {
    int64_t page, slot, head, chunk = 0, dim = 0, slots = 0;  ///< slots: between runs of x slots; 0 = none
  };
  Strides strides(bool is_v) const {
    const Problem& p = problem;
    const int64_t page = p.ragged ? 1 : p.page_size;
    const int64_t row = p.joined ? p.head_dim + p.v_head_dim : (is_v ? p.v_head_dim : p.head_dim) + p.skew;
    if (p.x_packed) {
      const int64_t x = 16 / element_bytes(p.kv), rows = is_v ? row : (row + x - 1) / x * x;
      if (is_v && p.shuffle) return {page * p.kv_heads * rows, 1, page * rows, 0, x, rows * x};
      return {page * p.kv_heads * rows, is_v ? 1 : x, page * rows, is_v ? 0 : page * x, is_v ? page : 0};
    }
    if (p.heads_first) return {page * p.kv_heads * row, row, page * row};
    return {page * p.kv_heads * row, p.kv_heads * row, row};
  }
  SequenceMask sequence(int b) const {
    const Sequence& s = problem.seqs[static_cast<size_t>(b)];
    SequenceMask m;
    m.n_q = s.n_q, m.n_k = s.n_k;
    if (problem.mask.spans)
      m.spans = std::span(spans).subspan(span_offsets[b], span_offsets[b + 1] - span_offsets[b]);
    if (problem.mask.packed) m.packed = packed.data() + packed_offsets[b];
    if (problem.mask.tree && s.n_q <= problem.tree_size) {
      m.tree_bias = tree_bias.data();
      m.tree_size = problem.tree_size;
    }
    return m;
  }
};

HostCase make_case(const Problem& problem, uint64_t shuffle = 1);

struct Expected {
  std::vector<double> out;    ///< [Tq, Hq, Dv] exact
  std::vector<double> naive;  ///< with P and O rounded to the query's type; for fp32 queries all in fp32
  std::vector<double> lse;    ///< [Tq, Hq]
};
Expected reference(const HostCase& c);

}  // namespace fovea::cuda
