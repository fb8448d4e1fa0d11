#include "kernels/cuda/tiles/tiles_test.h"

#include "kernels/cuda/tiles/convert.cuh"
#include "kernels/cuda/tiles/cp_async.cuh"
#include "kernels/cuda/tiles/ldmatrix.cuh"
#include "kernels/cuda/tiles/mbarrier.cuh"
#include "kernels/cuda/tiles/mma.cuh"
#include "kernels/cuda/tiles/swizzle.cuh"

namespace fovea::cuda::tiles_test {
namespace {

__global__ void ldmatrix_kernel(int kind, const uint16_t* in, uint32_t* out) {
  __shared__ alignas(16) uint16_t tile[32 * 8];
  const int lane = lane_id();
  for (int i = lane; i < 32 * 8; i += 32)
    tile[i] = in[i];
  __syncwarp();
  uint32_t four[4] = {}, two[2] = {};
  const uint32_t address = shared_address(tile + 8 * (kind % 2 == 0 ? lane : lane % 16));
  if (kind == 0) ldmatrix_x4(four, address);
  if (kind == 1) ldmatrix_x2(two, address);
  if (kind == 2) ldmatrix_x4_trans(four, address);
  if (kind == 3) ldmatrix_x2_trans(two, address);
  for (int i = 0; i < 4; ++i)
    out[4 * lane + i] = kind % 2 == 0 ? four[i] : i < 2 ? two[i] : 0;
}

__device__ uint32_t pair(uint16_t low, uint16_t high) {
  return static_cast<uint32_t>(low) | static_cast<uint32_t>(high) << 16;
}

template <class T>
__global__ void mma_kernel(int k, const uint16_t* a, const uint16_t* b, const float* c, float* out) {
  const int g = lane_id() / 4, q = lane_id() % 4;
  float acc[4];
  for (int i = 0; i < 4; ++i)
    acc[i] = c[(g + 8 * (i / 2)) * 8 + 2 * q + i % 2];
  const auto from_a = [&](int row, int col) { return pair(a[row * k + col], a[row * k + col + 1]); };
  const auto from_b = [&](int row) { return pair(b[row * 8 + g], b[(row + 1) * 8 + g]); };
  if (k == 16) {
    const uint32_t fragment[4] = {from_a(g, 2 * q), from_a(g + 8, 2 * q), from_a(g, 2 * q + 8),
                                  from_a(g + 8, 2 * q + 8)};
    Mma<T>::k16(acc, fragment, from_b(2 * q), from_b(2 * q + 8));
  } else {
    Mma<T>::k8(acc, from_a(g, 2 * q), from_a(g + 8, 2 * q), from_b(2 * q));
  }
  for (int i = 0; i < 4; ++i)
    out[(g + 8 * (i / 2)) * 8 + 2 * q + i % 2] = acc[i];
}

__global__ void cp_async_kernel(int size, const uint8_t* in, uint8_t* out, int count) {
  extern __shared__ __align__(16) uint8_t tile[];
  for (int i = static_cast<int>(threadIdx.x); i < count * size; i += static_cast<int>(blockDim.x))
    tile[i] = 0xee;
  __syncthreads();
  const int i = static_cast<int>(threadIdx.x);
  for (int half = 0; half < 2; ++half) {
    if (i < count && i % 2 == half) {
      const uint32_t to = shared_address(tile + i * size);
      const uint8_t* from = in + i * size;
      const bool valid = i % 3 != 2;
      if (size == 4) cp_async_4(to, from, valid);
      if (size == 8) cp_async_8(to, from, valid);
      if (size == 16) cp_async_16(to, from, valid);
    }
    cp_async_commit();
  }
  cp_async_wait<1>();
  cp_async_wait<0>();
  __syncthreads();
  for (int b = i; b < count * size; b += static_cast<int>(blockDim.x))
    out[b] = tile[b];
}

template <int kRowBytes>
__global__ void swizzled_rows_kernel(const uint8_t* in, uint32_t* out) {
  __shared__ __align__(1024) uint8_t tile[64 * kRowBytes];
  constexpr int kChunks = kRowBytes / 16;
  for (int i = static_cast<int>(threadIdx.x); i < 64 * kChunks; i += static_cast<int>(blockDim.x))
    *reinterpret_cast<uint4*>(tile + swizzled_chunk<kRowBytes>(i / kChunks, i % kChunks)) =
        *reinterpret_cast<const uint4*>(in + i * 16);
  __syncthreads();
  const int lane = lane_id();
  for (int rows = 0; rows < 8; ++rows)
    for (int c = 0; c < kChunks / 4; ++c) {
      uint32_t r[4];
      ldmatrix_x4(r, shared_address(tile) + swizzled_chunk<kRowBytes>(rows * 8 + lane % 8, c * 4 + lane / 8));
      for (int i = 0; i < 4; ++i)
        out[(rows * (kChunks / 4) + c) * 128 + lane * 4 + i] = r[i];
    }
}

__global__ void convert_kernel(int kind, const uint32_t* in, uint32_t* out, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= count) return;
  if (kind == 6) {
    float x[4];
    int8x4_to_float(x, in[i]);
    for (int j = 0; j < 4; ++j)
      out[4 * i + j] = __float_as_uint(x[j]);
    return;
  }
  uint32_t r[2] = {};
  if (kind == 0) e4m3x4_to<__half>(r, in[i]);
  if (kind == 1) e4m3x4_to<__nv_bfloat16>(r, in[i]);
  if (kind == 2) e5m2x4_to<__half>(r, in[i]);
  if (kind == 3) e5m2x4_to<__nv_bfloat16>(r, in[i]);
  if (kind == 4) int8x4_to<__half>(r, in[i]);
  if (kind == 5) int8x4_to<__nv_bfloat16>(r, in[i]);
  out[2 * i] = r[0];
  out[2 * i + 1] = r[1];
}

template <class T>
__global__ void pack_kernel(const float* in, float* out, int count) {
  const int i = static_cast<int>(threadIdx.x);
  if (2 * i + 1 >= count) return;
  const float2 x = unpack<T>(pack<T>(in[2 * i], in[2 * i + 1]));
  out[2 * i] = x.x;
  out[2 * i + 1] = x.y;
}

__global__ void lane_kernel(const float* in, float* out) {
  const int i = static_cast<int>(threadIdx.x);
  out[i] = quad_max(in[i]);
  out[32 + i] = quad_sum(in[i]);
  out[64 + i] = exp2_approx(in[i]);
  out[96 + i] = log2_approx(in[i]);
  out[128 + i] = tanh_approx(in[i]);
}

/// Arrival counts and named barriers without try_wait, which sm_80 lacks: test_wait is what it has.
__device__ void wait_sm80(uint32_t barrier, uint32_t parity) {
  uint32_t done = 0;
  while (done == 0)
    asm volatile(
        "{\n.reg .pred p;\nmbarrier.test_wait.parity.shared.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
}

__global__ void barrier_ring_kernel(const int* in, int* out, int count) {
  constexpr int kStages = 3;
  __shared__ __align__(16) int slots[kStages][32];
  __shared__ __align__(8) uint64_t full[kStages], empty[kStages];
  const int lane = lane_id();
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      mbarrier_init(shared_address(&full[s]), 32);
      mbarrier_init(shared_address(&empty[s]), 32);
    }
  }
  named_barrier_sync(1, 64);
  RingPosition<kStages> at;
  for (int i = lane; i < count; i += 32, at.next()) {
    if (threadIdx.x < 32) {
      wait_sm80(shared_address(&empty[at.slot]), at.phase ^ 1);
      cp_async_4(shared_address(&slots[at.slot][lane]), in + i);
      cp_async_mbarrier_arrive(shared_address(&full[at.slot]));
    } else {
      wait_sm80(shared_address(&full[at.slot]), at.phase);
      out[i] = slots[at.slot][lane] + 1;
      mbarrier_arrive(shared_address(&empty[at.slot]));
    }
  }
}

}  // namespace

