#pragma once
// Checks of the linear layers: against fp64, and that a row's bytes depend on neither the other rows nor the
// kernel.
#include <array>
#include <cmath>
#include <cstring>
#include <random>
#include <utility>

#include "device/cuda/cuda_graph.h"
#include "fovea/result.h"
#include "kernels/cuda/linear/launchers.h"
#include "linear_device.cuh"

namespace fovea::cuda {

inline int failures = 0;

inline void expect(bool ok, const std::string& what) {
  if (ok) return;
  if (++failures <= 40) std::printf("FAILED %s\n", what.c_str());
}
inline void expect_ok(const Status& status, const std::string& what) {
  expect(status.ok(), what + (status.ok() ? "" : ": " + status.error().message));
}

struct LinearCase {
  std::string name;
  int64_t n = 0, k = 0;
  LinearEpilogue epilogue = LinearEpilogue::store;
  bool f32 = false, bias = false;
  Activation activation = Activation::silu;
  float limit = 0, scale = 1, softcap = 0;
  int64_t most_rows = 8192;

  bool gated() const { return epilogue == LinearEpilogue::gated; }
  int64_t columns() const { return gated() ? n / 2 : n; }
};

inline LinearCase make_case(std::string name, int64_t n, int64_t k, LinearEpilogue epilogue, bool f32,
                            int64_t most_rows = 8192) {
  LinearCase c;
  c.name = std::move(name), c.n = n, c.k = k, c.epilogue = epilogue, c.f32 = f32, c.most_rows = most_rows;
  return c;
}

/// The dense layers of five models.
inline std::vector<LinearCase> model_cases() {
  using E = LinearEpilogue;
  std::vector<LinearCase> all;
  const auto add = [&](const std::string& model, int64_t hidden, int64_t qkv, int64_t heads, int64_t mlp,
                       int64_t vocab, bool bias) {
    all.push_back(make_case(model + " qkv", qkv, hidden, E::store, false));
    all.back().bias = bias;
    all.push_back(make_case(model + " o", hidden, heads, E::residual, true));
    all.back().scale = 0.22f;
    if (mlp != 0) {
      all.push_back(make_case(model + " gate_up", 2 * mlp, hidden, E::gated, false));
      all.push_back(make_case(model + " down", hidden, mlp, E::store, false));
    }
    all.push_back(make_case(model + " lm_head", vocab, hidden, E::logits, true, 128));
  };
  add("Llama-3.1-8B", 4096, 6144, 4096, 14336, 128256, false);
  add("Qwen3-0.6B", 1024, 4096, 2048, 3072, 151936, false);
  add("Qwen2.5-7B", 3584, 4608, 3584, 18944, 152064, true);
  add("Gemma-2-9B", 3584, 8192, 4096, 14336, 256000, false);
  for (LinearCase& c : all)
    if (c.name.starts_with("Gemma")) {
      c.activation = Activation::gelu_tanh;
      if (c.epilogue == E::logits) c.softcap = 30;
    }
  add("gpt-oss-20b", 2880, 5120, 4096, 0, 201088, true);
  all.push_back(make_case("gpt-oss-20b router", 32, 2880, E::store, true));
  all.back().bias = true;
  return all;
}

/// Shapes with every kind of tail, and the other epilogues.
inline std::vector<LinearCase> odd_cases() {
  using E = LinearEpilogue;
  std::vector<LinearCase> all;
  all.push_back(make_case("one output", 1, 8, E::store, false));
  all.push_back(make_case("few inputs", 40, 3, E::store, true));
  all.push_back(make_case("tails", 1003, 100, E::store, false, 1000));
  all.push_back(make_case("tails, f32", 1003, 200, E::residual, true, 1000));
  all.push_back(make_case("tails, many inputs", 777, 1111, E::logits, false, 1000));
  all.back().scale = 0.125f;
  for (const Activation a : {Activation::silu, Activation::gelu, Activation::gelu_tanh, Activation::relu}) {
    all.push_back(
        make_case("gated tails " + std::to_string(static_cast<int>(a)), 2 * 603, 136, E::gated, false, 1000));
    all.back().activation = a;
    all.back().bias = a != Activation::relu;
  }
  all.push_back(make_case("gated with a limit", 5760, 2880, E::gated, false, 1000));
  all.back().limit = 7;
  all.back().bias = true;
  all.push_back(make_case("gated, f32", 96, 64, E::gated, true, 1000));
  return all;
}

/// A linear layer on the device and the truth about its rows of each content.
template <class T>
struct LinearProblem {
  static constexpr bool kFloat = std::is_same_v<T, float>;
  static constexpr int kTruths = 6;
  static constexpr Content kContents[kTruths] = {Content::normal, Content::wide,  Content::cancelling,
                                                 Content::tiny,   Content::zeros, Content::normal};
  static constexpr uint64_t kWeightSeed = 11, kXSeed = 12;

