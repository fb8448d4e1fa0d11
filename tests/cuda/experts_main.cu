// Device program of the experts: `cuda_experts check` is the test, `cuda_experts bench` prints times.
#include <numbers>
#include <numeric>
#include <utility>

#include "codes_case.cuh"
#include "kernels/cuda/experts/experts.h"
#include "kernels/cuda/linear/linear.h"
#include "kernels/cuda/linear/packed_layout.h"
#include "kernels/cuda/rows/route.h"
#include "ops_case.cuh"

using namespace fovea;
using namespace fovea::cuda;

/// Uniform in [-1, 1), cheaper than gaussian().
static float uniform(uint64_t seed, uint64_t index) {
  uint64_t x = (seed + 1) * 0x9e3779b97f4a7c15ull ^ (index + 1) * 0xbf58476d1ce4e5b9ull;
  x ^= x >> 31, x *= 0x94d049bb133111ebull, x ^= x >> 29;
  return static_cast<float>(x >> 40) * 0x1p-23f - 1.0f;
}

struct Case {
  DType dtype = DType::bf16;
  int experts = 8, chosen = 2;
  int64_t hidden = 576, intermediate = 136, rows = 21;
  Activation f = Activation::silu;
  float limit = 0;
  bool bias = false, scales_input = false, shared = false;
  int identity = 0;  ///< experts after the others that return their input
  DType out = DType::bf16;

  ExpertShape shape() const { return {dtype, experts, chosen, hidden, intermediate}; }
  std::string name() const {
    return "experts " + std::string(to_string(dtype)) + " " + std::to_string(chosen) + " of " +
           std::to_string(experts) + ", " + std::to_string(hidden) + " x " + std::to_string(intermediate) +
           ", T " + std::to_string(rows) + (bias ? ", bias" : "") + (scales_input ? ", scales input" : "") +
           (shared ? ", shared" : "") + (identity > 0 ? ", identity " + std::to_string(identity) : "") +
           (limit > 0 ? ", limit" : "");
  }
};

/// Weights, inputs and routing on host and device.
struct Layer {
  Case c;
  std::vector<float> gate_up, down, gate_up_bias, down_bias, x, weights, shared;
  std::vector<int32_t> ids;
  Device<std::byte> gate_up_data, down_data;
  int64_t gate_up_stride, down_stride;
  Device<float> gate_up_bias_data, down_bias_data;
  Matrix x_data, shared_data;

  static std::vector<float> numbers(int64_t count, uint64_t seed, float scale, DType type) {
    std::vector<float> v(static_cast<size_t>(count));
    for (size_t i = 0; i < v.size(); ++i)
      v[i] = rounded_to(type, scale * uniform(seed, i));
    return v;
  }
  /// Padding between matrices is NaN.
  static Device<std::byte> packed(const Case& c, const std::vector<float>& w, int64_t n, int64_t k,
                                  bool gated, int64_t stride) {
    std::vector<std::byte> bytes(static_cast<size_t>(c.experts * stride), std::byte{0xff});
    for (int64_t e = 0; e < c.experts; ++e) {
      std::byte* to = bytes.data() + e * stride;
      if (c.dtype != DType::f32) std::memset(to, 0, static_cast<size_t>(packed_bytes(n, k, gated)));
      for (int64_t i = 0; i < n; ++i)
        for (int64_t j = 0; j < k; ++j) {
          const bool is_up = gated && i >= n / 2;
          const PackedPart part = !gated ? PackedPart::plain : is_up ? PackedPart::up : PackedPart::gate;
          const int64_t at = c.dtype == DType::f32
                                 ? (i * k + j) * 4
                                 : packed_offset(packed_row(part, is_up ? i - n / 2 : i), j, k);
          to_bits(c.dtype, w[static_cast<size_t>((e * n + i) * k + j)], to + at);
        }
    }
    return Device<std::byte>(bytes);
  }
  static int64_t stride_of(const Case& c, int64_t n, int64_t k, bool gated) {
    return (c.dtype == DType::f32 ? n * k * 4 : packed_bytes(n, k, gated)) / 16 * 16 + 48;
  }

