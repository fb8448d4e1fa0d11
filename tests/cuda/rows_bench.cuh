#pragma once
// Times of the row operations at the widths of Llama-3.1-8B.
#include <numeric>

#include "attention/kv_view.h"
#include "kernels/cuda/append/append.h"
#include "kernels/cuda/rows/route.h"
#include "kernels/cuda/rows/row_ops.h"
#include "ops_case.cuh"

namespace fovea::cuda {

inline void report(const char* what, int64_t rows, float us, double bytes) {
  std::printf("%-34s T %6ld %9.2f us %8.1f GB/s\n", what, static_cast<long>(rows), us, bytes / us * 1e-3);
}

inline void bench_rows() {
  const int64_t dim = 4096, vocab = 128256;
  const DType t = DType::bf16;
  const Matrix table = Matrix(t, vocab, dim), weight = Matrix::random(DType::f32, 1, dim, 0, 1);
  for (const int64_t rows : {1, 64, 16384}) {
    const double n = static_cast<double>(rows) * dim;
    Matrix x(DType::f32, rows, dim), y(t, rows, dim), out(t, rows, dim);
    set_bytes(x.data(), 0, x.memory.count);
    set_bytes(y.data(), 0x3c, y.memory.count);
    std::vector<int32_t> host_ids;
    for (int64_t i = 0; i < rows; ++i)
      host_ids.push_back(static_cast<int32_t>(i * 7919 % vocab));
    const Device<int32_t> ids(host_ids);
    const int repeats = rows > 1000 ? 5 : 50;
    EmbedParams e;
    e.table = table.data(), e.layout = TableLayout::blocks16, e.n = vocab, e.dim = dim, e.ids = ids.data;
    e.y = static_cast<float*>(x.data()), e.y_stride = dim, e.rows = rows;
    report("embed, blocks of bf16", rows,
           microseconds([&](CudaStream& s) { LAUNCH(launch_embed(e, s)); }, repeats), 6 * n);
    NormParams p;
    p.x = x.data(), p.x_stride = dim, p.weight = static_cast<const float*>(weight.data()), p.eps = 1e-5f;
    p.y = out.data(), p.y_stride = dim, p.rows = rows, p.dim = dim;
    report("norm f32 to bf16", rows, microseconds([&](CudaStream& s) { LAUNCH(launch_norm(p, s)); }, repeats),
           6 * n);
    AddNormParams a;
    a.add.x = static_cast<float*>(x.data()), a.add.x_stride = dim, a.add.y = y.data(), a.add.y_stride = dim;
    a.add.rows = rows, a.add.dim = dim, a.weight = p.weight, a.eps = p.eps, a.out = out.data(),
    a.out_stride = dim;
    report("add_norm", rows, microseconds([&](CudaStream& s) { LAUNCH(launch_add_norm(a, s)); }, repeats),
           12 * n);
    report("add", rows, microseconds([&](CudaStream& s) { LAUNCH(launch_add(a.add, s)); }, repeats), 10 * n);
    const CastParams cast{x.data(), DType::f32, dim, out.data(), t, dim, rows, dim};
    report("cast f32 to bf16", rows,
           microseconds([&](CudaStream& s) { LAUNCH(launch_cast(cast, s)); }, repeats), 6 * n);
    const int64_t width = 14336;
    Matrix wide(t, rows, 2 * width), act(t, rows, width);
    set_bytes(wide.data(), 0x3c, wide.memory.count);
    GatedParams g;
    g.wide = wide.data(), g.wide_dtype = t, g.layout = GatedLayout::eights, g.wide_stride = 2 * width;
    g.out = act.data(), g.out_dtype = t, g.out_stride = width, g.rows = rows, g.width = width;
    report("gated silu, 14336", rows,
           microseconds([&](CudaStream& s) { LAUNCH(launch_gated(g, s)); }, repeats),
           6.0 * static_cast<double>(rows * width));
    Matrix logits = Matrix::random(DType::f32, rows, 128, 0, 9);
    const Device<float> weights(static_cast<size_t>(rows * 8));
    const Device<int32_t> chosen(static_cast<size_t>(rows * 8));
    RouteParams r;
    r.logits = static_cast<const float*>(logits.data()), r.logits_stride = 128, r.num_experts = 128,
    r.experts_per_token = 8;
    r.experts = chosen.data, r.weights = weights.data, r.rows = rows;
    report("route 8 of 128", rows, microseconds([&](CudaStream& s) { LAUNCH(launch_route(r, s)); }, repeats),
           576.0 * static_cast<double>(rows));
    for (const bool over_heads : {false, true}) {
      const int heads = 32, kv_heads = 8, d = 128, page = 16;
      const int64_t row = int64_t{heads + 2 * kv_heads} * d, pages = (rows + page - 1) / page;
      Matrix qkv = Matrix(t, rows, row), wide_weight = Matrix(DType::f32, 1, heads * d);
      set_bytes(qkv.data(), 0x3c, qkv.memory.count);
      set_bytes(wide_weight.data(), 0x3c, wide_weight.memory.count);
      Device<std::byte> cache(static_cast<size_t>(2 * pages * page * kv_heads * d) * 2);
      Device<float> cos(static_cast<size_t>(rows * d / 2)), sin(static_cast<size_t>(rows * d / 2));
      set_bytes(cos.data, 0, cos.count * 4);
      set_bytes(sin.data, 0, sin.count * 4);
      std::vector<int64_t> host_slots(static_cast<size_t>(rows));
      std::iota(host_slots.begin(), host_slots.end(), 0);
      const Device<int64_t> slots(host_slots);
      NormRopeAppendParams q;
      AppendParams& b = q.append;
      b.tokens = static_cast<int>(rows), b.num_heads = heads, b.num_kv_heads = kv_heads,
      b.head_dim = b.v_head_dim = d;
      b.q = b.q_out = qkv.data(), b.k = qkv.memory.data + heads * d * 2,
      b.v = qkv.memory.data + (heads + kv_heads) * d * 2;
      b.q_row_stride = b.k_row_stride = b.v_row_stride = b.q_out_row_stride = row;
      if (over_heads) b.q_norm = b.k_norm = {static_cast<const float*>(wide_weight.data()), 1e-5f};
      q.norm_over_heads = over_heads;
      b.rope.dim = d, b.rope.cos = cos.data, b.rope.sin = sin.data;
      b.kv = paged_view(KvLayout::hnd, KvCacheDType::bfloat16, kv_heads, page, d, d);
      b.kv.k = cache.data, b.kv.v = cache.data + cache.count / 2, b.slots = slots.data,
      b.num_slots = pages * page;
      report(over_heads ? "append, norm over heads" : "append, rope", rows,
             microseconds([&](CudaStream& s) { LAUNCH(launch_norm_rope_append(q, s)); }, repeats),
             4.0 * static_cast<double>(rows * row) + 4.0 * static_cast<double>(rows * d));
    }
  }
}

}  // namespace fovea::cuda
