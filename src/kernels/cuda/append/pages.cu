#include <string>

#include "device/cuda/cuda_error.h"
#include "fovea/result.h"
#include "kernels/cuda/append/append.h"
#include "kernels/cuda/append/store.cuh"

namespace fovea::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = 4;

/// One kind of data of a page (K, V or scales): `bytes` per page, pages `stride` apart.
struct PageBytes {
  std::byte* data = nullptr;
  int64_t bytes = 0, stride = 0;
};

struct PageKinds {
  PageBytes of[4];  // K, V, K scales, V scales
};

/// CTA (i, kind) copies one kind of data of pair i.
__global__ void copy_pages_kernel(const __grid_constant__ PageKinds kinds, IndexArray from, IndexArray to,
                                  int64_t num_pages) {
  const PageBytes kind = kinds.of[blockIdx.y];
  const int64_t source = from[blockIdx.x], target = to[blockIdx.x];
  if (source < 0 || source >= num_pages || target < 0 || target >= num_pages) return;
  const std::byte* in = kind.data + source * kind.stride;
  std::byte* out = kind.data + target * kind.stride;
  const bool by_16 = (reinterpret_cast<uintptr_t>(in) | reinterpret_cast<uintptr_t>(out)) % 16 == 0;
  const int64_t whole = by_16 ? kind.bytes / 16 : 0;
  for (int64_t i = threadIdx.x; i < whole; i += kThreads)
    reinterpret_cast<uint4*>(out)[i] = reinterpret_cast<const uint4*>(in)[i];
  for (int64_t i = whole * 16 + threadIdx.x; i < kind.bytes; i += kThreads)
    out[i] = in[i];
}

__device__ void store_as(void* out, DType dtype, int64_t at, float x) {
  switch (dtype) {
    case DType::f32: static_cast<float*>(out)[at] = x; return;
    case DType::f16: static_cast<uint16_t*>(out)[at] = float_to_fp16(x); return;
    case DType::bf16: static_cast<uint16_t*>(out)[at] = float_to_bf16(x); return;
  }
}

/// A warp gathers K or V of one (row, head).
__global__ void __launch_bounds__(32 * kWarps) gather_kernel(const __grid_constant__ GatherRows p) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t task = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  const int each = 2 * p.num_kv_heads;
  if (task >= static_cast<int64_t>(p.rows) * each) return;
  const int64_t row = task / each;
  const bool is_v = task % each >= p.num_kv_heads;
  const int head = static_cast<int>(task % each) - (is_v ? p.num_kv_heads : 0);
  const int n = is_v ? p.v_head_dim : p.head_dim;
  void* out = is_v ? p.v : p.k;
  const int64_t begin = (row * p.num_kv_heads + head) * n;
  const int64_t slot = p.slots[row];
  if (slot < 0 || slot >= p.num_slots) {
    for (int d = lane; d < n; d += 32)
      store_as(out, p.dtype, begin + d, 0.0f);
    return;
  }
  const RowPlace place = is_v ? v_place(p.kv, slot, head, n) : k_place(p.kv, slot, head, n);
  const float* scales = is_v ? p.kv.v_scales : p.kv.k_scales;
  const float scale = is_v ? p.kv.v_scale : p.kv.k_scale;
  const float of_token = scales == nullptr ? 1.0f : scales[place.scale_at];
  for (int d = lane; d < n; d += 32) {
    const float x = stored_value(is_v ? p.kv.v : p.kv.k, place.element(d), p.kv.dtype);
    store_as(out, p.dtype, begin + d, __fmul_rn(__fmul_rn(x, scale), of_token));
  }
}

std::string str(int64_t x) {
  return std::to_string(x);
}

}  // namespace

Status launch_copy_pages(const CopyPages& p, CudaStream& stream) {
  if (p.count < 0 || p.num_kv_heads < 1 || p.head_dim < 1 || p.v_head_dim < 1 || p.kv.page_size < 1 ||
      size_of(p.kv.dtype) == 0 || p.kv.k == nullptr || p.kv.v == nullptr ||
      (p.count > 0 && (p.from.data == nullptr || p.to.data == nullptr)))
    return invalid("copy_pages: " + str(p.count) + " pages of " + str(p.kv.page_size) + " tokens, " +
                   str(p.num_kv_heads) + " heads of " + str(p.head_dim) + "/" + str(p.v_head_dim) +
                   " need a cache and two lists of ids");
  if (p.count == 0) return {};
  const auto item = static_cast<int64_t>(size_of(p.kv.dtype));
  const int64_t rows = int64_t{p.num_kv_heads} * p.kv.page_size;
  const auto bytes_of = [](const void* data) {
    return const_cast<std::byte*>(static_cast<const std::byte*>(data));
  };
  constexpr int64_t kScale = sizeof(float);
  PageKinds kinds;
  kinds.of[0] = {bytes_of(p.kv.k), rows * p.head_dim * item, p.kv.k_page_stride * item};
  kinds.of[1] = {bytes_of(p.kv.v), rows * p.v_head_dim * item, p.kv.v_page_stride * item};
  kinds.of[2] = {bytes_of(p.kv.k_scales), rows * kScale, p.kv.scale_page_stride * kScale};
  kinds.of[3] = {bytes_of(p.kv.v_scales), rows * kScale, p.kv.scale_page_stride * kScale};
  const dim3 grid(static_cast<unsigned>(p.count), p.kv.k_scales != nullptr ? 4 : 2);
  copy_pages_kernel<<<grid, kThreads, 0, stream.handle()>>>(kinds, p.from, p.to, p.num_pages);
  FOVEA_CUDA_TRY(cudaGetLastError());
  return {};
}

Status launch_gather_rows(const GatherRows& p, CudaStream& stream) {
  if (p.rows < 0 || p.num_kv_heads < 1 || p.head_dim < 1 || p.v_head_dim < 1 || size_of(p.kv.dtype) == 0 ||
      (p.rows > 0 && (p.slots.data == nullptr || p.k == nullptr || p.v == nullptr || p.kv.k == nullptr ||
                      p.kv.v == nullptr)))
    return invalid("gather_rows: " + str(p.rows) + " rows of " + str(p.num_kv_heads) + " heads of " +
                   str(p.head_dim) + "/" + str(p.v_head_dim) + " need a cache, slots and two outputs");
  const int64_t blocks = (int64_t{p.rows} * 2 * p.num_kv_heads + kWarps - 1) / kWarps;
  if (blocks == 0) return {};
  if (blocks > INT32_MAX) return invalid("gather_rows: " + str(p.rows) + " rows are too many for one launch");
  gather_kernel<<<static_cast<unsigned>(blocks), 32 * kWarps, 0, stream.handle()>>>(p);
  FOVEA_CUDA_TRY(cudaGetLastError());
  return {};
}

}  // namespace fovea::cuda
