// Device program of the row operations: `cuda_rows check` is the test, `cuda_rows bench` prints times.
#include <numbers>
#include <numeric>
#include <utility>

#include "kernels/cuda/rows/route.h"
#include "kernels/cuda/rows/row_ops.h"
#include "lora_check.cuh"
#include "rows_append.cuh"
#include "rows_bench.cuh"

using namespace fovea;
using namespace fovea::cuda;

// ---- norms

struct NormCase {
  int64_t rows, dim, gap;
  DType x, y;
  bool layer;
  float eps = 1e-5f;

  std::string name() const {
    return std::string(layer ? "layer norm " : "norm ") + std::to_string(rows) + " x " + std::to_string(dim) +
           " " + name_of(x) + " to " + name_of(y);
  }
};

/// In fp64. `skip`: a defect, elements left out of the sums.
static std::vector<double> norm_reference(const NormCase& c, const std::vector<float>& x,
                                          const std::vector<float>& w, const std::vector<float>& b,
                                          int64_t skip = 0) {
  std::vector<double> out(x.size());
  for (int64_t r = 0; r < c.rows; ++r) {
    const float* row = x.data() + r * c.dim;
    double mean = 0, squares = 0;
    for (int64_t i = 0; c.layer && i < c.dim - skip; ++i)
      mean += row[i];
    mean /= static_cast<double>(c.dim);
    for (int64_t i = 0; i < c.dim - skip; ++i)
      squares += (row[i] - mean) * (row[i] - mean);
    const double by = 1 / std::sqrt(squares / static_cast<double>(c.dim) + c.eps);
    for (int64_t i = 0; i < c.dim; ++i)
      out[static_cast<size_t>(r * c.dim + i)] =
          (row[i] - mean) * by * w[static_cast<size_t>(i)] + (c.layer ? b[static_cast<size_t>(i)] : 0);
  }
  return out;
}

static NormParams norm_params(const NormCase& c, const Matrix& x, const Matrix& y, const Matrix& w,
                              const Matrix& b) {
  NormParams p;
  p.x = x.data(), p.x_dtype = c.x, p.x_stride = x.stride;
  p.weight = static_cast<const float*>(w.data()),
  p.bias = c.layer ? static_cast<const float*>(b.data()) : nullptr;
  p.eps = c.eps, p.y = y.data(), p.y_dtype = c.y, p.y_stride = y.stride, p.rows = c.rows, p.dim = c.dim;
  return p;
}

static void check_norm(const NormCase& c) {
  const Matrix w = Matrix::make(DType::f32, 1, c.dim, 0, [](int64_t, int64_t j) {
    return 1 + 0.2f * gaussian(1, static_cast<uint64_t>(j));
  });
  const Matrix b = Matrix::random(DType::f32, 1, c.dim, 0, 2);
  const Matrix x = Matrix::make(c.x, c.rows, c.dim, c.gap, [&](int64_t i, int64_t j) {
    return i == 2 && j == 0 ? kNan : 3 * gaussian(3, static_cast<uint64_t>(i * c.dim + j)) + 0.5f;
  });
  const Matrix y(c.y, c.rows, c.dim, c.gap);
  const NormParams p = norm_params(c, x, y, w, b);
  LAUNCH(launch_norm(p, stream()));
  const auto got = y.values(c.name()), in = x.values(c.name()), weight = w.values(""), bias = b.values("");
  expect(close(got, norm_reference(c, in, weight, bias), c.y, c.dim, 2e-6), c.name());
  if (c.dim > 2 && c.dim < 1000)
    expect(!close(got, norm_reference(c, in, weight, bias, 1), c.y, c.dim, 2e-6),
           c.name() + ": a lost element passed");
  for (const int64_t r : {int64_t{0}, c.rows - 1}) {  // alone
    const auto among = y.row_bytes(r);
    const Matrix one(c.y, 1, c.dim, 0);
    NormParams alone = p;
    alone.x = x.row(r), alone.y = one.data(), alone.y_stride = c.dim, alone.rows = 1;
    LAUNCH(launch_norm(alone, stream()));
    expect(one.row_bytes(0) == among, c.name() + ": a row's bits differ alone");
  }
  if (c.x != c.y) return;
  NormParams in_place = p;
  in_place.y = x.data();
  LAUNCH(launch_norm(in_place, stream()));
  expect(x.memory.host() == y.memory.host(), c.name() + ": in place");
}

