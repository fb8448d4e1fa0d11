#include <algorithm>

#include "tune/tune.h"

namespace fovea::tune {
namespace {

void add(std::vector<LinearShape>& shapes, const char* name, int64_t n, int64_t k, bool gated = false,
         bool logits = false) {
  if (n < 1 || k < 1) return;
  for (LinearShape& shape : shapes)
    if (shape.n == n && shape.k == k && shape.gated == gated && shape.logits == logits) {
      if (std::ranges::find(shape.names, name) == shape.names.end()) shape.names.emplace_back(name);
      return;
    }
  shapes.push_back({n, k, gated, logits, {name}});
}

bool same(const cuda::WgmmaPlan& a, const cuda::WgmmaPlan& b) {
  return a.groups == b.groups && a.columns == b.columns && a.halves == b.halves && a.units == b.units &&
         a.parts == b.parts && a.even == b.even && a.x_rows == b.x_rows && a.blocks == b.blocks &&
         a.stages == b.stages && a.share == b.share && a.raster == b.raster && a.ctas == b.ctas;
}

}  // namespace

std::vector<int64_t> measured_rows(int64_t most) {
  std::vector<int64_t> out;
  for (const int64_t rows : {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192})
    if (rows <= most) out.push_back(rows);
  return out;
}

std::vector<cuda::LinearChoice> alternatives(const LinearShape& shape, int64_t rows, int multiprocessors) {
  using cuda::ClusterShare;
  using cuda::LinearKernel;
  std::vector<cuda::LinearChoice> out;
  std::vector<cuda::WgmmaPlan> seen = {
      plan_wgmma(rows, shape.n, shape.k, shape.gated, multiprocessors, LinearKernel::automatic)};
  const auto consider = [&](LinearKernel kernel, const cuda::WgmmaOptions& options) {
    const cuda::WgmmaPlan plan =
        plan_wgmma(rows, shape.n, shape.k, shape.gated, multiprocessors, kernel, options);
    if (std::ranges::any_of(seen, [&](const auto& other) { return same(plan, other); })) return;
    seen.push_back(plan);
    out.push_back({shape.n, shape.k, shape.gated, rows, rows, kernel, options});
  };
  for (const int groups : {1, 2}) {
    if (rows <= 64 && groups == 2) continue;
    if (rows > 1024) continue;  // parts of a few outputs for each row tile: far from the best
    for (const ClusterShare share : {ClusterShare::none, ClusterShare::x}) {
      for (const int units : {1, 2, 3, 4, 6, 8, 12, 16}) {
        cuda::WgmmaOptions options;
        options.share = share;
        options.units = units;
        options.halves = false;
        if (rows > 64) options.groups = groups;
        consider(LinearKernel::stream, options);
      }
      if (shape.gated) continue;
      cuda::WgmmaOptions options;
      options.share = share;
      options.halves = true;
      if (rows > 64) options.groups = groups;
      consider(LinearKernel::stream, options);
    }
  }
  if (rows > 64)
    for (const ClusterShare share : {ClusterShare::none, ClusterShare::weights})
      for (const int raster : {4, 8, 16, 32}) {
        cuda::WgmmaOptions options;
        options.share = share;
        options.raster = raster;
        consider(LinearKernel::tile, options);
      }
  return out;
}

std::vector<LinearShape> linear_shapes(const ModelConfig& c) {
  std::vector<LinearShape> out;
  const int64_t q = int64_t{c.num_heads} * c.head_dim, kv = int64_t{c.num_kv_heads} * c.head_dim;
  add(out, "qkv", q + 2 * kv, c.hidden_size);
  add(out, "o", c.hidden_size, q);
  for (const LayerConfig& layer : c.layers) {
    if (layer.moe) continue;
    add(out, "gate_up", 2 * int64_t{c.intermediate_size}, c.hidden_size, true);
    add(out, "down", c.hidden_size, c.intermediate_size);
  }
  add(out, "logits", c.vocab_size, c.hidden_size, false, true);
  std::ranges::stable_sort(out, std::greater(), [](const LinearShape& s) { return s.n * s.k; });
  return out;
}

}  // namespace fovea::tune
