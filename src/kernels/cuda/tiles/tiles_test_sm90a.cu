#include "kernels/cuda/tiles/ldmatrix.cuh"
#include "kernels/cuda/tiles/mbarrier.cuh"
#include "kernels/cuda/tiles/swizzle.cuh"
#include "kernels/cuda/tiles/tiles_test.h"
#include "kernels/cuda/tiles/tma.cuh"
#include "kernels/cuda/tiles/wgmma_shapes.cuh"

namespace fovea::cuda::tiles_test {
namespace {

constexpr int kMostBytes = 32 << 10;

/// The barrier of one transfer, ready to use by all.
__device__ void start_barrier(uint64_t& barrier) {
  if (threadIdx.x == 0) {
    mbarrier_init(shared_address(&barrier), 1);
    mbarrier_init_fence();
  }
  __syncthreads();
}

__device__ void copy_out(const uint8_t* tile, uint8_t* out, int bytes) {
  for (int i = static_cast<int>(threadIdx.x); i < bytes; i += static_cast<int>(blockDim.x))
    out[i] = tile[i];
}

__global__ void tma_box_kernel(const __grid_constant__ CUtensorMap map, int c0, int c1, int bytes,
                               uint8_t* out) {
  __shared__ __align__(1024) uint8_t tile[kMostBytes];
  __shared__ __align__(8) uint64_t barrier;
  start_barrier(barrier);
  if (threadIdx.x == 0) {
    tma_prefetch(&map);
    mbarrier_arrive_expect_tx(shared_address(&barrier), static_cast<uint32_t>(bytes));
    tma_load_2d(shared_address(tile), &map, shared_address(&barrier), c0, c1);
  }
  mbarrier_wait(shared_address(&barrier), 0);
  copy_out(tile, out, bytes);
}

__global__ void tma_through_kernel(const __grid_constant__ CUtensorMap from,
                                   const __grid_constant__ CUtensorMap to, int bytes) {
  __shared__ __align__(1024) uint8_t tile[kMostBytes];
  __shared__ __align__(8) uint64_t barrier;
  start_barrier(barrier);
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect_tx(shared_address(&barrier), static_cast<uint32_t>(bytes));
    tma_load_3d(shared_address(tile), &from, shared_address(&barrier), 0, 0, 0, CacheHint::evict_first);
  }
  mbarrier_wait(shared_address(&barrier), 0);
  // Every byte changes, so that the fence between ordinary writes and the store is needed.
  for (int i = static_cast<int>(threadIdx.x); i < bytes; i += static_cast<int>(blockDim.x))
    tile[i] = static_cast<uint8_t>(tile[i] ^ 0x55u);
  fence_proxy_async();
  __syncthreads();
  if (threadIdx.x == 0) {
    tma_store_3d(&to, shared_address(tile), 0, 0, 0);
    bulk_commit();
    bulk_wait_read<0>();
    bulk_wait<0>();
  }
}

__global__ void bulk_kernel(const uint8_t* in, uint8_t* out, int bytes) {
  __shared__ __align__(1024) uint8_t tile[kMostBytes];
  __shared__ __align__(8) uint64_t barrier;
  start_barrier(barrier);
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect_tx(shared_address(&barrier), static_cast<uint32_t>(bytes));
    bulk_load(shared_address(tile), in, static_cast<uint32_t>(bytes), shared_address(&barrier),
              CacheHint::evict_last);
  }
  mbarrier_wait(shared_address(&barrier), 0);
  copy_out(tile, out, bytes);
}

__global__ void stmatrix_kernel(bool transposed, const uint16_t* in, uint16_t* out) {
  __shared__ __align__(16) uint16_t from[32 * 8], to[32 * 8];
  const int lane = lane_id();
  for (int i = lane; i < 32 * 8; i += 32)
    from[i] = in[i];
  __syncwarp();
  uint32_t r[4];
  ldmatrix_x4(r, shared_address(from + 8 * lane));
  if (transposed)
    stmatrix_x4_trans(shared_address(to + 8 * lane), r);
  else
    stmatrix_x4(shared_address(to + 8 * lane), r);
  __syncwarp();
  for (int i = lane; i < 32 * 8; i += 32)
    out[i] = to[i];
}

constexpr int kDepth = 64;  // k of the products: one 128-byte panel