static void check_add_norm(int64_t rows, int64_t dim, int64_t gap, DType y_type, DType out_type, bool layer) {
  const std::string name = "add_norm " + std::to_string(rows) + " x " + std::to_string(dim) + " " +
                           name_of(y_type) + " to " + name_of(out_type);
  const Matrix w = Matrix::random(DType::f32, 1, dim, 0, 1), b = Matrix::random(DType::f32, 1, dim, 0, 2);
  const auto make_x = [&] { return Matrix::random(DType::f32, rows, dim, gap, 3, 2.0f); };
  const Matrix x = make_x(), x2 = make_x(), y = Matrix::random(y_type, rows, dim, gap, 4);
  const Matrix out(out_type, rows, dim, gap), out2(out_type, rows, dim, gap);
  AddNormParams p;
  p.add.x = static_cast<float*>(x.data()), p.add.x_stride = x.stride;
  p.add.y = y.data(), p.add.y_dtype = y_type, p.add.y_stride = y.stride;
  p.add.scale = 0.22f, p.add.rows = rows, p.add.dim = dim;
  p.weight = static_cast<const float*>(w.data()),
  p.bias = layer ? static_cast<const float*>(b.data()) : nullptr;
  p.eps = 1e-6f, p.out = out.data(), p.out_dtype = out_type, p.out_stride = out.stride;
  const auto before = x.values(name), more = y.values(name);
  LAUNCH(launch_add_norm(p, stream()));
  const auto sum = x.values(name);
  bool exact = true;
  for (size_t i = 0; i < sum.size(); ++i)
    exact = exact && sum[i] == std::fma(0.22f, more[i], before[i]);
  expect(exact, name + ": the sum");
  AddParams add = p.add;
  add.x = static_cast<float*>(x2.data());
  LAUNCH(launch_add(add, stream()));
  NormParams norm;
  norm.x = x2.data(), norm.x_stride = x2.stride, norm.weight = p.weight, norm.bias = p.bias, norm.eps = p.eps;
  norm.y = out2.data(), norm.y_dtype = out_type, norm.y_stride = out2.stride, norm.rows = rows,
  norm.dim = dim;
  LAUNCH(launch_norm(norm, stream()));
  expect(x.memory.host() == x2.memory.host() && out.memory.host() == out2.memory.host(),
         name + ": differs from add, norm");
}

static void check_norms() {
  for (const int64_t dim : {1, 7, 64, 576, 896, 2880, 3584, 4096, 5120, 8192, 16384, 20003})
    for (const DType type : kTypes)
      for (const bool layer : {false, true}) {
        check_norm({5, dim, 0, DType::f32, type, layer});
        check_norm({5, dim, dim % 2 == 0 ? 12 : 3, type, type, layer});
        check_add_norm(5, dim, 8, type, type, layer);
        check_add_norm(3, dim, 5, DType::f32, type, layer);
      }
  check_norm({4096, 896, 0, DType::f32, DType::bf16, false});
  check_norm({4096, 4096, 0, DType::bf16, DType::bf16, false});
}

// ---- embedding, cast, gather, tokens, gated activations

/// Element (n, k) of a table in blocks, in elements from its start.
static int64_t in_blocks(int64_t n, int64_t k, int64_t dim) {
  return (n / 16 * ((dim + 63) / 64) + k / 64) * 1024 + n % 16 * 64 + ((k % 64 / 8) ^ (n % 8)) * 8 + k % 8;
}