  LinearCase c;
  DeviceBytes source, packed, bias, truth;
  CudaStream stream = CudaStream::borrow(nullptr, 0);

  int element_bytes() const { return c.f32 || kFloat ? 4 : 2; }
  int64_t y_stride() const { return c.columns() + 8; }
  int64_t row_bytes() const { return c.columns() * element_bytes(); }
  int64_t x_stride() const { return (c.k + 7) / 8 * 8 + 8; }
  static DType dtype() { return kFloat ? DType::f32 : std::is_same_v<T, __half> ? DType::f16 : DType::bf16; }

  explicit LinearProblem(const LinearCase& linear, bool planted = false)
      : c(linear),
        source(c.n * c.k * sizeof(T)),
        packed(kFloat ? 0 : packed_bytes(c.n, c.k, c.gated())),
        bias(c.n * 4),
        truth(kTruths * y_stride() * 4) {
    make_weights(false);
    if (c.bias) {
      fill<float>(bias.data, c.n, 1, c.n, 13, nullptr, nullptr, 0.5f);
    }
    if (planted) make_weights(true);
    std::vector<int> ids;
    for (int i = 0; i < kTruths; ++i)
      ids.push_back(i);
    for (int i = 0; i < kTruths; ++i) {
      DeviceBytes x = make_x({i}, {kContents[i]}, planted);
      run(x, 1, truth.data + i * y_stride() * element_bytes(), LinearKernel::automatic);
    }
    if (planted) make_weights(false);
  }

  void make_weights(bool planted) {
    std::vector<Content> kinds(c.n);
    for (int64_t i = 0; i < c.n; ++i)
      kinds[i] = i % 8 == 3 ? Content::wide : i % 8 == 5 ? Content::tiny : Content::normal;
    DeviceBytes device_kinds(c.n * sizeof(Content));
    copy_to_device(device_kinds.data, kinds.data(), device_kinds.size);
    fill<T>(source.data, c.k, c.n, c.k, kWeightSeed, nullptr, reinterpret_cast<Content*>(device_kinds.data),
            0.25f, planted);
    if constexpr (!kFloat) {
      packed.poison();
      const int64_t rows = c.columns();
      for (int part = c.gated() ? 1 : 0; part <= (c.gated() ? 2 : 0); ++part)
        for (const auto& [first, last] : {std::pair{rows / 3, rows}, std::pair{int64_t{0}, rows / 3}}) {
          PackParams p;
          p.n = c.n, p.k = c.k;
          p.src = source.data + (first + (part == 2 ? rows : 0)) * c.k * sizeof(T);
          p.src_stride = c.k;
          p.part = static_cast<PackedPart>(part);
          p.first_row = first, p.rows = last - first;
          p.dst = packed.data;
          expect_ok(launch_pack(p, stream), c.name + ": packing");
        }
    }
    CUDA_CHECK(cudaDeviceSynchronize());
  }

  DeviceBytes make_x(const std::vector<int>& ids, const std::vector<Content>& kinds, bool planted = false) {
    DeviceBytes x(ids.size() * x_stride() * sizeof(T));
    DeviceBytes lists(ids.size() * (sizeof(int) + sizeof(Content)));
    uint8_t* device_kinds = lists.data + ids.size() * sizeof(int);
    copy_to_device(lists.data, ids.data(), ids.size() * sizeof(int));
    copy_to_device(device_kinds, kinds.data(), kinds.size() * sizeof(Content));
    fill<T>(x.data, x_stride(), static_cast<int64_t>(ids.size()), c.k, kXSeed,
            reinterpret_cast<int*>(lists.data), reinterpret_cast<Content*>(device_kinds), 1.0f, planted);
    CUDA_CHECK(cudaDeviceSynchronize());
    return x;
  }

