#include "kernels/cuda/portable/access.h"

#include <initializer_list>

namespace fovea::cuda::portable {
namespace {

bool aligned(const void* pointer, int64_t bytes, std::initializer_list<int64_t> strides) {
  if (reinterpret_cast<uintptr_t>(pointer) % bytes != 0) return false;
  for (const int64_t stride : strides)
    if (stride % bytes != 0) return false;
  return true;
}

}  // namespace

Access access_of(const KernelInfo& kernel, const AttentionParams& p) {
  const bool in_float = computes_in_float(kernel.q, kernel.kv);
  const int chunk = in_float ? 4 : 8, compute_bytes = in_float ? 4 : 2;
  const auto mode = [&](bool wide, int bytes) {
    return !wide ? Load::scalar : bytes == compute_bytes ? Load::copy : Load::wide;
  };
  Access a;
  a.q = kernel.q;
  a.kv = kernel.kv;
  const int q_bytes = kernel.q == QueryType::f32 ? 4 : 2;
  const auto rows_aligned = [&](const void* pointer, const RowLayout& rows, int elements, int dim) {
    return aligned(pointer, int64_t{elements} * q_bytes,
                   {rows.row_stride * q_bytes, rows.block_gap * q_bytes, int64_t{rows.head_stride} * q_bytes,
                    int64_t{dim} * q_bytes});
  };
  a.load_q = mode(rows_aligned(p.q, p.q_rows, chunk, p.head_dim), q_bytes);
  const int bytes = kv_bytes(kernel.kv);
  const KvParams& kv = p.kv;
  a.load_k = mode(aligned(kv.k, int64_t{chunk} * bytes,
                          {kv.k_page_stride, kv.k_slot_stride, kv.k_head_stride, kv.k_chunk_stride,
                           int64_t{p.head_dim} * bytes}),
                  bytes);
  const bool dense = kv.v_dim_stride == 0 || kv.v_dim_stride == bytes;
  a.load_v = mode(
      dense && aligned(kv.v, int64_t{chunk} * bytes,
                       {kv.v_page_stride, kv.v_slot_stride, kv.v_head_stride, int64_t{p.v_head_dim} * bytes}),
      bytes);
  a.x_packed = kv.k_chunk_stride != 0;
  a.wide_out = rows_aligned(p.out, p.out_rows, 4, p.v_head_dim);
  return a;
}

}  // namespace fovea::cuda::portable