static void check_embed(DType type, bool blocks, int64_t dim, int64_t gap, float scale) {
  const std::string name = "embed " + name_of(type) + (blocks ? " blocks " : " ") + std::to_string(dim);
  const int64_t n = 83;
  const auto value = [&](int64_t i, int64_t j) {
    return rounded_to(type, gaussian(5, static_cast<uint64_t>(i * dim + j)));
  };
  const int64_t padded = blocks ? (n + 15) / 16 * 16 * ((dim + 63) / 64) * 64 : 0;
  const Matrix rows = Matrix::make(type, n, dim, gap, value);
  std::vector<std::byte> packed(static_cast<size_t>(padded) * size_of(type));
  for (int64_t i = 0; blocks && i < n; ++i)
    for (int64_t j = 0; j < dim; ++j)
      to_bits(type, value(i, j), packed.data() + static_cast<size_t>(in_blocks(i, j, dim)) * size_of(type));
  const Device<std::byte> table(packed);
  const std::vector<int32_t> ids = {0, 82, 17, -1, 5, 83, 16, 5, INT32_MAX};
  const Device<int32_t> device_ids(ids);
  const auto count = static_cast<int64_t>(ids.size());
  const Matrix y(DType::f32, count, dim, gap);
  EmbedParams p;
  p.table = blocks ? table.data : rows.data(), p.table_dtype = type;
  p.layout = blocks ? TableLayout::blocks16 : TableLayout::rows, p.table_stride = rows.stride;
  p.n = n, p.dim = dim, p.ids = device_ids.data, p.scale = scale;
  p.y = static_cast<float*>(y.data()), p.y_stride = y.stride, p.rows = count;
  LAUNCH(launch_embed(p, stream()));
  const auto got = y.values(name);
  bool good = true;
  for (int64_t r = 0; r < count; ++r)
    for (int64_t j = 0; j < dim; ++j) {
      const int32_t id = ids[static_cast<size_t>(r)];
      const float x = got[static_cast<size_t>(r * dim + j)];
      good = good && (id < 0 || id >= n ? std::isnan(x) : x == value(id, j) * scale);
    }
  expect(good, name);
}

static void check_cast(DType from, DType to, int64_t dim, int64_t gap) {
  const Matrix x = Matrix::random(from, 9, dim, gap, 6), y(to, 9, dim, gap);
  LAUNCH(launch_cast({x.data(), from, x.stride, y.data(), to, y.stride, 9, dim}, stream()));
  const std::string name = "cast " + name_of(from) + " to " + name_of(to) + " " + std::to_string(dim);
  const auto in = x.values(name), out = y.values(name);
  bool good = true;
  for (size_t i = 0; i < in.size(); ++i)
    good = good && out[i] == rounded_to(to, in[i]);
  expect(good, name);
}

static void check_gather(int bytes, int64_t dim, int64_t gap) {
  const std::string name = "gather " + std::to_string(bytes) + " bytes, " + std::to_string(dim);
  const auto b = static_cast<size_t>(bytes);
  const int64_t x_rows = 31, stride = dim + gap;
  std::vector<uint8_t> in(static_cast<size_t>(x_rows * stride) * b);
  for (size_t i = 0; i < in.size(); ++i)
    in[i] = static_cast<uint8_t>(i * 37 + i / 256);
  const Device<uint8_t> x(in);
  const std::vector<int32_t> ids = {30, 0, -1, 7, 31, 7};
  const Device<int32_t> device_ids(ids);
  Device<uint8_t> y(ids.size() * static_cast<size_t>(stride) * b);
  LAUNCH(launch_gather_dense_rows(
      {x.data, stride, x_rows, bytes, device_ids.data, y.data, stride, static_cast<int64_t>(ids.size()), dim},
      stream()));
  const auto out = y.host();
  bool good = true;
  for (size_t i = 0; i < out.size(); ++i) {
    const size_t row = i / (static_cast<size_t>(stride) * b), at = i % (static_cast<size_t>(stride) * b);
    const int32_t id = ids[row];
    const bool copied = at < static_cast<size_t>(dim) * b && id >= 0 && id < x_rows;
    good = good && out[i] == (copied ? in[static_cast<size_t>(id * stride) * b + at] : 0xff);
  }
  expect(good, name);
}