  explicit Layer(const Case& a)
      : Layer(a,
              numbers(a.experts * 2 * a.intermediate * a.hidden, 1,
                      3 / std::sqrt(static_cast<float>(a.hidden)), a.dtype),
              numbers(a.experts * a.intermediate * a.hidden, 2,
                      3 / std::sqrt(static_cast<float>(a.intermediate)), a.dtype)) {}
  Layer(const Case& a, std::vector<float> of_gate_up, std::vector<float> of_down)
      : c(a),
        gate_up(std::move(of_gate_up)),
        down(std::move(of_down)),
        gate_up_bias(numbers(c.experts * 2 * c.intermediate, 3, 1, DType::f32)),
        down_bias(numbers(c.experts * c.hidden, 4, 1, DType::f32)),
        x(numbers(c.rows * c.hidden, 5, 1.5f, c.dtype)),
        weights(numbers(c.rows * c.chosen, 6, 1, DType::f32)),
        shared(numbers(c.rows * c.hidden, 7, 1, DType::f32)),
        gate_up_data(packed(c, gate_up, 2 * c.intermediate, c.hidden, true,
                            stride_of(c, 2 * c.intermediate, c.hidden, true))),
        down_data(
            packed(c, down, c.hidden, c.intermediate, false, stride_of(c, c.hidden, c.intermediate, false))),
        gate_up_stride(stride_of(c, 2 * c.intermediate, c.hidden, true)),
        down_stride(stride_of(c, c.hidden, c.intermediate, false)),
        gate_up_bias_data(gate_up_bias),
        down_bias_data(down_bias),
        x_data(Matrix::make(c.dtype, c.rows, c.hidden, 8,
                            [&](int64_t i, int64_t j) {
                              return i == 3 && j == 1 ? NAN : x[static_cast<size_t>(i * c.hidden + j)];
                            })),
        shared_data(Matrix::make(DType::f32, c.rows, c.hidden, 4, [&](int64_t i, int64_t j) {
          return shared[static_cast<size_t>(i * c.hidden + j)];
        })) {
    if (c.rows > 3) x[static_cast<size_t>(3 * c.hidden + 1)] = NAN;
    // Distinct experts; the last is never chosen where there is a choice, the first often.
    const int usable = c.identity > 0         ? c.experts + c.identity
                       : c.experts > c.chosen ? c.experts - 1
                                              : c.experts;
    for (int64_t r = 0; r < c.rows; ++r) {
      std::vector<int32_t> all(static_cast<size_t>(usable));
      std::iota(all.begin(), all.end(), 0);
      for (int j = 0; j < c.chosen; ++j) {
        auto pick = static_cast<size_t>((uniform(8, static_cast<uint64_t>(r * c.chosen + j)) + 1) / 2 *
                                        static_cast<float>(usable - j));
        if (r % 3 == 0 && j == 0) pick = 0;
        std::swap(all[static_cast<size_t>(j)], all[std::min(static_cast<size_t>(j) + pick, all.size() - 1)]);
        ids.push_back(all[static_cast<size_t>(j)]);
      }
    }
    if (c.rows > 9) ids[static_cast<size_t>(9 * c.chosen)] = c.experts + c.identity;  // out of range
    if (c.rows > 10) ids[static_cast<size_t>(10 * c.chosen)] = -1;
  }