  LinearParams params(const DeviceBytes& x, int64_t rows, void* y, LinearKernel kernel) const {
    LinearParams p;
    p.dtype = dtype();
    p.n = c.n, p.k = c.k;
    p.weight = kFloat ? source.data : packed.data;
    p.constant_weight = true;  // packed, and waited for, before rows of x
    p.bias = c.bias ? reinterpret_cast<const float*>(bias.data) : nullptr;
    p.x = x.data, p.x_stride = x_stride();
    p.rows = rows;
    p.y = y, p.y_stride = y_stride();
    p.y_dtype = c.f32 ? DType::f32 : dtype();
    p.epilogue = c.epilogue;
    p.activation = c.activation;
    p.limit = c.limit, p.scale = c.scale, p.softcap = c.softcap;
    p.kernel = kernel;
    return p;
  }

  void prepare_y(void* y, int64_t rows) const {
    if (c.epilogue == LinearEpilogue::residual)
      fill_columns<<<dim3(32, static_cast<unsigned>(std::min<int64_t>(rows, 8192))), 256>>>(
          static_cast<float*>(y), y_stride(), rows, c.columns());
  }

  void run(const DeviceBytes& x, int64_t rows, void* y, LinearKernel kernel) {
    prepare_y(y, rows);
    expect_ok(launch_linear(params(x, rows, y, kernel), stream), c.name);
    CUDA_CHECK(cudaDeviceSynchronize());
  }

  /// What the sums v (gated: with up) become, in double precision.
  double finish(double v, double up, int64_t column) const {
    if (c.gated()) {
      double gate = v;
      if (c.limit > 0) {
        gate = std::min<double>(gate, c.limit);
        up = std::clamp<double>(up, -c.limit, c.limit) + 1;
        return gate / (1 + std::exp(-1.702 * gate)) * up;
      }
      switch (c.activation) {
        case Activation::silu: return gate / (1 + std::exp(-gate)) * up;
        case Activation::gelu: return gate * 0.5 * std::erfc(-gate * std::sqrt(0.5)) * up;
        case Activation::gelu_tanh:
          return gate * 0.5 * (1 + std::tanh(std::sqrt(2 / M_PI) * (gate + 0.044715 * gate * gate * gate))) *
                 up;
        case Activation::relu: return std::max(0.0, gate) * up;
      }
    }
    if (c.epilogue == LinearEpilogue::logits) {
      v *= c.scale;
      return c.softcap > 0 ? c.softcap * std::tanh(v / c.softcap) : v;
    }
    (void)column;
    return v;
  }