static void check_tokens() {
  const std::vector<int32_t> tokens = {10, 11, 12, 13}, slots = {3, -1, 0, 4, -7, 2},
                             old = {50, 51, 52, 53, 54, 55};
  const Device<int32_t> t(tokens), s(slots), ids(old);
  LAUNCH(launch_take_tokens({t.data, 4, s.data, ids.data, 6}, stream()));
  expect(ids.host() == std::vector<int32_t>({13, 51, 10, -1, 54, 12}), "take_tokens");
}

static double activation_reference(Activation f, double z) {
  switch (f) {
    case Activation::silu: return z / (1 + std::exp(-z));
    case Activation::gelu: return z / 2 * (1 + std::erf(z / std::numbers::sqrt2));
    case Activation::gelu_tanh:
      return z / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (z + 0.044715 * z * z * z)));
    case Activation::relu: return std::isnan(z) ? z : std::max(z, 0.0);
  }
  return 0;
}

static void check_gated(DType wide_type, DType out_type, GatedLayout layout, int64_t width, int64_t gap,
                        Activation f, float limit) {
  const bool eights = layout == GatedLayout::eights;
  const std::string name = "gated " + name_of(wide_type) + " to " + name_of(out_type) +
                           (eights ? " eights " : " halves ") + std::to_string(width) + " f " +
                           std::to_string(static_cast<int>(f)) + " limit " + std::to_string(limit);
  const Matrix wide = Matrix::make(wide_type, 6, 2 * width, gap, [&](int64_t i, int64_t j) {
    return i == 1 ? kNan : 4 * gaussian(7, static_cast<uint64_t>(i * 2 * width + j));
  });
  const Matrix out(out_type, 6, width, gap);
  GatedParams p;
  p.wide = wide.data(), p.wide_dtype = wide_type, p.layout = layout, p.wide_stride = wide.stride;
  p.f = f, p.limit = limit, p.out = out.data(), p.out_dtype = out_type, p.out_stride = out.stride;
  p.rows = 6, p.width = width;
  LAUNCH(launch_gated(p, stream()));
  const auto in = wide.values(name), got = out.values(name);
  std::vector<double> want(got.size());
  for (int64_t i = 0; i < 6; ++i)
    for (int64_t j = 0; j < width; ++j) {
      const int64_t g = eights ? j / 8 * 16 + j % 8 : j, u = eights ? g + 8 : g + width;
      double gate = in[static_cast<size_t>(i * 2 * width + g)],
             up = in[static_cast<size_t>(i * 2 * width + u)];
      double& y = want[static_cast<size_t>(i * width + j)];
      if (limit > 0) {
        gate = gate > limit ? limit : gate, up = up > limit ? limit : up < -limit ? -limit : up;
        y = (up + 1) * gate / (1 + std::exp(-1.702 * gate));
      } else {
        y = activation_reference(f, gate) * up;
      }
    }
  expect(close(got, want, out_type, width, 1e-6), name);
}

static void check_small_ops() {
  for (const DType type : kTypes) {
    for (const int64_t dim : {1, 66, 576, 896, 2880, 4096, 5000}) {
      check_embed(type, false, dim, 0, 1.0f);
      check_embed(type, false, dim, 3, 1.7f);
      if (type != DType::f32) check_embed(type, true, dim, 4, 64.0f);
      for (const DType to : kTypes)
        check_cast(type, to, dim, dim % 4);
    }
    for (const int64_t width : {8, 200, 2880, 14336})
      for (const GatedLayout layout : {GatedLayout::halves, GatedLayout::eights})
        for (int f = 0; f < kActivations; ++f) {
          check_gated(DType::f32, type, layout, width, 0, static_cast<Activation>(f), 0);
          check_gated(type, type, layout, width, 5, static_cast<Activation>(f), f == 0 ? 2.5f : 0);
        }
    check_gated(type, type, GatedLayout::halves, 37, 1, Activation::silu, 0);
  }
  for (const int bytes : {1, 2, 4, 8})
    for (const int64_t dim : {1, 33, 576, 4096})
      for (const int64_t gap : {0, 1, 16})
        check_gather(bytes, dim, gap);
  check_tokens();
}

