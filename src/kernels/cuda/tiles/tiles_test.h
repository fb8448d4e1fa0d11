#pragma once
// Kernels of the tiles' tests: one CTA each, which moves its input through the wrapper and writes a result
// that the host can check.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace fovea::cuda::tiles_test {

/// in [8 * matrices, 8] of 16 bits; out[lane * 4 + i] = register i, for x4, x2, x4.trans, x2.trans (kind 0 to
/// 3).
void ldmatrix(int kind, const uint16_t* in, uint32_t* out, cudaStream_t stream);
/// out [16, 8] = a [16, k] b [k, 8] + c [16, 8], k = 8 or 16, bits of fp16 or bf16.
void mma(bool bf16, int k, const uint16_t* a, const uint16_t* b, const float* c, float* out,
         cudaStream_t stream);
/// Copies `count` pieces of `size` bytes (4, 8, 16); piece i is valid unless i % 3 == 2. In two groups.
void cp_async(int size, const uint8_t* in, uint8_t* out, int count, cudaStream_t stream);
/// Stores rows [64, row_bytes] through swizzled_chunk and loads them by ldmatrix; out as ldmatrix x4 of each
/// 8 x 4 chunks, out[((row / 8) * chunks / 4 + c) * 128 + lane * 4 + i].
void swizzled_rows(int row_bytes, const uint8_t* in, uint32_t* out, cudaStream_t stream);
/// For each of `count` words of 4 bytes: kind 0 e4m3 -> f16, 1 e4m3 -> bf16, 2 e5m2 -> f16, 3 e5m2 -> bf16,
/// 4 int8 -> f16, 5 int8 -> bf16: two words; 6 int8 -> fp32: four floats.
void convert(int kind, const uint32_t* in, uint32_t* out, int count, cudaStream_t stream);
/// Pairs of floats packed and unpacked again: out[2 i], out[2 i + 1].
void pack_pairs(bool bf16, const float* in, float* out, int count, cudaStream_t stream);
/// 32 values: out[i] = quad_max, out[32 + i] = quad_sum, then exp2, log2 and tanh of each.
void lane_functions(const float* in, float* out, cudaStream_t stream);
/// A producer warp fills a ring by cp.async, a consumer warp sums it (mbarriers, sm_80 forms): out[i] = in[i]
/// + 1.
void barrier_ring(const int* in, int* out, int count, cudaStream_t stream);

// For sm_90a.
/// One box of a 2-D map into shared memory, written out as it lies there; [bytes].
void tma_box(const CUtensorMap& map, int c0, int c1, int bytes, uint8_t* out, cudaStream_t stream);
/// The same of a 3-D map, and stored again through `to`.
void tma_through(const CUtensorMap& from, const CUtensorMap& to, int bytes, cudaStream_t stream);
/// `bytes` in through bulk_load.
void bulk(const uint8_t* in, uint8_t* out, int bytes, cudaStream_t stream);
/// stmatrix x4 of what ldmatrix x4 loaded: in, out [32, 8]; transposed on the way out if `transposed`.
void stmatrix(bool transposed, const uint16_t* in, uint16_t* out, cudaStream_t stream);
/// out [64, n] = a [64, 64] b: b [n, 64] (K-major) or [64, n] (MN-major, `trans`), bits; A from registers if
/// `a_in_registers`. n is one of 8 to 256 that wgmma_shapes.cuh has; MN-major n = 64. False = no such n.
bool wgmma(bool bf16, int n, bool a_in_registers, bool trans, const uint16_t* a, const uint16_t* b,
           float* out, cudaStream_t stream);

}  // namespace fovea::cuda::tiles_test
