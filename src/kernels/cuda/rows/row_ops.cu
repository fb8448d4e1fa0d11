#include <algorithm>
#include <string>

#include "device/cuda/cuda_error.h"
#include "fovea/result.h"
#include "kernels/cuda/linear/epilogue.cuh"
#include "kernels/cuda/rows/four.cuh"
#include "kernels/cuda/rows/row_ops.h"
#include "kernels/cuda/tiles/dependent_launch.h"
#include "kernels/cuda/tiles/grid_dependency.cuh"

namespace fovea::cuda {
namespace {

// A CTA takes up to kColumns neighbouring elements of one row.
constexpr int kThreads = 256;
constexpr int kVectors = 2;
constexpr int kColumns = 4 * kVectors * kThreads;

struct RowGrid {
  int dim = 0;
  int chunks = 0;  // CTAs of a row
  bool aligned = false;
};

/// Calls op.run<aligned>(row, column, dim) for every fourth column of every row.
template <class Op>
__global__ void __launch_bounds__(kThreads)
    rows_kernel(const __grid_constant__ Op op, const __grid_constant__ RowGrid grid) {
  const int64_t row = blockIdx.x / grid.chunks;
  const int chunk = static_cast<int>(blockIdx.x % grid.chunks);
  const int first = chunk * kColumns + 4 * static_cast<int>(threadIdx.x);
  const int step = 4 * static_cast<int>(blockDim.x);
  grid_launch_dependents();
  grid_dependency_wait();
  if (grid.aligned)
    op.template run<true>(row, first, step, grid.dim);
  else
    op.template run<false>(row, first, step, grid.dim);
}

std::string str(int64_t x) {
  return std::to_string(x);
}

template <class Op>
Status launch(const char* name, const Op& op, int64_t rows, int64_t dim, bool aligned, CudaStream& stream) {
  if (rows == 0 || dim == 0) return {};
  RowGrid grid;
  grid.dim = static_cast<int>(dim);
  grid.chunks = (grid.dim + kColumns - 1) / kColumns;
  grid.aligned = aligned;
  const int64_t blocks = rows * grid.chunks;
  if (blocks > INT32_MAX)
    return invalid(std::string(name) + ": " + str(rows) + " rows of " + str(dim) +
                   " are too many for one launch");
  const auto threads = static_cast<unsigned>(std::min(kThreads, (grid.dim + 255) / 256 * 32));
  FOVEA_CUDA_TRY(
      launch_dependent(rows_kernel<Op>, {static_cast<unsigned>(blocks), threads}, stream.handle(), op, grid));
  return {};
}

Status check_rows(const char* name, int64_t rows, int64_t dim, bool pointers) {
  if (rows < 0 || dim < 0 || dim > INT32_MAX / 2)
    return invalid(std::string(name) + ": " + str(rows) + " rows of " + str(dim) +
                   " elements; a launch takes 0 to 2^31 - 1 rows of 0 to 2^30 - 1");
  if (rows > 0 && dim > 0 && !pointers)
    return invalid(std::string(name) + ": " + str(rows) + " rows need their arrays; a pointer is null");
  return {};
}

template <class T, bool kBlocks>
struct EmbedOp {
  EmbedParams p;

  template <bool kAligned>
  FOVEA_DEVICE void run(int64_t row, int first, int step, int dim) const {
    const int64_t id = p.ids[row];
    const bool inside = id >= 0 && id < p.n;
    const auto* table = static_cast<const T*>(p.table);
    const T* from = nullptr;
    if (inside)
      from =
          kBlocks ? table + id / 16 * ((p.dim + 63) / 64) * 1024 + id % 16 * 64 : table + id * p.table_stride;
    float* y = p.y + row * p.y_stride;
    Four v[kVectors];
#pragma unroll
    for (int j = 0; j < kVectors; ++j) {
      const int i = first + j * step;
      if (!inside || i >= dim) continue;
      if constexpr (kBlocks)  // four elements never leave a chunk of 8; the panel is padded beyond dim
        v[j] =
            load_four<true>(from + i / 64 * 1024 + ((i % 64 / 8) ^ static_cast<int>(id % 8)) * 8, i % 8, 8);
      else
        v[j] = load_four<kAligned>(from, i, dim);
    }
#pragma unroll
    for (int j = 0; j < kVectors; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        v[j].x[i] = inside ? __fmul_rn(v[j].x[i], p.scale) : __int_as_float(0x7fc00000);
      store_four<kAligned>(y, first + j * step, dim, v[j]);
    }
  }
};

template <class Y>
struct AddOp {
  AddParams p;