  /// Rows [first, first + count). `codes`: quantised weights instead.
  struct Codes {
    ExpertMatrices gate_up, down;
  };
  Matrix run(ExpertKernel kernel, int64_t first, int64_t count, const Codes* codes = nullptr) const {
    Matrix out(c.out, count, c.hidden, 4);
    const Device<int32_t> chosen(
        std::vector<int32_t>(ids.begin() + first * c.chosen, ids.begin() + (first + count) * c.chosen));
    const Device<float> by(
        std::vector<float>(weights.begin() + first * c.chosen, weights.begin() + (first + count) * c.chosen));
    const Device<std::byte> scratch(static_cast<size_t>(experts_scratch(c.shape(), count)));
    ExpertsParams p;
    p.shape = c.shape(), p.rows = count;
    p.x = x_data.row(first), p.x_stride = x_data.stride;
    p.experts = chosen.data, p.weights = by.data;
    p.gate_up = {gate_up_data.data, gate_up_stride, c.bias ? gate_up_bias_data.data : nullptr};
    p.down = {down_data.data, down_stride, c.bias ? down_bias_data.data : nullptr};
    if (codes != nullptr) {
      const float *up_bias = p.gate_up.bias, *down_bias = p.down.bias;
      p.gate_up = codes->gate_up, p.down = codes->down;
      p.gate_up.bias = up_bias, p.down.bias = down_bias;
    }
    p.f = c.f, p.limit = c.limit, p.scales_input = c.scales_input, p.identity_experts = c.identity;
    if (c.shared) p.shared = shared_data.row(first), p.shared_stride = shared_data.stride;
    p.out = out.data(), p.out_dtype = c.out, p.out_stride = out.stride;
    p.scratch = scratch.data, p.scratch_bytes = static_cast<int64_t>(scratch.count), p.kernel = kernel;
    LAUNCH(launch_experts(p, stream()));
    return out;
  }

  double activation(double g, double u) const {
    if (c.limit > 0) {
      const double l = c.limit;
      g = g > l ? l : g, u = u > l ? l : u < -l ? -l : u;
      return (u + 1) * g / (1 + std::exp(-1.702 * g));
    }
    switch (c.f) {
      case Activation::silu: return g / (1 + std::exp(-g)) * u;
      case Activation::gelu: return g / 2 * (1 + std::erf(g / std::numbers::sqrt2)) * u;
      case Activation::gelu_tanh:
        return g / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (g + 0.044715 * g * g * g))) * u;
      case Activation::relu: return (g > 0 ? g : std::isnan(g) ? g : 0) * u;
    }
    return 0;
  }

  /// In fp64, with activations rounded to the dtype. `defect`: 1 = the last choice is lost, 2 = the biases of
  /// the next expert, 3 = the last input is lost.
  std::vector<double> reference(const std::vector<int64_t>& rows, int defect = 0) const {
    std::vector<double> out;
    for (const int64_t r : rows) {
      std::vector<double> sum(static_cast<size_t>(c.hidden), 0.0);
      for (int64_t i = 0; c.shared && i < c.hidden; ++i)
        sum[static_cast<size_t>(i)] = shared[static_cast<size_t>(r * c.hidden + i)];
      for (int j = 0; j < c.chosen - (defect == 1); ++j) {
        const int32_t e = ids[static_cast<size_t>(r * c.chosen + j)];
        const double w = weights[static_cast<size_t>(r * c.chosen + j)];
        if (e >= c.experts && e < c.experts + c.identity) {
          for (int64_t i = 0; i < c.hidden; ++i)
            sum[static_cast<size_t>(i)] += w * x[static_cast<size_t>(r * c.hidden + i)];
          continue;
        }
        if (e < 0 || e >= c.experts) {
          std::fill(sum.begin(), sum.end(), NAN);
          continue;
        }
        const int64_t be = defect == 2 ? (e + 1) % c.experts : e, inputs = c.hidden - (defect == 3);
        const float* row = x.data() + r * c.hidden;
        const auto dot = [](const float* a, const auto* b, int64_t n) {
          double s = 0;
          for (int64_t i = 0; i < n; ++i)
            s += static_cast<double>(a[i]) * b[i];
          return s;
        };
        std::vector<float> act(static_cast<size_t>(c.intermediate));
        for (int64_t i = 0; i < c.intermediate; ++i) {
          const float* base = gate_up.data() + e * 2 * c.intermediate * c.hidden;
          double v[2];
          for (const int part : {0, 1}) {
            const int64_t o = part * c.intermediate + i;
            v[part] = dot(base + o * c.hidden, row, inputs) * (c.scales_input ? w : 1) +
                      (c.bias ? gate_up_bias[static_cast<size_t>(be * 2 * c.intermediate + o)] : 0);
          }
          act[static_cast<size_t>(i)] = rounded_to(c.dtype, static_cast<float>(activation(v[0], v[1])));
        }
        for (int64_t o = 0; o < c.hidden; ++o)
          sum[static_cast<size_t>(o)] +=
              (c.scales_input ? 1 : w) *
              (dot(down.data() + (e * c.hidden + o) * c.intermediate, act.data(), c.intermediate) +
               (c.bias ? down_bias[static_cast<size_t>(be * c.hidden + o)] : 0));
      }
      out.insert(out.end(), sum.begin(), sum.end());
    }
    return out;
  }
};

