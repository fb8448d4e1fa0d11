// Linear layers by mma.sync and cp.async, for every architecture from sm_80 on: rows of x are the A operand,
// packed weights the B operand.
#include <algorithm>
#include <atomic>
#include <string>

#include "device/cuda/cuda_error.h"
#include "fovea/result.h"
#include "kernels/cuda/linear/epilogue.cuh"
#include "kernels/cuda/linear/launchers.h"
#include "kernels/cuda/tiles/cp_async.cuh"
#include "kernels/cuda/tiles/ldmatrix.cuh"
#include "kernels/cuda/tiles/mma.cuh"
#include "kernels/cuda/tiles/swizzle.cuh"

namespace fovea::cuda {
namespace {

struct MmaParams {
  const uint16_t* x;
  const uint8_t* weight;
  int64_t x_stride;
  int k, panels;
  EpilogueParams epilogue;
  // kHeads: the distances from a head's to the next's, in bytes, but x in elements.
  int64_t x_head = 0, weight_head = 0, y_head = 0;
};

/// A CTA has kWarpRows x kWarpPanels warps of 16 kTiles rows x kPanels panels each.
template <int kTilesOf16, int kPanelsOfWarp, int kWarpRowsOf, int kWarpPanelsOf, int kStagesOf>
struct MmaShape {
  static constexpr int kTiles = kTilesOf16, kPanels = kPanelsOfWarp;
  static constexpr int kWarpRows = kWarpRowsOf, kWarpPanels = kWarpPanelsOf;
  static constexpr int kThreads = 32 * kWarpRows * kWarpPanels;
  static constexpr int kRows = 16 * kTiles * kWarpRows, kTilePanels = kPanels * kWarpPanels;
  static constexpr int kStages = kStagesOf;
  static constexpr int kXBytes = kRows * 128, kStageBytes = kXBytes + kTilePanels * kBlockBytes;
  static constexpr int kSharedBytes = kStages * kStageBytes;
};
using MmaFew = MmaShape<1, 1, 1, 4, 8>;   // 16 rows x 64 outputs
using MmaSome = MmaShape<4, 1, 1, 4, 5>;  // 64 x 64
using MmaMany = MmaShape<4, 2, 2, 4, 3>;  // 128 x 128

/// The first `bytes` bytes of 16, then zeros.
FOVEA_DEVICE void copy_part(uint32_t to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes)
               : "memory");
}

template <class S>
FOVEA_DEVICE void load_stage(const MmaParams& p, int first_row, int first_panel, int block, uint32_t stage) {
  const int thread = static_cast<int>(threadIdx.x);
  const int blocks = static_cast<int>(packed_blocks(p.k));
#pragma unroll
  for (int i = 0; i < S::kRows * 8 / S::kThreads; ++i) {
    const int at = thread + i * S::kThreads, r = at / 8, chunk = at % 8;
    const int row = first_row + r, k = block * kBlockInputs + chunk * 8;
    const int bytes = row < p.epilogue.rows ? max(0, min(16, 2 * (p.k - k))) : 0;
    copy_part(stage + swizzled_chunk<128>(r, chunk), bytes > 0 ? p.x + row * p.x_stride + k : p.x, bytes);
  }
#pragma unroll
  for (int i = 0; i < S::kTilePanels * 128 / S::kThreads; ++i) {
    const int at = thread + i * S::kThreads, panel = first_panel + at / 128;
    const bool valid = panel < p.panels;
    const uint8_t* from = p.weight + (int64_t{valid ? panel : 0} * blocks + block) * kBlockBytes;
    cp_async_16(stage + S::kXBytes + at * 16, from + at % 128 * 16, valid);
  }
}

/// kHeads: blockIdx.z is the head.
template <class T, class S, bool kGated, bool kHeads>
__global__ __launch_bounds__(S::kThreads) void mma_linear(MmaParams p) {
  extern __shared__ __align__(1024) uint8_t raw[];
  if constexpr (kHeads) {
    const auto head = static_cast<int64_t>(blockIdx.z);
    p.x += head * p.x_head;
    p.weight += head * p.weight_head;
    p.epilogue.y = static_cast<uint8_t*>(p.epilogue.y) + head * p.y_head;
  }
  const uint32_t ring = shared_address(raw);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = lane_id();
  const int warp_row = warp / S::kWarpPanels, warp_panel = warp % S::kWarpPanels;
  const int first_row = static_cast<int>(blockIdx.y) * S::kRows;
  const int first_panel = static_cast<int>(blockIdx.x) * S::kTilePanels;
  const int blocks = static_cast<int>(packed_blocks(p.k));
#pragma unroll
  for (int i = 0; i < S::kStages - 1; ++i) {
    if (i < blocks) load_stage<S>(p, first_row, first_panel, i, ring + i * S::kStageBytes);
    cp_async_commit();
  }
  float d[S::kTiles][8 * S::kPanels] = {};
  const int a_row = warp_row * 16 * S::kTiles + lane % 16, a_chunk = lane / 16;
  const int b_row = lane / 16 * 8 + lane % 8, b_chunk = lane / 8 % 2;
  for (int block = 0; block < blocks; ++block) {
    cp_async_wait<S::kStages - 2>();
    __syncthreads();
    const int next = block + S::kStages - 1;
    if (next < blocks)
      load_stage<S>(p, first_row, first_panel, next, ring + next % S::kStages * S::kStageBytes);
    cp_async_commit();
    const uint32_t x = ring + block % S::kStages * S::kStageBytes;
    const uint32_t w = x + S::kXBytes + warp_panel * S::kPanels * kBlockBytes;
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      uint32_t b[S::kPanels][4];
#pragma unroll
      for (int j = 0; j < S::kPanels; ++j)
        ldmatrix_x4(b[j], w + j * kBlockBytes + swizzled_chunk<128>(b_row, 2 * s + b_chunk));
#pragma unroll
      for (int i = 0; i < S::kTiles; ++i) {
        uint32_t a[4];
        ldmatrix_x4(a, x + swizzled_chunk<128>(a_row + 16 * i, 2 * s + a_chunk));
#pragma unroll
        for (int j = 0; j < 2 * S::kPanels; ++j)
          Mma<T>::k16(reinterpret_cast<float(&)[4]>(d[i][4 * j]), a, b[j / 2][j % 2 * 2],
                      b[j / 2][j % 2 * 2 + 1]);
      }
    }
  }
  cp_async_wait_all();
  const int panel = first_panel + warp_panel * S::kPanels;
  const int groups = min(S::kPanels, p.panels - panel) * (kGated ? 1 : 2);