  template <bool kAligned>
  FOVEA_DEVICE void run(int64_t row, int first, int step, int dim) const {
    float* x = p.x + row * p.x_stride;
    const auto* y = static_cast<const Y*>(p.y) + row * p.y_stride;
    Four a[kVectors], b[kVectors];
#pragma unroll
    for (int j = 0; j < kVectors; ++j) {
      a[j] = load_four<kAligned>(x, first + j * step, dim);
      b[j] = load_four<kAligned>(y, first + j * step, dim);
    }
#pragma unroll
    for (int j = 0; j < kVectors; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        a[j].x[i] = fmaf(p.scale, b[j].x[i], a[j].x[i]);
      store_four<kAligned>(x, first + j * step, dim, a[j]);
    }
  }
};

template <class X, class Y>
struct CastOp {
  CastParams p;

  template <bool kAligned>
  FOVEA_DEVICE void run(int64_t row, int first, int step, int dim) const {
    const auto* x = static_cast<const X*>(p.x) + row * p.x_stride;
    Four v[kVectors];
#pragma unroll
    for (int j = 0; j < kVectors; ++j)
      v[j] = load_four<kAligned>(x, first + j * step, dim);
#pragma unroll
    for (int j = 0; j < kVectors; ++j)
      store_four<kAligned>(static_cast<Y*>(p.y) + row * p.y_stride, first + j * step, dim, v[j]);
  }
};

template <class X, class Y>
struct GatedOp {
  GatedParams p;
  EpilogueParams gate;

  template <bool kAligned>
  FOVEA_DEVICE void run(int64_t row, int first, int step, int dim) const {
    const auto* wide = static_cast<const X*>(p.wide) + row * p.wide_stride;
    const bool eights = p.layout == GatedLayout::eights;
    const auto* up = wide + (eights ? 8 : dim);
    Four g[kVectors], u[kVectors];
#pragma unroll
    for (int j = 0; j < kVectors; ++j) {
      const int i = first + j * step;
      if (i >= dim) continue;
      const int at = eights ? i / 8 * 16 + i % 8 : i;
      const int end = eights ? at + 4 : dim;
      g[j] = load_four<kAligned>(wide, at, end);
      u[j] = load_four<kAligned>(up, at, end);
    }
#pragma unroll
    for (int j = 0; j < kVectors; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        g[j].x[i] = gated_value<std::is_same_v<Y, float>>(gate, g[j].x[i], u[j].x[i]);
      store_four<kAligned>(static_cast<Y*>(p.out) + row * p.out_stride, first + j * step, dim, g[j]);
    }
  }
};

/// Rows of `units` units.
template <class Unit>
struct GatherOp {
  const Unit* x = nullptr;
  Unit* y = nullptr;
  const int32_t* ids = nullptr;
  int64_t x_stride = 0, y_stride = 0, x_rows = 0;

  template <bool kAligned>
  FOVEA_DEVICE void run(int64_t row, int first, int step, int units) const {
    const int64_t id = ids[row];
    const bool inside = id >= 0 && id < x_rows;
#pragma unroll
    for (int j = 0; j < kVectors; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        // Neighbouring threads copy neighbouring units.
        const int at = first - 3 * static_cast<int>(threadIdx.x) + j * step + i * step / 4;
        if (at >= units) continue;
        Unit unit;
        if (inside)
          unit = x[id * x_stride + at];
        else
          memset(&unit, 0xff, sizeof(Unit));
        y[row * y_stride + at] = unit;
      }
  }
};

template <class Unit>
Status gather(const DenseRowsParams& p, CudaStream& stream) {
  const auto units = [&](int64_t elements) {
    return elements * p.element_bytes / static_cast<int64_t>(sizeof(Unit));
  };
  GatherOp<Unit> op;
  op.x = static_cast<const Unit*>(p.x), op.y = static_cast<Unit*>(p.y), op.ids = p.ids;
  op.x_stride = units(p.x_stride), op.y_stride = units(p.y_stride), op.x_rows = p.x_rows;
  return launch("gather_rows", op, p.rows, units(p.dim), true, stream);
}

__global__ void take_tokens_kernel(const __grid_constant__ TakeTokensParams p) {
  const int64_t t = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  grid_launch_dependents();
  grid_dependency_wait();
  if (t >= p.rows) return;
  const int32_t slot = p.slot[t];
  if (slot >= 0) p.ids[t] = slot < p.slots ? p.tokens[slot] : -1;
}

}  // namespace

Status launch_embed(const EmbedParams& p, CudaStream& stream) {
  FOVEA_RETURN_IF_ERROR(
      check_rows("embed", p.rows, p.dim, p.table != nullptr && p.ids != nullptr && p.y != nullptr));
  if (p.layout == TableLayout::blocks16) {
    if (p.table_dtype == DType::f32)
      return invalid("embed: a float32 table in blocks; blocks are float16 or bfloat16");
    if (reinterpret_cast<uintptr_t>(p.table) % 16 != 0)
      return invalid("embed: a table in blocks must be 16-byte aligned");
  }
  bool aligned = by_four(p.y, DType::f32, p.y_stride, p.dim);
  if (p.layout == TableLayout::rows)
    aligned = aligned && by_four(p.table, p.table_dtype, p.table_stride, p.dim);
  return with_type(p.table_dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (!std::is_same_v<T, float>) {
      if (p.layout == TableLayout::blocks16) {
        return launch("embed", EmbedOp<T, true>{p}, p.rows, p.dim, aligned, stream);
      }
    }
    return launch("embed", EmbedOp<T, false>{p}, p.rows, p.dim, aligned, stream);
  });
}

