// Device program of the row operations: `cuda_rows check` is the test, `cuda_rows bench` prints times.
#include <numbers>
#include <numeric>

#include "attention/kv_view.h"
#include "kernels/cache/kv_writer.h"
#include "kernels/cuda/append/append.h"
#include "kernels/cuda/rows/route.h"
#include "kernels/cuda/rows/row_ops.h"
#include "ops_case.cuh"

using namespace fovea;
using namespace fovea::cuda;

static constexpr DType kTypes[] = {DType::f32, DType::f16, DType::bf16};
static constexpr float kNan = NAN;

static std::string name_of(DType type) {
  return std::string(to_string(type));
}

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

// ---- norm, rotation and the cache

struct AppendCase {
  DType dtype = DType::bf16;
  KvCacheDType cache = KvCacheDType::bfloat16;
  KvLayout layout = KvLayout::hnd;
  int tokens = 21, heads = 6, kv_heads = 2, dim = 128, rope = 128;
  bool norm = true, over_heads = false, after = false, interleaved = false;
  double temperature = 0;

  std::string name() const {
    return "append " + name_of(dtype) + " cache " + std::string(to_string(cache)) + " layout " +
           std::string(to_string(layout)) + " D " + std::to_string(dim) + " rope " + std::to_string(rope) +
           (over_heads ? " over heads" : "") + (after ? " after rope" : "") +
           (interleaved ? " interleaved" : "") + (temperature != 0 ? " temperature" : "");
  }
};

struct Appended {
  std::vector<float> q;
  std::vector<std::byte> cache;  ///< K, V, and the scales
};

struct AppendRun {
  AppendCase c;
  int pages = 6, page_size = 16;
  std::vector<int64_t> slots;
  std::vector<int32_t> positions;
  std::vector<float> qkv, cos, sin;

  int64_t width() const { return int64_t{c.heads + 2 * c.kv_heads} * c.dim; }
  size_t elements() const {
    return static_cast<size_t>(pages) * static_cast<size_t>(c.kv_heads * page_size * c.dim);
  }
  size_t scales() const { return static_cast<size_t>(pages) * static_cast<size_t>(c.kv_heads * page_size); }