static bool close_rows(const Layer& layer, const Matrix& out, const std::vector<int64_t>& rows,
                       int defect = 0) {
  const Case& c = layer.c;
  const auto all = out.values(c.name());
  std::vector<float> got;
  for (const int64_t r : rows)
    got.insert(got.end(), all.begin() + r * c.hidden, all.begin() + (r + 1) * c.hidden);
  // An activation on a rounding boundary may be rounded the other way.
  const double slack = c.dtype == DType::f32 ? 4e-6 : c.dtype == DType::f16 ? 2e-4 : 1.5e-3;
  return close(got, layer.reference(rows, defect), c.out, c.hidden, slack);
}

static void check(const Case& c) {
  const Layer layer(c);
  const Matrix out = layer.run(ExpertKernel::automatic, 0, c.rows);
  std::vector<int64_t> some;
  for (int64_t r = 0; r < c.rows; ++r)
    if (c.rows <= 24 || r < 12 || r % (c.rows / 8) == 0 || r == c.rows - 1) some.push_back(r);
  expect(close_rows(layer, out, some), c.name());
  if (c.rows > 1 && c.rows <= 24)
    for (const int defect : {1, 2, 3})
      if (defect != 2 || c.bias)
        expect(!close_rows(layer, out, {0, 1}, defect),
               c.name() + ": defect " + std::to_string(defect) + " passed");
  int major = 0, minor = 0;
  CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
  CUDA_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0));
  const bool has_wgmma = major == 9 && minor == 0;
  if (c.dtype != DType::f32)
    for (const ExpertKernel kernel :
         {ExpertKernel::small, ExpertKernel::large, has_wgmma ? ExpertKernel::wide : ExpertKernel::large})
      expect(layer.run(kernel, 0, c.rows).memory.host() == out.memory.host(),
             c.name() + ": kernels differ, " + std::to_string(static_cast<int>(kernel)));
  for (const int64_t r : {int64_t{0}, std::min<int64_t>(5, c.rows - 1), c.rows - 1})
    expect(layer.run(ExpertKernel::automatic, r, 1).row_bytes(0) == out.row_bytes(r),
           c.name() + ": a row's bits differ alone");
  if (c.rows > 40)
    for (const int64_t count : {int64_t{2}, int64_t{9}, int64_t{17}, int64_t{33}, c.rows / 2})
      expect(layer.run(ExpertKernel::automatic, c.rows - count, count).row_bytes(count - 1) ==
                 out.row_bytes(c.rows - 1),
             c.name() + ": a row's bits differ among " + std::to_string(count));
}

/// One expert of weight 1 gives the bits of two dense layers.
static void check_dense(DType type, bool bias, Activation f, float limit) {
  Case c;
  c.dtype = type, c.out = DType::f32, c.experts = c.chosen = 1, c.rows = 40, c.bias = bias, c.f = f,
  c.limit = limit;
  Layer layer(c);
  std::fill(layer.weights.begin(), layer.weights.end(), 1.0f);
  const Matrix act(type, c.rows, c.intermediate), out(DType::f32, c.rows, c.hidden);
  LinearParams p;
  p.dtype = type, p.n = 2 * c.intermediate, p.k = c.hidden, p.weight = layer.gate_up_data.data;
  p.bias = bias ? layer.gate_up_bias_data.data : nullptr;
  p.x = layer.x_data.data(), p.x_stride = layer.x_data.stride, p.rows = c.rows;
  p.y = act.data(), p.y_stride = act.stride, p.y_dtype = type;
  p.epilogue = LinearEpilogue::gated, p.activation = f, p.limit = limit;
  LAUNCH(launch_linear(p, stream()));
  LinearParams down;
  down.dtype = type, down.n = c.hidden, down.k = c.intermediate, down.weight = layer.down_data.data;
  down.bias = bias ? layer.down_bias_data.data : nullptr;
  down.x = act.data(), down.x_stride = act.stride, down.rows = c.rows;
  down.y = out.data(), down.y_stride = out.stride, down.y_dtype = DType::f32;
  LAUNCH(launch_linear(down, stream()));
  const auto want = out.values(c.name()),
             got = layer.run(ExpertKernel::automatic, 0, c.rows).values(c.name());
  bool same = true;
  for (size_t i = 0; i < got.size(); ++i) {
    const auto row = static_cast<int64_t>(i) / c.hidden;
    if (row != 3 && row != 9 && row != 10)
      same = same && got[i] == want[i];  // 3 holds NaN; ids 9 and 10 are invalid
  }
  expect(same, c.name() + ": differs from dense layers");
}

