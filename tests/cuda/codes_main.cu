// Device program of linear layers with quantised weights: `cuda_codes check` is the test, `cuda_codes bench
// [rows...]` prints times beside those of 16-bit weights and of a plain read.
#include "codes_case.cuh"
#include "kernels/cuda/linear/linear.h"

using namespace fovea;
using namespace fovea::cuda;

struct LinearCase {
  const char* name;
  int64_t n, k;  // gated: gates and ups
  LinearEpilogue epilogue = LinearEpilogue::store;
  bool f32 = false, bias = false;
  int64_t rows = 1000;
  Activation activation = Activation::silu;
  float limit = 0, scale = 1, softcap = 0;

  bool gated() const { return epilogue == LinearEpilogue::gated; }
  int64_t columns() const { return gated() ? n / 2 : n; }
};

/// A layer, its input and what its outputs hold before.
struct Layer {
  LinearCase c;
  CodedMatrices weight;
  Device<float> scales, bias;
  Matrix x, before;
  std::vector<float> x_values, bias_values;

  Layer(const LinearCase& a, CodeScales by)
      : c(a),
        weight(WeightCode::e4m3, by, 1, c.n, c.k, c.gated(), 3),
        scales(std::vector<float>(static_cast<size_t>(c.n), 1.0f)),
        bias(size_t{0}),
        x(Matrix::random(DType::bf16, c.rows, c.k, 16 - c.k % 8, 4)),
        before(Matrix::random(DType::f32, c.rows, c.columns(), 4, 5)) {
    x_values = x.values("x");
    for (int64_t i = 0; i < c.n; ++i)
      bias_values.push_back(gaussian(6, static_cast<uint64_t>(i)));
    bias = Device<float>(bias_values);
  }

  LinearParams params(int64_t first, int64_t count, const Matrix& y) const {
    LinearParams p;
    p.n = c.n, p.k = c.k;
    p.weight = weight.data.data, p.code = WeightCode::e4m3;
    p.scales = weight.scales == CodeScales::none ? scales.data : weight.scale_data.data;
    p.block_scales = weight.scales == CodeScales::blocks;
    p.bias = c.bias ? bias.data : nullptr;
    p.x = x.row(first), p.x_stride = x.stride, p.rows = count;
    p.y = y.data(), p.y_stride = y.stride, p.y_dtype = y.dtype;
    p.epilogue = c.epilogue, p.activation = c.activation, p.limit = c.limit, p.scale = c.scale,
    p.softcap = c.softcap;
    return p;
  }
  Matrix output(int64_t first, int64_t count) const {
    Matrix y(c.f32 ? DType::f32 : DType::bf16, count, c.columns(), 4);
    if (c.epilogue == LinearEpilogue::residual)
      CUDA_CHECK(cudaMemcpy(y.data(), before.row(first), static_cast<size_t>(count * y.stride) * 4,
                            cudaMemcpyDeviceToDevice));
    return y;
  }
  Matrix run(LinearKernel kernel, int64_t first, int64_t count) const {
    Matrix y = output(first, count);
    LinearParams p = params(first, count, y);
    p.kernel = kernel;
    LAUNCH(launch_linear(p, stream()));
    return y;
  }
  /// By the kernel of 16-bit weights.
  Matrix run_widened() const {
    std::vector<uint16_t> packed(static_cast<size_t>(packed_bytes(c.n, c.k, c.gated()) / 2));
    for (int64_t i = 0; i < c.n; ++i)
      for (int64_t j = 0; j < c.k; ++j) {
        const bool is_up = c.gated() && i >= c.n / 2;
        const PackedPart part = !c.gated() ? PackedPart::plain : is_up ? PackedPart::up : PackedPart::gate;
        packed[static_cast<size_t>(packed_offset(packed_row(part, is_up ? i - c.n / 2 : i), j, c.k) / 2)] =
            float_to_bf16(weight.values[static_cast<size_t>(i * c.k + j)]);
      }
    const Device<uint16_t> there(packed);
    Matrix y = output(0, c.rows);
    LinearParams p = params(0, c.rows, y);
    p.weight = there.data, p.code = WeightCode::none, p.scales = nullptr, p.block_scales = false;
    LAUNCH(launch_linear(p, stream()));
    CUDA_CHECK(cudaDeviceSynchronize());
    return y;
  }