void ldmatrix(int kind, const uint16_t* in, uint32_t* out, cudaStream_t stream) {
  ldmatrix_kernel<<<1, 32, 0, stream>>>(kind, in, out);
}

void mma(bool bf16, int k, const uint16_t* a, const uint16_t* b, const float* c, float* out,
         cudaStream_t stream) {
  if (bf16)
    mma_kernel<__nv_bfloat16><<<1, 32, 0, stream>>>(k, a, b, c, out);
  else
    mma_kernel<__half><<<1, 32, 0, stream>>>(k, a, b, c, out);
}

void cp_async(int size, const uint8_t* in, uint8_t* out, int count, cudaStream_t stream) {
  cp_async_kernel<<<1, 256, static_cast<size_t>(size * count), stream>>>(size, in, out, count);
}

void swizzled_rows(int row_bytes, const uint8_t* in, uint32_t* out, cudaStream_t stream) {
  if (row_bytes == 64) swizzled_rows_kernel<64><<<1, 32, 0, stream>>>(in, out);
  if (row_bytes == 128) swizzled_rows_kernel<128><<<1, 32, 0, stream>>>(in, out);
  if (row_bytes == 256) swizzled_rows_kernel<256><<<1, 32, 0, stream>>>(in, out);
  if (row_bytes == 512) swizzled_rows_kernel<512><<<1, 32, 0, stream>>>(in, out);
}

void convert(int kind, const uint32_t* in, uint32_t* out, int count, cudaStream_t stream) {
  convert_kernel<<<static_cast<unsigned>((count + 255) / 256), 256, 0, stream>>>(kind, in, out, count);
}

void pack_pairs(bool bf16, const float* in, float* out, int count, cudaStream_t stream) {
  if (bf16)
    pack_kernel<__nv_bfloat16><<<1, 512, 0, stream>>>(in, out, count);
  else
    pack_kernel<__half><<<1, 512, 0, stream>>>(in, out, count);
}

void lane_functions(const float* in, float* out, cudaStream_t stream) {
  lane_kernel<<<1, 32, 0, stream>>>(in, out);
}

void barrier_ring(const int* in, int* out, int count, cudaStream_t stream) {
  barrier_ring_kernel<<<1, 64, 0, stream>>>(in, out, count);
}

}  // namespace fovea::cuda::tiles_test