/// Quantised weights: bf16 layers of the widened weights have the same bytes, or with scales of sums are the
/// reference.
static void check_codes(Case c, WeightCode code, CodeScales scales) {
  const CodedMatrices up(code, scales, c.experts, 2 * c.intermediate, c.hidden, true, 1),
      down(code, scales, c.experts, c.hidden, c.intermediate, false, 2);
  const std::string name = c.name() + " " + up.name();
  const Layer layer(c, up.values, down.values);
  const Layer::Codes codes{up.matrices(), down.matrices()};
  const Matrix out = layer.run(ExpertKernel::automatic, 0, c.rows, &codes);
  if (scales == CodeScales::none) {
    expect(out.memory.host() == layer.run(ExpertKernel::automatic, 0, c.rows).memory.host(),
           name + ": differs from widened weights");
  } else {
    std::vector<int64_t> rows;
    for (int64_t r = 0; r < c.rows; r += c.rows > 24 ? c.rows / 8 : 1)
      rows.push_back(r);
    expect(close_rows(layer, out, rows), name);
  }
  int major = 0;
  CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
  for (const ExpertKernel kernel :
       {ExpertKernel::small, major == 9 ? ExpertKernel::wide : ExpertKernel::small})
    expect(layer.run(kernel, 0, c.rows, &codes).memory.host() == out.memory.host(),
           name + ": kernels differ, " + std::to_string(static_cast<int>(kernel)));
  for (const int64_t r : {int64_t{0}, std::min<int64_t>(5, c.rows - 1), c.rows - 1})
    expect(layer.run(ExpertKernel::automatic, r, 1, &codes).row_bytes(0) == out.row_bytes(r),
           name + ": a row's bits differ alone");
  for (const int64_t count : {2, 7, 8, 9, 16, 17, 33, 64, 65, 128, 1000})
    if (count < c.rows)
      expect(layer.run(ExpertKernel::automatic, c.rows - count, count, &codes).row_bytes(count - 1) ==
                 out.row_bytes(c.rows - 1),
             name + ": a row's bits differ among " + std::to_string(count));
}

static void check_all_codes() {
  for (const auto& [code, scales] : {std::pair{WeightCode::mxfp4, CodeScales::none},
                                     {WeightCode::e4m3, CodeScales::none},
                                     {WeightCode::e4m3, CodeScales::outputs},
                                     {WeightCode::e4m3, CodeScales::blocks}}) {
    Case c;
    c.hidden = 576, c.intermediate = 160;
    check_codes(c, code, scales);
    c.out = DType::f32, c.shared = true, c.bias = true, c.limit = 1.5f;
    check_codes(c, code, scales);
    c.limit = 0, c.scales_input = true, c.chosen = 1, c.f = Activation::gelu_tanh, c.intermediate = 352;
    check_codes(c, code, scales);
    Case odd;
    odd.hidden = 32, odd.intermediate = code == WeightCode::mxfp4 ? 96 : 72, odd.rows = 13;
    if (code == WeightCode::e4m3) odd.hidden = 136;
    check_codes(odd, code, scales);
    Case many;
    many.hidden = 192, many.intermediate = 96, many.bias = true;
    for (const int64_t rows : {1, 9, 100, 500, 1100}) {
      many.rows = rows;
      check_codes(many, code, scales);
    }
    Case wide;
    wide.hidden = wide.intermediate = 2880, wide.experts = 4, wide.chosen = 2, wide.rows = 70,
    wide.bias = true, wide.limit = 7;
    if (code == WeightCode::mxfp4) check_codes(wide, code, scales);
    progress("codes");
  }
}