Status launch_add(const AddParams& p, CudaStream& stream) {
  FOVEA_RETURN_IF_ERROR(check_rows("add", p.rows, p.dim, p.x != nullptr && p.y != nullptr));
  const bool aligned =
      by_four(p.x, DType::f32, p.x_stride, p.dim) && by_four(p.y, p.y_dtype, p.y_stride, p.dim);
  return with_type(p.y_dtype, [&](auto tag) {
    return launch("add", AddOp<typename decltype(tag)::type>{p}, p.rows, p.dim, aligned, stream);
  });
}

Status launch_cast(const CastParams& p, CudaStream& stream) {
  FOVEA_RETURN_IF_ERROR(check_rows("cast", p.rows, p.dim, p.x != nullptr && p.y != nullptr));
  const bool aligned =
      by_four(p.x, p.x_dtype, p.x_stride, p.dim) && by_four(p.y, p.y_dtype, p.y_stride, p.dim);
  return with_type(p.x_dtype, [&](auto x) {
    return with_type(p.y_dtype, [&](auto y) {
      return launch("cast", CastOp<typename decltype(x)::type, typename decltype(y)::type>{p}, p.rows, p.dim,
                    aligned, stream);
    });
  });
}

Status launch_gather_dense_rows(const DenseRowsParams& p, CudaStream& stream) {
  FOVEA_RETURN_IF_ERROR(
      check_rows("gather_rows", p.rows, p.dim, p.x != nullptr && p.ids != nullptr && p.y != nullptr));
  const int b = p.element_bytes;
  if (b != 1 && b != 2 && b != 4 && b != 8)
    return invalid("gather_rows: elements of " + str(b) + " bytes; 1, 2, 4 and 8 are supported");
  const auto bits = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(p.x)) |
                    static_cast<uint64_t>(reinterpret_cast<uintptr_t>(p.y)) |
                    static_cast<uint64_t>(p.x_stride * b) | static_cast<uint64_t>(p.y_stride * b) |
                    static_cast<uint64_t>(p.dim * b);
  if (bits % 16 == 0) return gather<uint4>(p, stream);
  if (bits % 4 == 0) return gather<uint32_t>(p, stream);
  if (bits % 2 == 0) return gather<uint16_t>(p, stream);
  return gather<uint8_t>(p, stream);
}

Status launch_take_tokens(const TakeTokensParams& p, CudaStream& stream) {
  FOVEA_RETURN_IF_ERROR(check_rows("take_tokens", p.rows, 1, p.slot != nullptr && p.ids != nullptr));
  if (p.rows == 0) return {};
  if (p.slots > 0 && p.tokens == nullptr) return invalid("take_tokens: tokens must not be null");
  const auto ctas = static_cast<unsigned>((p.rows + kThreads - 1) / kThreads);
  FOVEA_CUDA_TRY(launch_dependent(take_tokens_kernel, {ctas, kThreads}, stream.handle(), p));
  return {};
}

Status launch_gated(const GatedParams& p, CudaStream& stream) {
  FOVEA_RETURN_IF_ERROR(check_rows("gated", p.rows, p.width, p.wide != nullptr && p.out != nullptr));
  if (p.layout == GatedLayout::eights && p.width % 8 != 0)
    return invalid("gated: a width of " + str(p.width) + " in groups of 8; use a multiple of 8, or halves");
  if (p.wide_dtype != DType::f32 && p.out_dtype != p.wide_dtype)
    return invalid("gated: " + std::string(to_string(p.wide_dtype)) + " to " +
                   std::string(to_string(p.out_dtype)) + "; the input is float32 or of the output's dtype");
  const bool aligned = by_four(p.wide, p.wide_dtype, p.wide_stride, p.width) &&
                       by_four(p.out, p.out_dtype, p.out_stride, p.width);
  LinearParams dense;
  dense.epilogue = LinearEpilogue::gated, dense.activation = p.f, dense.limit = p.limit;
  const EpilogueParams gate = make_epilogue(dense);
  return with_type(p.out_dtype, [&](auto tag) {
    using Y = typename decltype(tag)::type;
    if (p.wide_dtype == DType::f32)
      return launch("gated", GatedOp<float, Y>{p, gate}, p.rows, p.width, aligned, stream);
    else
      return launch("gated", GatedOp<Y, Y>{p, gate}, p.rows, p.width, aligned, stream);
  });
}

}  // namespace fovea::cuda