  void check_truth() {
    const int64_t n = c.n, columns = c.columns();
    std::vector<int> ids;
    for (int i = 0; i < kTruths; ++i)
      ids.push_back(i);
    DeviceBytes x = make_x(ids, std::vector<Content>(kContents, kContents + kTruths));
    DeviceBytes sums(kTruths * n * 16);
    auto* device_sum = reinterpret_cast<double*>(sums.data);
    reference_sums<<<static_cast<unsigned>((n * 32 + 255) / 256), 256>>>(
        reinterpret_cast<const T*>(x.data), x_stride(), kTruths, reinterpret_cast<const T*>(source.data), n,
        c.k, device_sum, device_sum + kTruths * n);
    std::vector<double> sum(2 * kTruths * n);
    CUDA_CHECK(cudaMemcpy(sum.data(), sums.data, sums.size, cudaMemcpyDeviceToHost));
    std::vector<float> b(n, 0.0f), old(columns, 0.0f);
    if (c.bias) CUDA_CHECK(cudaMemcpy(b.data(), bias.data, n * 4, cudaMemcpyDeviceToHost));
    if (c.epilogue == LinearEpilogue::residual) {
      DeviceBytes columns_of(y_stride() * 4);
      prepare_y(columns_of.data, 1);
      CUDA_CHECK(cudaMemcpy(old.data(), columns_of.data, columns * 4, cudaMemcpyDeviceToHost));
    }
    std::vector<uint8_t> y(truth.size);
    CUDA_CHECK(cudaMemcpy(y.data(), truth.data, y.size(), cudaMemcpyDeviceToHost));
    // One step of 16 (of 1) inputs loses up to an ulp of the sum of magnitudes.
    const double steps = kFloat ? static_cast<double>(c.k) : static_cast<double>(c.k) / 16 + 2;
    const double out_ulp = c.f32 || kFloat ? 0x1p-22 : dtype() == DType::f16 ? 0x1p-11 : 0x1p-8;
    const double smallest = c.f32 || kFloat ? 1e-30 : dtype() == DType::f16 ? 0x1p-24 : 1e-38;
    double total_error = 0, total = 0;
    int64_t wrong = 0;
    std::string first;
    for (int r = 0; r < kTruths; ++r)
      for (int64_t i = 0; i < columns; ++i) {
        const auto value = [&](int64_t at) { return sum[r * n + at] + b[at]; };
        const auto error = [&](int64_t at) {
          return steps * 0x1p-24 * (sum[(kTruths + r) * n + at] + std::abs(b[at])) + 1e-37;
        };
        double want = finish(value(i), c.gated() ? value(i + columns) : 0, i);
        double allowed = error(i) * (c.epilogue == LinearEpilogue::logits ? c.scale : 1);
        if (c.gated()) {
          const double up = std::abs(value(i + columns)), gate = std::abs(value(i));
          allowed = 1.2 * (error(i) * (up + 1) + error(i + columns) * gate) + 4e-6 * (up + 1) * (gate + 1);
        }
        if (c.epilogue == LinearEpilogue::residual) {
          want = want * c.scale + old[i];
          allowed = allowed * c.scale + 1e-7 * std::abs(old[i]);
        }
        if (c.softcap > 0) allowed += 1e-5;
        double got = 0;
        const uint8_t* at = y.data() + (r * y_stride() + i) * element_bytes();
        if (element_bytes() == 4) {
          float f;
          std::memcpy(&f, at, 4);
          got = f;
        } else {
          uint16_t bits;
          std::memcpy(&bits, at, 2);
          if (dtype() == DType::f16) {
            __half h;
            std::memcpy(static_cast<void*>(&h), &bits, 2);
            got = __half2float(h);
            if (std::abs(want) > 65000) continue;
          } else {
            const uint32_t wide = uint32_t{bits} << 16;
            float f;
            std::memcpy(&f, &wide, 4);
            got = f;
          }
        }
        if (!std::isfinite(want) || std::abs(want) > 1e37) continue;
        const double difference = std::abs(got - want);
        if (!(difference <= allowed + out_ulp * std::abs(want) + smallest)) {
          if (wrong++ == 0)
            first = "row " + std::to_string(r) + " column " + std::to_string(i) + ": " + std::to_string(got) +
                    " for " + std::to_string(want) + ", allowed " + std::to_string(allowed);
        }
        if (r == 0 || r == 5) total_error += difference, total += std::abs(want);
      }
    expect(wrong == 0, c.name + ": " + std::to_string(wrong) + " values outside the tolerance; " + first);
    const double mean = total_error / std::max(total, 1e-30);
    const double mean_allowed = 0.5 * out_ulp + 2e-5;
    expect(mean < mean_allowed || columns < 64,
           c.name + ": mean error " + std::to_string(mean) + " of the mean value");
  }