static void check_all() {
  check_all_codes();
  for (const DType type : {DType::bf16, DType::f16, DType::f32})
    for (const bool bias : {false, true}) {
      check_dense(type, bias, Activation::silu, 0);
      check_dense(type, bias, Activation::gelu, 0);
      check_dense(type, bias, Activation::gelu_tanh, 0);
      check_dense(type, bias, Activation::silu, 2);
    }

  for (const DType type : {DType::bf16, DType::f16, DType::f32}) {
    Case c;
    c.dtype = c.out = type;
    check(c);
    c.out = DType::f32, c.shared = true;
    check(c);
    c.bias = true, c.limit = 1.5f;
    check(c);
    c.limit = 0, c.scales_input = true, c.chosen = 1, c.f = Activation::gelu_tanh;
    check(c);
    c.bias = false, c.experts = 40, c.chosen = 32, c.f = Activation::relu, c.scales_input = false;
    check(c);
    c.experts = 1, c.chosen = 1, c.f = Activation::gelu, c.rows = 12;
    check(c);
    for (const int64_t hidden : {8, 64, 72, 896}) {
      Case d;
      d.dtype = d.out = type, d.hidden = hidden, d.intermediate = hidden == 64 ? 64 : 200, d.rows = 13;
      check(d);
    }
    for (const int64_t rows : {3, 21, 200}) {
      Case own;
      own.dtype = own.out = type, own.identity = 5, own.chosen = 6, own.rows = rows, own.shared = rows == 21;
      check(own);
    }
    Case many;
    many.dtype = many.out = type, many.hidden = 128, many.intermediate = 72, many.bias = true;
    progress(to_string(type).data());
    for (const int64_t rows : {1, 2, 100, 500, 4096, 5000}) {
      many.rows = rows;
      check(many);
      many.experts = many.experts == 8 ? 128 : 8, many.chosen = many.chosen == 2 ? 8 : 2;
    }
  }
  progress("many rows");
  Case wide;
  wide.hidden = wide.intermediate = 2880, wide.experts = 5, wide.chosen = 4, wide.rows = 18, wide.bias = true,
  wide.limit = 7;
  check(wide);
  wide.hidden = 2048, wide.intermediate = 768, wide.limit = 0, wide.rows = 70;
  check(wide);
}

// ---- times

__global__ void fill_kernel(uint16_t* to, int64_t count) {
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    uint32_t x = static_cast<uint32_t>(i) * 2654435761u;
    x ^= x >> 15, x *= 2246822519u, x ^= x >> 13;
    to[i] = static_cast<uint16_t>(0x3c00u + (x & 0x80ffu));  // bf16 numbers of about +-0.01
  }
}