  /// In fp64. `defect`: the last input is lost.
  std::vector<double> reference(int64_t row, bool defect = false) const {
    std::vector<double> sums(static_cast<size_t>(c.n)), out;
    for (int64_t i = 0; i < c.n; ++i) {
      double sum = 0;
      for (int64_t j = 0; j < c.k - (defect ? 1 : 0); ++j)
        sum += static_cast<double>(weight.values[static_cast<size_t>(i * c.k + j)]) *
               x_values[static_cast<size_t>(row * c.k + j)];
      sums[static_cast<size_t>(i)] = sum + (c.bias ? bias_values[static_cast<size_t>(i)] : 0);
    }
    const auto sigmoid = [](double v) { return 1 / (1 + std::exp(-v)); };
    const std::vector<float> old = c.epilogue == LinearEpilogue::residual ? before.values("old") : x_values;
    for (int64_t i = 0; i < c.columns(); ++i) {
      const double v = sums[static_cast<size_t>(i)];
      if (c.gated()) {
        double g = v, u = sums[static_cast<size_t>(i + c.n / 2)];
        if (c.limit > 0) {
          g = std::min<double>(g, c.limit), u = std::clamp<double>(u, -c.limit, c.limit);
          out.push_back((u + 1) * g * sigmoid(1.702 * g));
        } else if (c.activation == Activation::silu) {
          out.push_back(g * sigmoid(g) * u);
        } else if (c.activation == Activation::relu) {
          out.push_back(std::max(g, 0.0) * u);
        } else {
          out.push_back(g / 2 * (1 + std::erf(g / std::sqrt(2.0))) * u);
        }
      } else if (c.epilogue == LinearEpilogue::logits) {
        out.push_back(c.softcap > 0 ? c.softcap * std::tanh(c.scale * v / c.softcap) : c.scale * v);
      } else if (c.epilogue == LinearEpilogue::residual) {
        out.push_back(old[static_cast<size_t>(row * c.columns() + i)] + c.scale * v);
      } else {
        out.push_back(v);
      }
    }
    return out;
  }
};

static void check(const LinearCase& c, CodeScales by, bool hopper) {
  const Layer layer(c, by);
  const std::string name = std::string(c.name) + " " + layer.weight.name();
  const Matrix all = layer.run(LinearKernel::automatic, 0, c.rows);
  const std::vector<float> values = all.values(name);
  const DType type = c.f32 ? DType::f32 : DType::bf16;
  // Without scales, sums of large numbers cancel: the widened weights are the reference.
  for (const int64_t r : {int64_t{0}, c.rows / 2, c.rows - 1}) {
    if (by == CodeScales::none) break;
    const std::vector<float> got(values.begin() + r * c.columns(), values.begin() + (r + 1) * c.columns());
    expect(close(got, layer.reference(r), type, c.columns(), c.gated() ? 4e-6 : 2e-6),
           name + ": row " + std::to_string(r));
    if (!c.gated())
      expect(!close(got, layer.reference(r, /*defect=*/true), type, c.columns(), 2e-6),
             name + ": a defect passed");
  }
  if (by == CodeScales::none)
    expect(layer.run_widened().memory.host() == all.memory.host(), name + ": differs from widened weights");
  std::vector<LinearKernel> kernels = {LinearKernel::mma};
  if (hopper) kernels = {LinearKernel::mma, LinearKernel::stream, LinearKernel::tile};
  for (const LinearKernel kernel : kernels)
    expect(layer.run(kernel, 0, c.rows).memory.host() == all.memory.host(),
           name + ": kernels differ, " + std::to_string(static_cast<int>(kernel)));
  std::vector<LinearKernel> few = {LinearKernel::automatic, LinearKernel::mma};
  if (hopper) few.push_back(LinearKernel::stream);  // wgmma_widened for narrow layers
  for (const int64_t count : {1, 2, 7, 8, 9, 16, 17, 33, 64, 65, 128})
    if (count < c.rows)
      for (const LinearKernel kernel : few) {
        const Matrix some = layer.run(kernel, c.rows - count, count);
        expect(some.row_bytes(count - 1) == all.row_bytes(c.rows - 1) &&
                   some.row_bytes(0) == all.row_bytes(c.rows - count),
               name + ": a row's bits differ among " + std::to_string(count));
        (void)some.values(name);
      }
}

static void check_all(bool hopper) {
  using E = LinearEpilogue;
  for (const CodeScales by : {CodeScales::none, CodeScales::outputs, CodeScales::blocks}) {
    LinearCase capped{"logits", 520, 256, E::logits, true, true, 130};
    capped.scale = 0.5f, capped.softcap = 2;
    LinearCase added{"residual", 1024, 512, E::residual, true, true};
    added.scale = 0.22f;
    LinearCase limited{"limited", 384, 256, E::gated, false, true, 200};
    limited.limit = 1.5f;
    LinearCase erf = limited, relu = limited;
    erf.name = "gelu", erf.limit = 0, erf.activation = Activation::gelu;
    relu.name = "relu", relu.limit = 0, relu.activation = Activation::relu;
    for (const LinearCase& c :
         {LinearCase{"store", 6144, 1024}, LinearCase{"narrow", 48, 4096},
          LinearCase{"gated", 2 * 1056, 576, E::gated}, LinearCase{"odd", 50, 100, E::store, false, true},
          LinearCase{"odd gated", 74, 72, E::gated, true}, LinearCase{"one block", 16, 8, E::store, true},
          LinearCase{"three blocks", 8, 192, E::store, true, false, 70}, limited, erf, relu, capped, added})
      check(c, by, hopper);
    progress(by == CodeScales::none ? "ones" : by == CodeScales::outputs ? "outputs" : "blocks");
  }
}