  /// Bytes of the truth's rows that differ when they are among `rows` rows.
  unsigned long long differences(int64_t rows, LinearKernel kernel, std::mt19937& random,
                                 const WgmmaPlan* plan = nullptr) {
    std::vector<int> ids(rows), places, which;
    std::vector<Content> kinds(rows);
    for (int64_t i = 0; i < rows; ++i) {
      ids[i] = static_cast<int>(1000 + i);
      kinds[i] = static_cast<Content>(random() % 6);
    }
    const int count = static_cast<int>(std::clamp<int64_t>(rows / 2, 1, 3 * kTruths));
    for (int i = 0; i < count; ++i) {
      const int place = static_cast<int>(random() % rows), t = static_cast<int>(random() % kTruths);
      if (std::find(places.begin(), places.end(), place) != places.end()) continue;
      places.push_back(place), which.push_back(t);
      ids[place] = t, kinds[place] = kContents[t];
    }
    DeviceBytes x = make_x(ids, kinds);
    const int64_t guard = 4096;
    DeviceBytes y(rows * y_stride() * element_bytes() + guard), lists((places.size() * 2 + 4) * sizeof(int));
    y.poison();
    set_bytes(lists.data, 0, lists.size);
    auto* counts = reinterpret_cast<unsigned long long*>(lists.data);
    auto* device_places = reinterpret_cast<int*>(lists.data + 16);
    copy_to_device(device_places, places.data(), places.size() * sizeof(int));
    copy_to_device(device_places + places.size(), which.data(), which.size() * sizeof(int));
    if (plan != nullptr) {
      prepare_y(y.data, rows);
      expect_ok(launch_wgmma_linear(params(x, rows, y.data, kernel), *plan, nullptr), c.name + " by a plan");
      CUDA_CHECK(cudaDeviceSynchronize());
    } else {
      run(x, rows, y.data, kernel);
    }
    const int64_t stride = y_stride() * element_bytes();
    count_differences<<<dim3(64, static_cast<unsigned>(places.size())), 256>>>(
        y.data, stride, device_places, static_cast<int>(places.size()), truth.data, stride, row_bytes(),
        device_places + places.size(), counts);
    count_overwritten<<<256, 256>>>(y.data, rows, stride, row_bytes(), guard, counts + 1);
    unsigned long long found[2];
    CUDA_CHECK(cudaMemcpy(found, counts, 16, cudaMemcpyDeviceToHost));
    expect(found[1] == 0, c.name + ", " + std::to_string(rows) + " rows: " + std::to_string(found[1]) +
                              " bytes overwritten outside the rows of y");
    return found[0];
  }
};

inline const char* name_of(LinearKernel kernel) {
  constexpr const char* kNames[] = {"automatic", "stream", "tile", "mma"};
  return kNames[static_cast<int>(kernel)];
}

inline std::vector<LinearKernel> kernels_of_device(bool hopper) {
  if (!hopper) return {LinearKernel::automatic};
  return {LinearKernel::automatic, LinearKernel::stream, LinearKernel::tile, LinearKernel::mma};
}

template <class T>
void check_case(const LinearCase& c, bool hopper) {
  LinearProblem<T> problem(c);
  problem.check_truth();
  std::mt19937 random(5);
  auto kernels = kernels_of_device(hopper);
  if (LinearProblem<T>::kFloat) kernels = {LinearKernel::automatic};
  for (const LinearKernel kernel : kernels)
    for (const int64_t rows : {1, 2, 7, 8, 9, 12, 16, 17, 33, 40, 64, 65, 96, 128, 200, 1000, 8192}) {
      if (rows > c.most_rows) continue;
      const auto different = problem.differences(rows, kernel, random);
      expect(different == 0, c.name + " [" + std::to_string(c.n) + ", " + std::to_string(c.k) + "], " +
                                 name_of(kernel) + ", " + std::to_string(rows) +
                                 " rows: " + std::to_string(different) + " bytes differ from the row alone");
    }
}

template <class T>
void check_type(const char* name, bool hopper, bool all) {
  for (const LinearCase& c : odd_cases())
    check_case<T>(c, hopper);
  std::printf("%s, odd shapes: %d failures\n", name, failures);
  std::fflush(stdout);
  for (const LinearCase& c : model_cases())
    if (all || c.name.starts_with("Llama") || c.name.starts_with("Qwen3")) {
      check_case<T>(c, hopper);
      std::printf("%s, %s: %d failures\n", name, c.name.c_str(), failures);
      std::fflush(stdout);
    }
}

/// Every way to divide the work that measurements may ask for.
template <class T>
void check_plans(int multiprocessors) {
  std::mt19937 random(6);
  for (const LinearCase& c : {make_case("plans", 2880, 2880, LinearEpilogue::store, false),
                              make_case("gated plans", 9216, 1024, LinearEpilogue::gated, false)}) {
    LinearProblem<T> problem(c);
    for (const LinearKernel kernel : {LinearKernel::stream, LinearKernel::tile})
      for (const ClusterShare share : {ClusterShare::none, ClusterShare::x, ClusterShare::weights})
        for (const bool halves : {false, true})
          for (const int groups : {1, 2})
            for (const int64_t rows : {1, 16, 48, 64, 100, 300}) {
              WgmmaOptions options;
              options.share = share, options.halves = halves, options.groups = groups;
              options.raster = groups;
              options.units = groups == 1 ? 5 : 16;
              options.whole_groups = groups == 2;
              const WgmmaPlan plan = plan_wgmma(rows, c.n, c.k, c.gated(), multiprocessors, kernel, options);
              const auto different = problem.differences(rows, kernel, random, &plan);
              expect(different == 0, c.name + ", " + name_of(kernel) + ", share " +
                                         std::to_string(static_cast<int>(share)) + ", halves " +
                                         std::to_string(halves) + ", " + std::to_string(plan.blocks) +
                                         " blocks, " + std::to_string(rows) +
                                         " rows: " + std::to_string(different) + " bytes differ");
            }
  }
  std::printf("plans: %d failures\n", failures);
}

/// The truth is computed with two k16 steps exchanged: every kernel must differ from it.
template <class T>
void check_planted(bool hopper) {
  LinearProblem<T> problem(make_case("planted", 4096, 4096, LinearEpilogue::store, true), true);
  std::mt19937 random(7);
  for (const LinearKernel kernel : kernels_of_device(hopper))
    for (const int64_t rows : {32, 64, 1000})
      expect(problem.differences(rows, kernel, random) != 0,
             std::string("a planted exchange of two steps is not noticed: ") + name_of(kernel));
  std::printf("planted exchange: %d failures\n", failures);
}

/// Captured launches give the same bytes, at every replay.
template <class T>
void check_graph() {
  LinearProblem<T> problem(make_case("graph", 6144, 1024, LinearEpilogue::gated, false));
  auto stream = CudaStream::create(0);
  expect(stream.ok(), "a stream");
  for (const int rows : {1, 64, 1000}) {
    std::vector<int> ids(rows, 0);
    DeviceBytes x = problem.make_x(ids, std::vector<Content>(rows, Content::normal));
    DeviceBytes y(rows * problem.y_stride() * 2), counts(64 + 8 * rows);
    auto graph = CudaGraph::capture(*stream, [&](CudaStream& s) {
      return launch_linear(problem.params(x, rows, y.data, LinearKernel::automatic), s);
    });
    expect(graph.ok(), "capture" + (graph.ok() ? std::string() : ": " + graph.error().message));
    if (!graph.ok()) return;
    for (int replay = 0; replay < 3; ++replay) {
      y.poison();
      set_bytes(counts.data, 0, counts.size);
      CUDA_CHECK(cudaDeviceSynchronize());
      expect_ok(graph->replay(*stream), "replay");
      expect_ok(stream->synchronize(), "replay");
      const int last = rows - 1;
      copy_to_device(counts.data + 16, &last, 4);
      const int64_t stride = problem.y_stride() * 2;
      count_differences<<<dim3(64, 1), 256>>>(y.data, stride, reinterpret_cast<int*>(counts.data + 16), 1,
                                              problem.truth.data, stride, problem.row_bytes(),
                                              reinterpret_cast<int*>(counts.data + 32),
                                              reinterpret_cast<unsigned long long*>(counts.data));
      unsigned long long different = 0;
      CUDA_CHECK(cudaMemcpy(&different, counts.data, 8, cudaMemcpyDeviceToHost));
      expect(different == 0, "a captured launch of " + std::to_string(rows) + " rows differs");
    }
  }
}

/// The packed bytes against the host's index functions, and refusals.
inline void check_packing_and_errors() {
  CudaStream stream = CudaStream::borrow(nullptr, 0);
  for (const bool gated : {false, true})
    for (const int64_t k : {5, 64, 100}) {
      const int64_t n = 38, rows = gated ? n / 2 : n;
      std::vector<uint16_t> source(n * k);
      for (size_t i = 0; i < source.size(); ++i)
        source[i] = static_cast<uint16_t>(i + 1);
      DeviceBytes from(source.size() * 2), to(packed_bytes(n, k, gated));
      to.poison();
      copy_to_device(from.data, source.data(), from.size);
      std::vector<uint16_t> want(to.size / 2, 0), got(to.size / 2);
      for (int part = gated ? 1 : 0; part <= (gated ? 2 : 0); ++part) {
        const int64_t base = part == 2 ? rows : 0;
        PackParams p;
        p.n = n, p.k = k, p.src = from.data + base * k * 2, p.src_stride = k;
        p.part = static_cast<PackedPart>(part), p.rows = rows, p.dst = to.data;
        expect_ok(launch_pack(p, stream), "packing");
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t i = 0; i < k; ++i)
            want[packed_offset(packed_row(p.part, r), i, k) / 2] = source[(base + r) * k + i];
      }
      CUDA_CHECK(cudaMemcpy(got.data(), to.data, to.size, cudaMemcpyDeviceToHost));
      expect(got == want, "packed bytes of " + std::to_string(k) + " inputs");
    }
  DeviceBytes memory(1 << 16);
  LinearParams p;
  p.n = 16, p.k = 64, p.rows = 2, p.x_stride = 64, p.y_stride = 16;
  p.weight = p.x = p.y = memory.data;
  const auto refused = [&](LinearParams q, const char* what) {
    expect(!launch_linear(q, stream).ok(), std::string("not refused: ") + what);
  };
  LinearParams q = p;
  q.x = memory.data + 2;
  refused(q, "x that is not aligned");
  q = p, q.x_stride = 68;
  refused(q, "a stride that is no multiple of 8");
  q = p, q.epilogue = LinearEpilogue::residual;
  refused(q, "a residual of 16 bits");
  q = p, q.n = 15, q.epilogue = LinearEpilogue::gated;
  refused(q, "an odd gated pair");
  q = p, q.k = 0;
  refused(q, "no inputs");
  q = p, q.y_dtype = DType::f16;
  refused(q, "another type of y");
  q = p, q.rows = 0;
  expect_ok(launch_linear(q, stream), "no rows");
}