static void bench_model(const char* name, int experts, int chosen, int64_t hidden, int64_t intermediate,
                        bool bias, WeightCode code = WeightCode::none) {
  const ExpertShape shape{DType::bf16, experts, chosen, hidden, intermediate};
  const bool coded = code != WeightCode::none;
  const int64_t up = coded ? code_bytes(code, 2 * intermediate, hidden, true)
                           : packed_bytes(2 * intermediate, hidden, true),
                down = coded ? code_bytes(code, hidden, intermediate) : packed_bytes(hidden, intermediate);
  const Device<uint16_t> w1(static_cast<size_t>(experts * up / 2)),
      w2(static_cast<size_t>(experts * down / 2));
  fill_kernel<<<2048, 256>>>(w1.data, experts * up / 2);
  fill_kernel<<<2048, 256>>>(w2.data, experts * down / 2);
  const Device<float> b1(std::vector<float>(static_cast<size_t>(experts * 2 * intermediate), 0.1f)),
      b2(std::vector<float>(static_cast<size_t>(experts * hidden), 0.1f));
  for (const int64_t rows : {1, 8, 64, 256, 1024, 4096, 16384}) {
    const Device<uint16_t> x(static_cast<size_t>(rows * hidden));
    fill_kernel<<<512, 256>>>(x.data, rows * hidden);
    Matrix out(DType::bf16, rows, hidden);
    const Device<std::byte> scratch(static_cast<size_t>(experts_scratch(shape, rows)));
    // Several routings, so that few rows do not find their experts in L2.
    constexpr int kRoutings = 6;
    std::vector<int32_t> host;
    std::vector<char> active(static_cast<size_t>(experts));
    for (int64_t r = 0; r < kRoutings * rows; ++r) {
      std::vector<int32_t> all(static_cast<size_t>(experts));
      std::iota(all.begin(), all.end(), 0);
      for (int j = 0; j < chosen; ++j) {
        const auto pick = static_cast<size_t>((uniform(8, static_cast<uint64_t>(r * chosen + j)) + 1) / 2 *
                                              static_cast<float>(experts - j));
        std::swap(all[static_cast<size_t>(j)], all[std::min(static_cast<size_t>(j) + pick, all.size() - 1)]);
        host.push_back(all[static_cast<size_t>(j)]);
        if (r < rows) active[static_cast<size_t>(all[static_cast<size_t>(j)])] = 1;
      }
    }
    const Device<int32_t> ids(host);
    const Device<float> weights(
        std::vector<float>(static_cast<size_t>(rows * chosen), 1.0f / static_cast<float>(chosen)));
    ExpertsParams p;
    p.shape = shape, p.rows = rows, p.x = x.data, p.x_stride = hidden, p.weights = weights.data;
    p.gate_up = {w1.data, up, bias ? b1.data : nullptr}, p.down = {w2.data, down, bias ? b2.data : nullptr};
    p.gate_up.code = p.down.code = code;
    p.limit = bias ? 7.0f : 0.0f;
    p.out = out.data(), p.out_stride = hidden, p.scratch = scratch.data,
    p.scratch_bytes = static_cast<int64_t>(scratch.count);
    const double bytes = static_cast<double>(std::accumulate(active.begin(), active.end(), 0)) *
                         static_cast<double>(up + down);
    const double flops =
        6.0 * static_cast<double>(rows * chosen) * static_cast<double>(hidden * intermediate);
    for (const ExpertKernel kernel : {ExpertKernel::small, ExpertKernel::large, ExpertKernel::wide}) {
      if (coded && kernel == ExpertKernel::large) continue;
      if ((kernel != ExpertKernel::small && rows < 64) || (kernel == ExpertKernel::small && rows > 1024))
        continue;
      p.kernel = kernel == ExpertKernel::small && rows <= 8 ? ExpertKernel::automatic : kernel;
      int turn = 0;
      const float us = microseconds(
          [&](CudaStream& s) {
            p.experts = ids.data + turn++ % kRoutings * rows * chosen;
            LAUNCH(launch_experts(p, s));
          },
          rows >= 1024 ? 3 : 12);
      std::printf("%-14s T %6ld %s %9.1f us  weights %7.0f GB/s  %6.1f TFLOP/s\n", name,
                  static_cast<long>(rows),
                  kernel == ExpertKernel::small   ? "small"
                  : kernel == ExpertKernel::large ? "large"
                                                  : "wide ",
                  us, bytes / us * 1e-3, flops / us * 1e-6);
    }
  }
}

int main(int argc, char** argv) {
  if (!have_gpu()) return 77;
  const std::string mode = argc > 1 ? argv[1] : "check";
  if (mode == "codes") {
    check_all_codes();
    std::printf("%s: %d failures\n", failures == 0 ? "passed" : "FAILED", failures);
    return failures == 0 ? 0 : 1;
  }
  if (mode == "bench") {
    bench_model("Qwen3-30B-A3B", 128, 8, 2048, 768, false);
    bench_model("Qwen3-30B e4m3", 128, 8, 2048, 768, false, WeightCode::e4m3);
    bench_model("gpt-oss-20b", 32, 4, 2880, 2880, true);
    bench_model("gpt-oss mxfp4", 32, 4, 2880, 2880, true, WeightCode::mxfp4);
    return 0;
  }
  check_all();
  progress("wide");
  std::printf("%s: %d failures\n", failures == 0 ? "passed" : "FAILED", failures);
  return failures == 0 ? 0 : 1;
}