// ---- routing

static bool above(float a, float b) {
  return a > b || (std::isnan(a) && !std::isnan(b));
}

static void check_route(Router router, bool renormalize, int experts, int k, int64_t rows) {
  const std::string name = "route " + std::to_string(static_cast<int>(router)) + " " + std::to_string(k) +
                           " of " + std::to_string(experts);
  const Matrix logits = Matrix::make(DType::f32, rows, experts, 3, [&](int64_t i, int64_t j) {
    const auto at = static_cast<uint64_t>(i * experts + j);
    if (i == 1) return std::round(gaussian(8, at));                    // ties
    if (i == 2) return j % 2 == 0 ? 0.0f : -0.0f;                      // equal zeros
    if (i == 3) return j == experts / 2 ? kNan : gaussian(8, at);      // NaN
    if (i == 4) return j % 3 == 0 ? -INFINITY : 50 * gaussian(8, at);  // -inf and far apart
    if (i == 5) return j == experts - 1 ? INFINITY : gaussian(8, at);
    return 3 * gaussian(8, at);
  });
  const size_t total = static_cast<size_t>(rows) * static_cast<size_t>(k);
  const Device<int32_t> ids(total);
  const Device<float> weights(total);
  RouteParams p;
  p.router = router, p.renormalize = renormalize, p.logits = static_cast<const float*>(logits.data());
  p.logits_stride = logits.stride, p.num_experts = experts, p.experts_per_token = k;
  p.experts = ids.data, p.weights = weights.data, p.rows = rows;
  LAUNCH(launch_route(p, stream()));
  const auto x = logits.values(name);
  const auto got_ids = ids.host();
  const auto got = weights.host();
  std::vector<double> want(total);
  std::vector<int32_t> want_ids(total), order(static_cast<size_t>(experts));
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = x.data() + r * experts;
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return above(row[a], row[b]); });
    const double top = *std::max_element(row, row + experts);
    double all = 0, chosen = 0;
    for (int e = 0; e < experts; ++e)
      all += std::exp(row[e] - top);
    for (int j = 0; j < k; ++j)
      chosen += std::exp(row[order[static_cast<size_t>(j)]] - top);
    for (int j = 0; j < k; ++j) {
      const size_t at = static_cast<size_t>(r * k + j);
      const double logit = row[order[static_cast<size_t>(j)]], e = std::exp(logit - top);
      want_ids[at] = order[static_cast<size_t>(j)];
      const bool of_all = router == Router::softmax_then_top && !renormalize;
      want[at] = router == Router::sigmoid_top ? 1 / (1 + std::exp(-logit)) : e / (of_all ? all : chosen);
      if (router == Router::softmax_then_top && std::isnan(all)) want[at] = NAN;
    }
  }
  expect(got_ids == want_ids, name + ": ids");
  expect(close(got, want, DType::f32, k, 2e-6), name + ": weights");
}

static void check_routes() {
  for (const Router router : {Router::softmax_then_top, Router::top_then_softmax, Router::sigmoid_top})
    for (const bool renormalize : {false, true})
      for (const auto& [experts, k] : {std::pair{1, 1},
                                       {8, 2},
                                       {32, 4},
                                       {60, 4},
                                       {128, 8},
                                       {128, 1},
                                       {256, 8},
                                       {1000, 32},
                                       {1024, 32},
                                       {40, 32}})
        check_route(router, renormalize, experts, k, 77);
}

int main(int argc, char** argv) {
  if (!have_gpu()) return 77;
  const std::string mode = argc > 1 ? argv[1] : "check";
  if (mode == "bench") {
    bench_rows();
    bench_loras();
    return 0;
  }
  progress("start");
  check_norms();
  progress("norms");
  check_small_ops();
  progress("embed, cast, gather, tokens, gated");
  check_routes();
  progress("route");
  check_appends();
  progress("append");
  check_loras();
  progress("adapters");
  std::printf("%s: %d failures\n", failures == 0 ? "passed" : "FAILED", failures);
  return failures == 0 ? 0 : 1;
}