/// All heads as one launch against a launch for each, as bytes. Packed weights are only read, so any values
/// do.
template <class T>
void check_heads() {
  constexpr DType kType = std::is_same_v<T, __half> ? DType::f16 : DType::bf16;
  CudaStream stream = CudaStream::borrow(nullptr, 0);
  for (const auto& [heads, n, k] :
       {std::array<int64_t, 3>{128, 512, 128}, {128, 128, 512}, {16, 512, 192}, {5, 40, 24}})
    for (const int64_t rows : {1, 2, 7, 16, 17, 64, 65, 300}) {
      HeadLinearParams p;
      p.heads = heads;
      p.weight_head = (packed_bytes(n, k) + 127) / 128 * 128;
      p.x_head = (k + 7) / 8 * 8 + 8, p.y_head = n + 3;
      LinearParams& first = p.first;
      first.dtype = first.y_dtype = kType;
      first.n = n, first.k = k, first.rows = rows;
      first.x_stride = heads * p.x_head, first.y_stride = heads * p.y_head;
      DeviceBytes x(rows * first.x_stride * 2), weights(heads * p.weight_head);
      fill<T>(x.data, p.x_head, rows * heads, k, 31, nullptr, nullptr, 1.0f);
      fill<T>(weights.data, p.weight_head / 2, heads, p.weight_head / 2, 32, nullptr, nullptr, 0.25f);
      DeviceBytes together(rows * first.y_stride * 2), apart(together.size);
      together.poison(), apart.poison();
      first.x = x.data, first.weight = weights.data, first.y = together.data;
      const std::string name = std::to_string(heads) + " heads of " + std::to_string(n) + " x " +
                               std::to_string(k) + ", " + std::to_string(rows) + " rows";
      expect_ok(launch_head_linear(p, stream), name);
      for (int64_t h = 0; h < heads; ++h) {
        LinearParams one = first;
        one.x = x.data + h * p.x_head * 2, one.weight = weights.data + h * p.weight_head;
        one.y = apart.data + h * p.y_head * 2;
        expect_ok(launch_linear(one, stream), name);
      }
      CUDA_CHECK(cudaDeviceSynchronize());
      std::vector<uint8_t> a(together.size), b(apart.size);
      CUDA_CHECK(cudaMemcpy(a.data(), together.data, a.size(), cudaMemcpyDeviceToHost));
      CUDA_CHECK(cudaMemcpy(b.data(), apart.data, b.size(), cudaMemcpyDeviceToHost));
      expect(a == b, name + ": bytes differ");
      const auto written = std::count_if(a.begin(), a.end(), [](uint8_t byte) { return byte != 0xff; });
      expect(written > static_cast<int64_t>(a.size()) / 2, name + ": nothing is written");
    }
  std::printf("heads: %d failures\n", failures);
}

}  // namespace fovea::cuda
