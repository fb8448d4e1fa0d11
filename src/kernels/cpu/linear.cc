#include "kernels/cpu/linear.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

#include "base/check.h"
#include "base/cpu_features.h"
#include "base/float16.h"
#include "kernels/cpu/for_rows.h"
#include "kernels/cpu/linear_kernels.h"

namespace fovea {

using namespace linear_detail;

namespace {

/// Place of output `column` in a panel's row. bf16 pairs columns c and c + 16 in one 32-bit word, so that a
/// shift and a mask widen a loaded vector into two.
constexpr int64_t place(DType storage, int64_t column) {
  return storage == DType::bf16 ? column % 16 * 2 + column / 16 : column;
}

const LinearKernels& kernels() {
  switch (current_isa()) {
    case Isa::avx512: return kLinearAvx512;
    case Isa::avx2: return kLinearAvx2;
    case Isa::generic: break;
  }
  return kLinearGeneric;
}

// Rows [begin, end) of one panel, which is `k` steps long, from `rows` in the source.
struct PanelRows {
  const std::byte* source;  // row `begin`, at any address
  DType dtype;
  int64_t begin, end, k;
  std::byte* panel;
};

constexpr int64_t kSteps = 64;  // of a strip: 32 rows of them fit in L1

template <DType kStorage, class Word>
void transpose_strip(const Word (&strip)[kPanel][kSteps], int64_t steps, Word* out) {
  for (int64_t i = 0; i < steps; ++i, out += kPanel)
    if constexpr (kStorage == DType::f32) {
      for (int64_t c = 0; c < kPanel; ++c)
        out[c] = strip[c][i];
    } else {
      for (int64_t c = 0; c < kPanel / 2; ++c) {  // two neighbours a store
        constexpr bool kPaired = kStorage == DType::bf16;
        const uint32_t low = strip[kPaired ? c : 2 * c][i],
                       high = strip[kPaired ? c + kPanel / 2 : 2 * c + 1][i];
        const uint32_t both = low | high << 16;
        std::memcpy(out + 2 * c, &both, sizeof both);
      }
    }
}

/// In strips of kSteps elements of each row, converted into a buffer and then transposed.
template <DType kStorage>
void pack_panel(const PanelRows& rows) {
  using Word = std::conditional_t<kStorage == DType::f32, uint32_t, uint16_t>;
  alignas(64) Word strip[kPanel][kSteps];
  alignas(64) std::byte aligned[kSteps * sizeof(float)];
  const LinearKernels& isa = kernels();
  const int64_t size = static_cast<int64_t>(size_of(rows.dtype));
  for (int64_t k0 = 0; k0 < rows.k; k0 += kSteps) {
    const int64_t steps = std::min(kSteps, rows.k - k0);
    for (int64_t r = rows.begin; r < rows.end; ++r) {
      const std::byte* source = rows.source + ((r - rows.begin) * rows.k + k0) * size;
      if (rows.dtype == kStorage) {
        std::memcpy(strip[r], source, static_cast<size_t>(steps * size));
      } else {
        std::memcpy(aligned, source, static_cast<size_t>(steps * size));
        isa.convert(aligned, rows.dtype, strip[r], kStorage, steps);
      }
    }
    Word* out = reinterpret_cast<Word*>(rows.panel) + k0 * kPanel;
    if (rows.begin == 0 && rows.end == kPanel)
      transpose_strip<kStorage>(strip, steps, out);
    else
      for (int64_t r = rows.begin; r < rows.end; ++r)
        for (int64_t i = 0; i < steps; ++i)
          out[i * kPanel + place(kStorage, r)] = strip[r][i];
  }
}

}  // namespace

PackedMatrix::PackedMatrix(int64_t n, int64_t k, DType storage)
    : n_(n),
      k_(k),
      storage_(storage),
      data_(static_cast<size_t>((n + kPanel - 1) / kPanel * kPanel * k) * size_of(storage)) {
  const size_t panel_bytes = static_cast<size_t>(kPanel * k) * size_of(storage);
  if (n % kPanel != 0) std::memset(data_.data() + data_.size() - panel_bytes, 0, panel_bytes);
}

void PackedMatrix::pack_rows(int64_t first, int64_t rows, const void* source, DType dtype, ThreadPool& pool) {
  FOVEA_CHECK(first >= 0 && rows >= 0 && first <= n_ && rows <= n_ - first);
  const auto* src = static_cast<const std::byte*>(source);
  const int64_t end = first + rows, panel_bytes = kPanel * k_ * static_cast<int64_t>(size_of(storage_));
  const int64_t first_panel = first / kPanel, panels = (end + kPanel - 1) / kPanel - first_panel;
  pool.parallel_tasks(panels, [&](int64_t task, int) {
    const int64_t panel = first_panel + task, row = std::max(panel * kPanel, first);
    PanelRows part;
    part.source = src + (row - first) * k_ * static_cast<int64_t>(size_of(dtype));
    part.dtype = dtype;
    part.begin = row - panel * kPanel;
    part.end = std::min(end - panel * kPanel, kPanel);
    part.k = k_;
    part.panel = data_.data() + panel * panel_bytes;
    switch (storage_) {
      case DType::f32: return pack_panel<DType::f32>(part);
      case DType::f16: return pack_panel<DType::f16>(part);
      case DType::bf16: return pack_panel<DType::bf16>(part);
    }
  });
}

void PackedView::unpack_row(int64_t row, float* out) const {
  FOVEA_CHECK(row >= 0 && row < n);
  const auto read = [&](const auto* word, const auto& widen) {
    word += row / kPanel * kPanel * k + place(storage, row % kPanel);
    for (int64_t i = 0; i < k; ++i)
      out[i] = widen(word[i * kPanel]);
  };
  switch (storage) {
    case DType::f32: return read(reinterpret_cast<const float*>(data), [](float v) { return v; });
    case DType::f16: return read(reinterpret_cast<const uint16_t*>(data), fp16_to_float);
    case DType::bf16: return read(reinterpret_cast<const uint16_t*>(data), bf16_to_float);
  }
}

namespace {

// A block of x is kept in L2 (1 MiB on recent cores) while panels go by: 256 x 512 x 4 bytes is half of it.
// The sums are reloaded once in 512 steps, and each row of tiles reads the panel's 32 KiB again, from L2 too.
constexpr int64_t kBlockRows = 256;
constexpr int64_t kBlockDepth = 512;

/// Rows [first, first + count) of x cut into tiles of nearly equal height.
struct Tiles {
  int64_t first, count, tiles;
  int64_t begin(int64_t tile) const { return count * tile / tiles; }
  int64_t rows(int64_t tile) const { return begin(tile + 1) - begin(tile); }
};

/// to[i][r] = from[r][i], i < steps, r < rows.
void transpose(const float* from, int64_t stride, int64_t rows, int64_t steps, float* to) {
  int64_t r = 0;
#if defined(__SSE2__)
  for (; r + 4 <= rows; r += 4) {
    const float* row = from + r * stride;
    int64_t i = 0;
    for (; i + 4 <= steps; i += 4) {
      __m128 a = _mm_loadu_ps(row + i), b = _mm_loadu_ps(row + stride + i);
      __m128 c = _mm_loadu_ps(row + 2 * stride + i), d = _mm_loadu_ps(row + 3 * stride + i);
      _MM_TRANSPOSE4_PS(a, b, c, d);
      _mm_storeu_ps(to + i * rows + r, a);
      _mm_storeu_ps(to + (i + 1) * rows + r, b);
      _mm_storeu_ps(to + (i + 2) * rows + r, c);
      _mm_storeu_ps(to + (i + 3) * rows + r, d);
    }
    for (; i < steps; ++i)
      for (int64_t q = 0; q < 4; ++q)
        to[i * rows + r + q] = row[q * stride + i];
  }
#endif
  for (; r < rows; ++r)
    for (int64_t i = 0; i < steps; ++i)
      to[i * rows + r] = from[r * stride + i];
}

/// x as [depth block][tile][depth][rows of the tile], so that a tile reads it in one stream.
void pack_x(const float* x, int64_t stride, const Tiles& tiles, int64_t k, int64_t depth, float* packed,
            ThreadPool& pool) {
  const auto pack_tile = [&](int64_t tile, int) {
    const int64_t begin = tiles.begin(tile), rows = tiles.rows(tile);
    const float* src = x + (tiles.first + begin) * stride;
    for (int64_t k0 = 0; k0 < k; k0 += depth) {
      const int64_t steps = std::min(depth, k - k0);
      float* dst = packed + k0 * tiles.count + begin * steps;
      transpose(src + k0, stride, rows, steps, dst);
    }
  };
  // Waking the other threads costs more than copying 256 KiB.
  if (tiles.count * k < (1 << 16))
    for (int64_t t = 0; t < tiles.tiles; ++t)
      pack_tile(t, 0);
  else
    pool.parallel_tasks(tiles.tiles, pack_tile, {static_cast<double>(tiles.count * k) / kElementsPerNs});
}

float* scratch(size_t elements) {
  thread_local AlignedArray<float> buffer;
  if (buffer.size() < elements) buffer = AlignedArray<float>(elements);
  return buffer.data();
}

/// Estimated time on one core: weights from its caches, or 8 vectors of 4 sums per nanosecond.
Work work_of(const PackedView& weight, int64_t rows) {
  constexpr double kBytesPerNs = 50, kProductsPerNs = 32;
  const auto elements = static_cast<double>(weight.n * weight.k);
  return {std::max(elements * static_cast<double>(size_of(weight.storage)) / kBytesPerNs,
                   elements * static_cast<double>(rows) / kProductsPerNs)};
}

/// Panels per task: a few tasks per thread, to balance late or slow threads; at most 8, which is the number
/// of streams of the one-row kernel.
int64_t panels_of_task(int64_t panels, int threads) {
  int64_t size = 8;
  while (size > 1 && panels < 4 * size * threads)
    size /= 2;
  return size;
}

/// Parts of the rows that a block's tasks are divided into, where there are too few panels for all threads.
int64_t row_parts(int64_t tasks, int64_t tiles, int threads) {
  constexpr int64_t kTasksPerThread = 2;
  if (threads == 1 || tasks == 0 || tasks >= threads) return 1;
  return std::min(tiles, (kTasksPerThread * threads + tasks - 1) / tasks);
}

/// `start`: the chains begin at 0 rather than at y.
void multiply(const PackedView& weight, const float* x, int64_t x_stride, int64_t m, float* y,
              int64_t y_stride, const float* bias, bool start, ThreadPool& pool) {
  const LinearKernels& isa = kernels();
  const int64_t n = weight.n, k = weight.k, size = static_cast<int64_t>(size_of(weight.storage));
  const int64_t panels = (n + kPanel - 1) / kPanel;
  const int64_t task_panels = panels_of_task(panels, pool.size());
  const int64_t tasks = (panels + task_panels - 1) / task_panels;
  const int64_t blocks = (m + kBlockRows - 1) / kBlockRows;
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t first = m * b / blocks, count = m * (b + 1) / blocks - first;
    const Tiles tiles{first, count, (count + isa.max_rows - 1) / isa.max_rows};
    const int64_t depth = tiles.tiles == 1 ? std::max<int64_t>(k, 1) : kBlockDepth;
    const float* packed = x + first * x_stride;
    if (count > 1) {
      float* buffer = scratch(static_cast<size_t>(count * k));
      pack_x(x, x_stride, tiles, k, depth, buffer, pool);
      packed = buffer;
    }
    const int64_t parts = row_parts(tasks, tiles.tiles, pool.size());
    const auto run_task = [&](int64_t task, int) {
      const int64_t begin = task / parts * task_panels, end = std::min(begin + task_panels, panels);
      const int64_t part = task % parts, first_tile = tiles.tiles * part / parts;
      const int64_t end_tile = tiles.tiles * (part + 1) / parts;
      const int64_t step = tiles.tiles == 1 ? end - begin : 1;
      for (int64_t k0 = 0; k0 == 0 || k0 < k; k0 += depth)
        for (int64_t panel = begin; panel < end; panel += step)
          for (int64_t t = first_tile; t < end_tile; ++t) {
            Block block;
            block.weight = weight.data + (panel * k + k0) * kPanel * size;
            block.panel_stride = k * kPanel * size;
            block.columns = std::min(step * kPanel, n - panel * kPanel);
            block.rows = static_cast<int>(tiles.rows(t));
            block.depth = std::min(depth, k - k0);
            block.x = packed + k0 * count + tiles.begin(t) * block.depth;
            block.y = y + (first + tiles.begin(t)) * y_stride + panel * kPanel;
            block.y_stride = y_stride;
            block.bias = bias && k0 + depth >= k ? bias + panel * kPanel : nullptr;
            block.first = start && k0 == 0;
            isa.multiply(block, weight.storage);
          }
    };
    pool.parallel_tasks(tasks * parts, run_task, work_of(weight, count));
  }
}

}  // namespace

void linear(const PackedView& weight, const float* x, int64_t x_stride, int64_t m, float* y, int64_t y_stride,
            const float* bias, ThreadPool& pool) {
  multiply(weight, x, x_stride, m, y, y_stride, bias, true, pool);
}

void linear_add(const PackedView& weight, const float* x, int64_t x_stride, int64_t m, float* y,
                int64_t y_stride, ThreadPool& pool) {
  multiply(weight, x, x_stride, m, y, y_stride, nullptr, false, pool);
}

}  // namespace fovea