template <class T, int kColumns, bool kRegisters, bool kTrans>
__global__ void __launch_bounds__(128) wgmma_kernel(const uint16_t* a, const uint16_t* b, float* out) {
  __shared__ __align__(1024) uint16_t tile_a[64 * kDepth];
  __shared__ __align__(1024) uint16_t tile_b[kColumns * kDepth];
  const int t = static_cast<int>(threadIdx.x), g = t % 32 / 4, q = t % 4, w = t / 32;
  const auto fill = [&](uint16_t* tile, const uint16_t* from, int rows) {  // rows of 64 elements, swizzled
    for (int i = t; i < rows * 8; i += 128)
      *reinterpret_cast<uint4*>(reinterpret_cast<uint8_t*>(tile) + swizzled_chunk<128>(i / 8, i % 8)) =
          *reinterpret_cast<const uint4*>(from + i * 8);
  };
  fill(tile_a, a, 64);
  fill(tile_b, b, kTrans ? kDepth : kColumns);
  fence_proxy_async();
  __syncthreads();
  float d[kColumns / 2];
  uint32_t fragments[kDepth / 16][4];
#pragma unroll
  for (int k = 0; k < kDepth / 16; ++k)
#pragma unroll
    for (int r = 0; r < 4; ++r)
      fragments[k][r] = *reinterpret_cast<const uint32_t*>(a + (16 * w + g + 8 * (r % 2)) * kDepth + 16 * k +
                                                           8 * (r / 2) + 2 * q);
  const uint64_t from_a = wgmma_descriptor(shared_address(tile_a), 0, 1024, TileSwizzle::span_128);
  const uint64_t from_b = wgmma_descriptor(shared_address(tile_b), 0, 1024, TileSwizzle::span_128);
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < kDepth / 16; ++k) {
    const uint64_t slice_b =
        wgmma_advance(from_b, kTrans ? static_cast<uint32_t>(k) * 2048u : static_cast<uint32_t>(k) * 32u);
    if constexpr (kRegisters)
      Wgmma<T, kColumns>::template rs<kTrans>(d, fragments[k], slice_b, k > 0);
    else
      Wgmma<T, kColumns>::template ss<false, kTrans>(d, wgmma_advance(from_a, static_cast<uint32_t>(k) * 32u),
                                                     slice_b, k > 0);
  }
  wgmma_commit();
  wgmma_wait<0>();
  wgmma_pin(d);
#pragma unroll
  for (int i = 0; i < kColumns / 2; ++i)
    out[(16 * w + g + 8 * (i / 2 % 2)) * kColumns + 8 * (i / 4) + 2 * q + i % 2] = d[i];
}

template <class T, int kColumns>
void launch_wgmma(bool registers, bool trans, const uint16_t* a, const uint16_t* b, float* out,
                  cudaStream_t stream) {
  if constexpr (kColumns == 64) {
    if (trans && registers) return wgmma_kernel<T, 64, true, true><<<1, 128, 0, stream>>>(a, b, out);
    if (trans) return wgmma_kernel<T, 64, false, true><<<1, 128, 0, stream>>>(a, b, out);
  }
  if (registers)
    wgmma_kernel<T, kColumns, true, false><<<1, 128, 0, stream>>>(a, b, out);
  else
    wgmma_kernel<T, kColumns, false, false><<<1, 128, 0, stream>>>(a, b, out);
}

template <class T>
bool launch_wgmma(int n, bool registers, bool trans, const uint16_t* a, const uint16_t* b, float* out,
                  cudaStream_t stream) {
  switch (n) {
    case 8: launch_wgmma<T, 8>(registers, trans, a, b, out, stream); return true;
    case 16: launch_wgmma<T, 16>(registers, trans, a, b, out, stream); return true;
    case 32: launch_wgmma<T, 32>(registers, trans, a, b, out, stream); return true;
    case 64: launch_wgmma<T, 64>(registers, trans, a, b, out, stream); return true;
    case 80: launch_wgmma<T, 80>(registers, trans, a, b, out, stream); return true;
    case 96: launch_wgmma<T, 96>(registers, trans, a, b, out, stream); return true;
    case 128: launch_wgmma<T, 128>(registers, trans, a, b, out, stream); return true;
    case 160: launch_wgmma<T, 160>(registers, trans, a, b, out, stream); return true;
    case 176: launch_wgmma<T, 176>(registers, trans, a, b, out, stream); return true;
    case 192: launch_wgmma<T, 192>(registers, trans, a, b, out, stream); return true;
    case 256: launch_wgmma<T, 256>(registers, trans, a, b, out, stream); return true;
    default: return false;
  }
}

}  // namespace

void tma_box(const CUtensorMap& map, int c0, int c1, int bytes, uint8_t* out, cudaStream_t stream) {
  tma_box_kernel<<<1, 128, 0, stream>>>(map, c0, c1, bytes, out);
}

void tma_through(const CUtensorMap& from, const CUtensorMap& to, int bytes, cudaStream_t stream) {
  tma_through_kernel<<<1, 128, 0, stream>>>(from, to, bytes);
}

void bulk(const uint8_t* in, uint8_t* out, int bytes, cudaStream_t stream) {
  bulk_kernel<<<1, 128, 0, stream>>>(in, out, bytes);
}

void stmatrix(bool transposed, const uint16_t* in, uint16_t* out, cudaStream_t stream) {
  stmatrix_kernel<<<1, 32, 0, stream>>>(transposed, in, out);
}

bool wgmma(bool bf16, int n, bool a_in_registers, bool trans, const uint16_t* a, const uint16_t* b,
           float* out, cudaStream_t stream) {
  if (trans && n != 64) return false;
  if (bf16) return launch_wgmma<__nv_bfloat16>(n, a_in_registers, trans, a, b, out, stream);
  return launch_wgmma<__half>(n, a_in_registers, trans, a, b, out, stream);
}

}  // namespace fovea::cuda::tiles_test