  explicit AppendRun(const AppendCase& a) : c(a) {
    for (int t = 0; t < c.tokens; ++t) {
      slots.push_back(t == 3 ? -1 : (t * 5 + 2) % (pages * page_size));
      positions.push_back(t * 977);
    }
    qkv.resize(static_cast<size_t>(c.tokens * width()));
    for (size_t i = 0; i < qkv.size(); ++i)
      qkv[i] = rounded_to(
          c.dtype, (i / static_cast<size_t>(width()) == 5 && i % 131 == 0) ? kNan : 2 * gaussian(11, i));
    for (int i = 0; i < c.tokens * c.rope / 2; ++i) {
      const double angle = 0.37 * (i / (c.rope / 2)) * std::pow(10.0, -(i % (c.rope / 2)) / 32.0);
      cos.push_back(static_cast<float>(std::cos(angle))), sin.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  KvView view(std::byte* memory, KvCacheDType type) const {
    KvView v = paged_view(c.layout, type, c.kv_heads, page_size, c.dim, c.dim);
    const size_t bytes = elements() * size_of(type);
    v.k = memory, v.v = memory + bytes, v.num_pages = pages;
    if (type == KvCacheDType::fp8_e4m3) v.k_scale = 0.031f, v.v_scale = 0.5f;
    if (has_token_scales(type))
      v.k_scales = reinterpret_cast<float*>(memory + 2 * bytes), v.v_scales = v.k_scales + scales();
    return v;
  }
  size_t bytes(KvCacheDType type) const {
    return 2 * elements() * size_of(type) + 2 * scales() * sizeof(float);
  }

  /// Rows [first, first + count), with a cache of `type`.
  Appended run(KvCacheDType type, int first, int count) const {
    Device<std::byte> memory(bytes(type));
    Matrix in = Matrix::make(c.dtype, count, width(), 8, [&](int64_t i, int64_t j) {
      return qkv[static_cast<size_t>((first + i) * width() + j)];
    });
    const int64_t q_weights = c.over_heads ? int64_t{c.heads} * c.dim : c.dim,
                  k_weights = c.over_heads ? int64_t{c.kv_heads} * c.dim : c.dim;
    const Matrix wq = Matrix::random(DType::f32, 1, q_weights, 0, 21),
                 wk = Matrix::random(DType::f32, 1, k_weights, 0, 22);
    const auto part = [&](const auto& v, int each) {
      using T = typename std::decay_t<decltype(v)>::value_type;
      return Device<T>(std::vector<T>(v.begin() + first * each, v.begin() + (first + count) * each));
    };
    const auto device_slots = part(slots, 1);
    const auto device_positions = part(positions, 1);
    const auto device_cos = part(cos, c.rope / 2), device_sin = part(sin, c.rope / 2);
    NormRopeAppendParams p;
    AppendParams& a = p.append;
    a.tokens = count, a.num_heads = c.heads, a.num_kv_heads = c.kv_heads, a.head_dim = a.v_head_dim = c.dim,
    a.dtype = c.dtype;
    const auto offset = [&](int64_t n) { return in.memory.data + static_cast<size_t>(n) * size_of(c.dtype); };
    a.q = a.q_out = in.data();
    a.k = offset(int64_t{c.heads} * c.dim), a.v = offset(int64_t{c.heads + c.kv_heads} * c.dim);
    a.q_row_stride = a.k_row_stride = a.v_row_stride = a.q_out_row_stride = in.stride;
    if (c.norm) {
      a.q_norm = {static_cast<const float*>(wq.data()), 1e-6f};
      a.k_norm = {static_cast<const float*>(wk.data()), 1e-6f};
    }
    a.rope.dim = c.rope, a.rope.interleaved = c.interleaved, a.rope.cos = device_cos.data,
    a.rope.sin = device_sin.data;
    a.kv = view(memory.data, type), a.slots = device_slots.data, a.num_slots = int64_t{pages} * page_size;
    p.norm_over_heads = c.over_heads, p.norm_after_rope = c.after;
    p.temperature_scale = c.temperature, p.temperature_floor = 8192, p.positions = device_positions.data;
    LAUNCH(launch_norm_rope_append(p, stream()));
    const auto all = in.values(c.name());
    Appended out;
    for (int64_t i = 0; i < count; ++i)
      out.q.insert(out.q.end(), all.begin() + i * width(),
                   all.begin() + i * width() + int64_t{c.heads} * c.dim);
    out.cache = memory.host();
    return out;
  }

  /// q of all tokens, or k [tokens, kv_heads, dim], in fp64.
  std::vector<double> reference(bool is_k) const {
    const int heads = is_k ? c.kv_heads : c.heads;
    std::vector<double> out;
    for (int t = 0; t < c.tokens; ++t) {
      const auto begin = qkv.begin() + t * width() + (is_k ? int64_t{c.heads} * c.dim : 0);
      std::vector<double> row(begin, begin + int64_t{heads} * c.dim);
      const auto norm = [&] {
        const int64_t n = c.over_heads ? static_cast<int64_t>(row.size()) : c.dim;
        for (int64_t first = 0; c.norm && first < static_cast<int64_t>(row.size()); first += n) {
          double squares = 0;
          for (int64_t i = 0; i < n; ++i)
            squares += row[static_cast<size_t>(first + i)] * row[static_cast<size_t>(first + i)];
          for (int64_t i = 0; i < n; ++i)
            row[static_cast<size_t>(first + i)] *= gaussian(is_k ? 22 : 21, static_cast<uint64_t>(i)) /
                                                   std::sqrt(squares / static_cast<double>(n) + 1e-6);
        }
      };
      if (!c.after) norm();
      const int half = c.rope / 2;
      for (int h = 0; h < heads; ++h)
        for (int i = 0; i < half; ++i) {
          double& a = row[static_cast<size_t>(h * c.dim + (c.interleaved ? 2 * i : i))];
          double& b = row[static_cast<size_t>(h * c.dim + (c.interleaved ? 2 * i + 1 : i + half))];
          const double cs = cos[static_cast<size_t>(t * half + i)],
                       sn = sin[static_cast<size_t>(t * half + i)], x = a, y = b;
          a = x * cs - y * sn, b = y * cs + x * sn;
        }
      if (c.after) norm();
      if (!is_k && c.temperature != 0)
        for (double& x : row)
          x *= 1 + c.temperature * std::log1p(std::floor((positions[static_cast<size_t>(t)] + 1) / 8192.0));
      out.insert(out.end(), row.begin(), row.end());
    }
    return out;
  }
};

static void check_append(const AppendCase& c) {
  const AppendRun run(c);
  const Appended all = run.run(c.cache, 0, c.tokens);
  expect(close(all.q, run.reference(false), c.dtype, c.dim, 4e-6), c.name() + ": q");
  // K in fp32 as the device computes it, from a cache in fp32; the CPU then writes it in the cache's dtype.
  AppendRun dense = run;
  dense.c.layout = KvLayout::nhd;
  const auto exact = dense.run(KvCacheDType::float32, 0, c.tokens).cache;
  std::vector<float> k(static_cast<size_t>(c.tokens * c.kv_heads * c.dim)), v(k.size());
  const auto row = static_cast<size_t>(c.kv_heads * c.dim);
  for (size_t t = 0; t < static_cast<size_t>(c.tokens); ++t) {
    for (size_t i = 0; i < row; ++i)
      v[t * row + i] =
          run.qkv[t * static_cast<size_t>(run.width()) + static_cast<size_t>(c.heads * c.dim) + row + i];
    if (run.slots[t] >= 0)
      std::memcpy(k.data() + t * row, exact.data() + static_cast<size_t>(run.slots[t]) * row * 4, row * 4);
  }
  auto want_k = run.reference(true);
  std::fill_n(want_k.begin() + static_cast<int64_t>(3 * row), row, 0.0);  // not stored
  expect(close(k, want_k, DType::f32, c.dim, 4e-6), c.name() + ": k");
  std::vector<std::byte> cache(run.bytes(c.cache), std::byte{0xff});
  ThreadPool pool(1);
  write_kv(run.view(cache.data(), c.cache), c.kv_heads, c.dim, c.dim, run.slots, k.data(),
           static_cast<int64_t>(row), v.data(), static_cast<int64_t>(row), pool);
  expect(cache == all.cache, c.name() + ": the cache differs from the CPU's");
  // A row alone.
  const Appended alone = run.run(c.cache, 7, 1);
  expect(std::memcmp(alone.q.data(), all.q.data() + static_cast<size_t>(7 * c.heads * c.dim),
                     alone.q.size() * 4) == 0,
         c.name() + ": q differs alone");
  const std::string changed = c.name() + ": the cache differs alone";
  bool same = true;
  for (size_t i = 0; i < cache.size(); ++i)
    same = same && (alone.cache[i] == std::byte{0xff} || alone.cache[i] == all.cache[i]);
  expect(same, changed);
}

static void check_appends() {
  for (const DType dtype : kTypes)
    for (const KvCacheDType cache :
         {KvCacheDType::float32, KvCacheDType::float16, KvCacheDType::bfloat16, KvCacheDType::fp8_e4m3,
          KvCacheDType::fp8_e5m2, KvCacheDType::int8_per_token_head})
      for (const KvLayout layout : {KvLayout::hnd, KvLayout::nhd, KvLayout::x_packed, KvLayout::shuffle}) {
        AppendCase c;
        c.dtype = dtype, c.cache = cache, c.layout = layout;
        check_append(c);
        c.over_heads = true;
        check_append(c);
        c.after = true;
        check_append(c);
        c.over_heads = false, c.temperature = 0.1;
        check_append(c);
        c.after = false, c.interleaved = true, c.rope = 64;
        check_append(c);
        c.norm = false, c.dim = 80, c.rope = 80;
        check_append(c);
      }
  for (const auto& [dim, rope] :
       {std::pair{256, 256}, {256, 64}, {192, 128}, {96, 96}, {64, 32}, {128, 4}, {66, 20}, {512, 512}})
    for (const bool interleaved : {false, true}) {
      AppendCase c;
      c.dim = dim, c.rope = rope, c.interleaved = interleaved, c.temperature = interleaved ? 0.1 : 0;
      check_append(c);
    }
  AppendCase wide;
  wide.tokens = 4, wide.heads = 40, wide.kv_heads = 8, wide.over_heads = true;
  check_append(wide);
}

// ---- times

static void report(const char* what, int64_t rows, float us, double bytes) {
  std::printf("%-34s T %6ld %9.2f us %8.1f GB/s\n", what, static_cast<long>(rows), us, bytes / us * 1e-3);
}

static void bench() {
  const int64_t dim = 4096, vocab = 128256;
  const DType t = DType::bf16;
  const Matrix table = Matrix(t, vocab, dim), weight = Matrix::random(DType::f32, 1, dim, 0, 1);
  for (const int64_t rows : {1, 64, 16384}) {
    const double n = static_cast<double>(rows) * dim;
    Matrix x(DType::f32, rows, dim), y(t, rows, dim), out(t, rows, dim);
    CUDA_CHECK(cudaMemset(x.data(), 0, x.memory.count));
    CUDA_CHECK(cudaMemset(y.data(), 0x3c, y.memory.count));
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
    CUDA_CHECK(cudaMemset(wide.data(), 0x3c, wide.memory.count));
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
      CUDA_CHECK(cudaMemset(qkv.data(), 0x3c, qkv.memory.count));
      CUDA_CHECK(cudaMemset(wide_weight.data(), 0x3c, wide_weight.memory.count));
      Device<std::byte> cache(static_cast<size_t>(2 * pages * page * kv_heads * d) * 2);
      Device<float> cos(static_cast<size_t>(rows * d / 2)), sin(static_cast<size_t>(rows * d / 2));
      CUDA_CHECK(cudaMemset(cos.data, 0, cos.count * 4));
      CUDA_CHECK(cudaMemset(sin.data, 0, sin.count * 4));
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

int main(int argc, char** argv) {
  if (!have_gpu()) return 77;
  const std::string mode = argc > 1 ? argv[1] : "check";
  if (mode == "bench") {
    bench();
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
  std::printf("%s: %d failures\n", failures == 0 ? "passed" : "FAILED", failures);
  return failures == 0 ? 0 : 1;
}
