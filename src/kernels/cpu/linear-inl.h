// The register tiles of linear(), for the instruction set of the including file. A tile is Rows rows of x by
// Pairs pairs of vectors of outputs; each lane of each accumulator is one output's chain.
#include "kernels/cpu/linear_kernels.h"
#include "kernels/cpu/simd.h"

namespace fovea::linear_detail::FOVEA_SIMD_NAMESPACE {

using namespace fovea::FOVEA_SIMD_NAMESPACE;

constexpr int kLanes = Vec::kLanes;
constexpr int kPairsOfPanel = static_cast<int>(kPanel) / (2 * kLanes);

// Rows that fit: 14 x 2 sums + 2 weights + 1 x of 32 registers (AVX-512), 6 x 2 + 2 + 1 of 16 (AVX2); the
// generic code needs one more for the product.
#if defined(__AVX512F__)
constexpr int kMaxRows = 14;
#elif defined(__AVX2__)
constexpr int kMaxRows = 6;
#else
constexpr int kMaxRows = 4;
#endif

/// Pairs of a tile of `rows` rows: at least 8 independent chains, which hide an FMA's latency of 4 cycles on
/// two pipes. With AVX-512 also several panels where the registers have room: a core reads memory faster as
/// several streams, and takes a value of x once for all of them.
constexpr int pairs_for(int rows) {
#if defined(__AVX512F__)
  return rows <= 2 ? 4 : rows <= 7 ? 2 : 1;
#else
  return rows == 1 ? 4 : rows <= 3 ? 2 : 1;
#endif
}

// How the 2 kLanes weights of a pair are widened, and the output that is lane 0 of vector j (0, 1).
template <class T>
struct Weight {
  static int column(int pair, int j) { return (2 * pair + j) * kLanes; }
  static FOVEA_INLINE void load_pair(const T* p, Vec& a, Vec& b) {
    a = load(p);
    b = load(p + kLanes);
  }
};
template <>
struct Weight<bf16> {
  static int column(int pair, int j) { return pair * kLanes + j * static_cast<int>(kPanel) / 2; }
  static FOVEA_INLINE void load_pair(const bf16* p, Vec& a, Vec& b) { load_pairs(p, a, b); }
};

FOVEA_INLINE int valid_lanes(int64_t left) {
  return left <= 0 ? 0 : left < kLanes ? static_cast<int>(left) : kLanes;
}

/// Far enough ahead to cover memory's latency, near enough to stay in L1: see bench_linear.
constexpr int64_t kPrefetchBytes = 1024;

/// f(row, pair, j, y, lanes) for each vector of a tile, unrolled so that they stay in registers.
template <int Rows, int Pairs, class F>
FOVEA_INLINE void for_vectors(const Block& block, const int64_t (&column)[Pairs][2], const F& f) {
  const bool full = column[Pairs - 1][1] + kLanes <= block.columns;
#pragma GCC unroll 14
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
    for (int p = 0; p < Pairs; ++p)
#pragma GCC unroll 2
      for (int j = 0; j < 2; ++j) {
        const int64_t c = column[p][j];
        f(r, p, j, block.y + r * block.y_stride + c, full ? kLanes : valid_lanes(block.columns - c));
      }
}

template <class T, int Rows, int Pairs>
void tile(const Block& block, int64_t first_pair) {
  const T* weight[Pairs];
  int64_t column[Pairs][2];
  for (int p = 0; p < Pairs; ++p) {
    const int64_t panel = (first_pair + p) / kPairsOfPanel;
    const int half = static_cast<int>((first_pair + p) % kPairsOfPanel);
    weight[p] = reinterpret_cast<const T*>(block.weight + panel * block.panel_stride) + 2 * kLanes * half;
    for (int j = 0; j < 2; ++j)
      column[p][j] = panel * kPanel + Weight<T>::column(half, j);
  }

  Vec sum[Rows][Pairs][2];
  if (block.first)
    for (int r = 0; r < Rows; ++r)
      for (int p = 0; p < Pairs; ++p)
        sum[r][p][0] = sum[r][p][1] = zero();
  else
    for_vectors<Rows, Pairs>(block, column, [&](int r, int p, int j, const float* y, int lanes) {
      sum[r][p][j] = lanes == kLanes ? load(y) : load_n(y, lanes);
    });

  const float* x = block.x;
  for (int64_t k = 0; k < block.depth; ++k, x += Rows) {
    for (int p = 0; p < Pairs; ++p) {
      const T* row = weight[p] + k * kPanel;
      if (p % kPairsOfPanel == 0) __builtin_prefetch(reinterpret_cast<const char*>(row) + kPrefetchBytes);
      Vec a, b;
      Weight<T>::load_pair(row, a, b);
      for (int r = 0; r < Rows; ++r) {
        const Vec value = set1(x[r]);
        sum[r][p][0] = fma(value, a, sum[r][p][0]);
        sum[r][p][1] = fma(value, b, sum[r][p][1]);
      }
    }
  }

  if (block.bias)
    for (int p = 0; p < Pairs; ++p)
      for (int j = 0; j < 2; ++j) {
        const Vec bias = load_n(block.bias + column[p][j], valid_lanes(block.columns - column[p][j]));
        for (int r = 0; r < Rows; ++r)
          sum[r][p][j] = sum[r][p][j] + bias;
      }
  for_vectors<Rows, Pairs>(block, column, [&](int r, int p, int j, float* y, int lanes) {
    if (lanes == kLanes)
      store(y, sum[r][p][j]);
    else
      store_n(y, sum[r][p][j], lanes);
  });
}

template <class T, int Rows>
void multiply_rows(const Block& block) {
  const int64_t pairs = (block.columns + kPanel - 1) / kPanel * kPairsOfPanel;
  constexpr int kGroup = pairs_for(Rows);
  int64_t pair = 0;
  for (; pair + kGroup <= pairs; pair += kGroup)
    tile<T, Rows, kGroup>(block, pair);
  if constexpr (kGroup > 1)
    for (; pair < pairs; ++pair)
      tile<T, Rows, 1>(block, pair);
}

template <class T, int Rows = kMaxRows>
void multiply_typed(const Block& block) {
  if (block.rows == Rows) return multiply_rows<T, Rows>(block);
  if constexpr (Rows > 1) multiply_typed<T, Rows - 1>(block);
}

inline void multiply(const Block& block, DType storage) {
  switch (storage) {
    case DType::f32: return multiply_typed<float>(block);
    case DType::f16: return multiply_typed<fp16>(block);
    case DType::bf16: return multiply_typed<bf16>(block);
  }
}

template <class From, class To>
void convert_typed(const void* from, void* to, int64_t n) {
  const From* in = static_cast<const From*>(from);
  To* out = static_cast<To*>(to);
  for (int64_t i = 0; i < n; i += kLanes) {
    const int lanes = valid_lanes(n - i);
    store_n(out + i, load_n(in + i, lanes), lanes);
  }
}

template <class From>
void convert_from(const void* from, void* to, DType to_type, int64_t n) {
  switch (to_type) {
    case DType::f32: return convert_typed<From, float>(from, to, n);
    case DType::f16: return convert_typed<From, fp16>(from, to, n);
    case DType::bf16: return convert_typed<From, bf16>(from, to, n);
  }
}

inline void convert(const void* from, DType from_type, void* to, DType to_type, int64_t n) {
  switch (from_type) {
    case DType::f32: return convert_from<float>(from, to, to_type, n);
    case DType::f16: return convert_from<fp16>(from, to, to_type, n);
    case DType::bf16: return convert_from<bf16>(from, to, to_type, n);
  }
}

}  // namespace fovea::linear_detail::FOVEA_SIMD_NAMESPACE