#pragma unroll
  for (int i = 0; i < S::kTiles; ++i) {
    const int row = first_row + (warp_row * S::kTiles + i) * 16;
    if (row < p.epilogue.rows && groups > 0)
      Epilogue<T, kGated, 2 * S::kPanels>{p.epilogue, p.epilogue.rows}.run(d[i], row,
                                                                           panel * (kGated ? 8 : 16), groups);
  }
}

template <class T, class S, bool kGated, bool kHeads>
Status launch_kernel(const MmaParams& p, int64_t heads, cudaStream_t stream) {
  constexpr int kDevices = 64;
  static std::atomic<bool> prepared[kDevices];
  int device = 0;
  FOVEA_CUDA_TRY(cudaGetDevice(&device));
  if (device >= kDevices || !prepared[device].load(std::memory_order_acquire)) {
    FOVEA_CUDA_TRY(cudaFuncSetAttribute(mma_linear<T, S, kGated, kHeads>,
                                        cudaFuncAttributeMaxDynamicSharedMemorySize, S::kSharedBytes));
    if (device < kDevices) prepared[device].store(true, std::memory_order_release);
  }
  const auto tiles = [](int count, int size) { return static_cast<unsigned>((count + size - 1) / size); };
  const dim3 grid(tiles(p.panels, S::kTilePanels), tiles(p.epilogue.rows, S::kRows),
                  static_cast<unsigned>(heads));
  if (grid.y > 65535)
    return invalid("a linear layer of " + std::to_string(p.epilogue.rows) + " rows; at most " +
                   std::to_string(65535 * S::kRows) + " are allowed; run it in parts");
  mma_linear<T, S, kGated, kHeads><<<grid, S::kThreads, S::kSharedBytes, stream>>>(p);
  FOVEA_CUDA_TRY(cudaGetLastError());
  return {};
}

/// `heads`: 0 = no heads.
template <class T, class S>
Status launch_shape(const MmaParams& p, bool gated, int64_t heads, cudaStream_t stream) {
  if (heads > 0) return launch_kernel<T, S, false, true>(p, heads, stream);
  return gated ? launch_kernel<T, S, true, false>(p, 1, stream)
               : launch_kernel<T, S, false, false>(p, 1, stream);
}

template <class T>
Status launch_type(const MmaParams& p, bool gated, int64_t heads, int multiprocessors, cudaStream_t stream) {
  const int rows = p.epilogue.rows;
  if (rows <= 16) return launch_shape<T, MmaFew>(p, gated, heads, stream);
  const int64_t large = int64_t{(rows + 127) / 128} * ((p.panels + 7) / 8) * std::max<int64_t>(heads, 1);
  if (rows <= 64 || large < multiprocessors) return launch_shape<T, MmaSome>(p, gated, heads, stream);
  return launch_shape<T, MmaMany>(p, gated, heads, stream);
}

MmaParams mma_params(const LinearParams& p) {
  return {static_cast<const uint16_t*>(p.x),
          static_cast<const uint8_t*>(p.weight),
          p.x_stride,
          static_cast<int>(p.k),
          static_cast<int>(packed_panels(p.n, p.epilogue == LinearEpilogue::gated)),
          make_epilogue(p)};
}

}  // namespace

Status launch_mma_linear(const LinearParams& p, int multiprocessors, cudaStream_t stream) {
  const bool gated = p.epilogue == LinearEpilogue::gated;
  return p.dtype == DType::f16 ? launch_type<__half>(mma_params(p), gated, 0, multiprocessors, stream)
                               : launch_type<__nv_bfloat16>(mma_params(p), gated, 0, multiprocessors, stream);
}

Status launch_mma_heads(const HeadLinearParams& p, int multiprocessors, cudaStream_t stream) {
  MmaParams a = mma_params(p.first);
  a.x_head = p.x_head;
  a.weight_head = p.weight_head;
  a.y_head = p.y_head * static_cast<int64_t>(size_of(p.first.y_dtype));
  // The epilogue has looked at the first head's address; the others' may be less aligned.
  a.epilogue.pairs = a.epilogue.pairs && p.y_head % 2 == 0;
  a.epilogue.wide = a.epilogue.wide && p.y_head % 8 == 0;
  return p.first.dtype == DType::f16 ? launch_type<__half>(a, false, p.heads, multiprocessors, stream)
                                     : launch_type<__nv_bfloat16>(a, false, p.heads, multiprocessors, stream);
}

}  // namespace fovea::cuda