__global__ void fill(uint32_t* to, int64_t count, uint32_t mask, uint32_t bits) {
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    uint32_t x = static_cast<uint32_t>(i) * 2654435761u;
    x ^= x >> 15, x *= 2246822519u, x ^= x >> 13;
    to[i] = (x & mask) | bits;
  }
}

__global__ void __launch_bounds__(512) plain_read(const uint4* from, int64_t count, uint4* sink) {
  uint4 sum{};
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
#pragma unroll 8
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    const uint4 v = __ldcs(from + i);
    sum.x ^= v.x, sum.y ^= v.y, sum.z ^= v.z, sum.w ^= v.w;
  }
  if ((sum.x ^ sum.y ^ sum.z ^ sum.w) == 0x12345678u) *sink = sum;
}

/// Each launch has other weights, so that none is in L2.
static void bench(const std::vector<int64_t>& all_rows) {
  constexpr int64_t kTurn = 400 << 20;
  const Device<uint32_t> memory(kTurn / 4 + (256 << 20) / 4);
  std::printf("%-10s %5s  %8s %8s %8s %8s   us; share of e4m3's plain read; bf16 / e4m3\n", "", "M", "read",
              "bf16", "outputs", "blocks");
  for (const auto& [name, n, k, gated] : {std::tuple{"qkv", int64_t{6144}, int64_t{4096}, false},
                                          {"o", 4096, 4096, false},
                                          {"gate_up", 28672, 4096, true},
                                          {"down", 4096, 14336, false}}) {
    const Device<float> scales(std::vector<float>(static_cast<size_t>(n * (k / 128 + 1)), 0.01f));
    for (const int64_t rows : all_rows) {
      const Matrix x = Matrix::random(DType::bf16, rows, k, 0, 1);
      const Matrix y(DType::bf16, rows, gated ? n / 2 : n);
      const int launches = rows > 256 ? 3 : 24;
      const auto time = [&](bool coded, bool blocks) {
        fill<<<2048, 256>>>(memory.data, static_cast<int64_t>(memory.count),
                            coded ? 0xbfbfbfbfu : 0x80ff80ffu, coded ? 0 : 0x3c003c00u);
        const int64_t bytes = coded ? code_bytes(WeightCode::e4m3, n, k, gated) : packed_bytes(n, k, gated);
        const int64_t copies = std::max<int64_t>(kTurn / bytes, 1);
        int64_t turn = 0;
        return microseconds(
            [&](CudaStream& s) {
              LinearParams p;
              p.n = n, p.k = k;
              p.weight = reinterpret_cast<const std::byte*>(memory.data) + turn++ % copies * bytes;
              if (coded) p.code = WeightCode::e4m3, p.scales = scales.data, p.block_scales = blocks;
              p.constant_weight = true;
              p.x = x.data(), p.x_stride = x.stride, p.rows = rows;
              p.y = y.data(), p.y_stride = y.stride;
              if (gated) p.epilogue = LinearEpilogue::gated;
              LAUNCH(launch_linear(p, s));
            },
            launches);
      };
      const int64_t bytes = code_bytes(WeightCode::e4m3, n, k, gated), copies = kTurn / bytes;
      int64_t turn = 0;
      const float read = microseconds(
          [&](CudaStream& s) {
            plain_read<<<132 * 4, 512, 0, s.handle()>>>(
                reinterpret_cast<const uint4*>(reinterpret_cast<const std::byte*>(memory.data) +
                                               turn++ % copies * bytes),
                bytes / 16, reinterpret_cast<uint4*>(memory.data));
          },
          launches);
      const float half = time(false, false), outputs = time(true, false), blocks = time(true, true);
      std::printf("%-10s %5ld  %8.1f %8.1f %8.1f %8.1f   %3.0f %% %3.0f %%  %.2f %.2f  %.0f TFLOP/s\n", name,
                  static_cast<long>(rows), read, half, outputs, blocks, 100 * read / outputs,
                  100 * read / blocks, half / outputs, half / blocks,
                  2e-6 * static_cast<double>(rows) * static_cast<double>(n * k) / outputs);
    }
  }
}

int main(int argc, char** argv) {
  if (!have_gpu()) return 77;
  int major = 0;
  CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
  if (argc > 1 && std::string(argv[1]) == "bench") {
    std::vector<int64_t> rows;
    for (int i = 2; i < argc; ++i)
      rows.push_back(std::atoll(argv[i]));
    bench(rows.empty() ? std::vector<int64_t>{1, 8, 16, 32, 64, 128, 512, 4096} : rows);
    return 0;
  }
  check_all(major == 9);
  std::printf("%s: %d failures\n", failures == 0 ? "passed" : "FAILED", failures);
  return failures == 0 ? 0 : 1;
}
