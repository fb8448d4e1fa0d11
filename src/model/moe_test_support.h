#pragma once
// Test support for MoE layers: random layers, checkpoints in every layout, and an fp64 reference.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "../tests/support/safetensors_writer.h"
#include "../tests/support/temp_dir.h"
#include "base/float16.h"
#include "model/config.h"

namespace fovea::test {

using Floats = std::vector<float>;

inline const std::string kMoePrefix = "model.layers.3.";

/// One gated MLP, row-major.
struct PlainExpert {
  Floats gate, up, gate_bias, up_bias;  ///< [I, H], [I, H], [I], [I]
  Floats down, down_bias;               ///< [H, I], [H]
};

struct PlainMoe {
  ModelConfig config;
  Floats router, router_bias;
  std::vector<PlainExpert> experts;
  PlainExpert shared;
};

/// Values representable in MXFP4: blocks of 32 e2m1 values times a power 2^-4 .. 2^-2.
inline Floats mxfp4_values(size_t count, std::mt19937& random) {
  constexpr float kValues[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  Floats values;
  for (size_t i = 0; i < count; ++i) {
    const float power = std::ldexp(1.0f, -4 + static_cast<int>(i / 32 % 3));
    values.push_back(kValues[random() % 8] * power * (random() % 2 ? 0.25f : -0.25f));
  }
  return values;
}

/// Weights exact in bf16 that keep activations near 1.
inline PlainMoe random_moe(const ModelConfig& config, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  const MoeConfig& moe = config.moe;
  const auto hidden = static_cast<size_t>(config.hidden_size);
  const auto make = [&](size_t count, double deviation) {
    Floats values(count);
    for (float& v : values)
      v = bf16_to_float(float_to_bf16(static_cast<float>(deviation) * normal(random)));
    return values;
  };
  const auto matrix = [&](size_t n, size_t k, bool quantised) {
    return quantised ? mxfp4_values(n * k, random) : make(n * k, 1.3 / std::sqrt(static_cast<double>(k)));
  };
  const auto expert = [&](size_t intermediate, bool bias, bool quantised) {
    PlainExpert e;
    e.gate = matrix(intermediate, hidden, quantised);
    e.up = matrix(intermediate, hidden, quantised);
    e.down = matrix(hidden, intermediate, quantised);
    if (!bias) return e;
    e.gate_bias = make(intermediate, 0.5);
    e.up_bias = make(intermediate, 0.5);
    e.down_bias = make(hidden, 0.5);
    return e;
  };
  PlainMoe plain{config, matrix(static_cast<size_t>(moe.num_experts), hidden, false), {}, {}, {}};
  if (moe.layout == MoeLayout::gpt_oss) plain.router_bias = make(static_cast<size_t>(moe.num_experts), 1);
  for (int e = 0; e < moe.num_experts; ++e)
    plain.experts.push_back(
        expert(static_cast<size_t>(moe.intermediate_size), moe.layout == MoeLayout::gpt_oss, moe.mxfp4));
  if (moe.shared_intermediate_size > 0)
    plain.shared = expert(static_cast<size_t>(moe.shared_intermediate_size), false, false);
  return plain;
}

inline std::vector<double> plain_expert(const PlainExpert& e, const std::vector<double>& x, float limit) {
  const auto linear = [](const Floats& weight, const Floats& bias, const std::vector<double>& in) {
    std::vector<double> out(weight.size() / in.size());
    for (size_t n = 0; n < out.size(); ++n) {
      out[n] = bias.empty() ? 0.0 : bias[n];
      for (size_t k = 0; k < in.size(); ++k)
        out[n] += static_cast<double>(weight[n * in.size() + k]) * in[k];
    }
    return out;
  };
  std::vector<double> gate = linear(e.gate, e.gate_bias, x);
  const std::vector<double> up = linear(e.up, e.up_bias, x);
  const double top = limit;
  for (size_t i = 0; i < gate.size(); ++i) {
    if (limit > 0) {
      const double g = std::min(gate[i], top), u = std::clamp(up[i], -top, top);
      gate[i] = (u + 1) * g / (1 + std::exp(-1.702 * g));
    } else {
      gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
    }
  }
  return linear(e.down, e.down_bias, gate);
}

/// The definition for one row. On equal logits lower expert ids win.
inline std::vector<double> plain_moe(const PlainMoe& plain, const float* row) {
  const MoeConfig& moe = plain.config.moe;
  const auto hidden = static_cast<size_t>(plain.config.hidden_size);
  const auto experts = static_cast<size_t>(moe.num_experts), k = static_cast<size_t>(moe.experts_per_token);
  const std::vector<double> x(row, row + hidden);
  std::vector<double> logits(experts);
  for (size_t e = 0; e < experts; ++e) {
    logits[e] = plain.router_bias.empty() ? 0.0 : plain.router_bias[e];
    for (size_t i = 0; i < hidden; ++i)
      logits[e] += static_cast<double>(plain.router[e * hidden + i]) * x[i];
  }
  std::vector<size_t> order(experts);
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return logits[a] > logits[b]; });

  double all = 0, taken = 0;
  for (size_t e = 0; e < experts; ++e) {
    all += std::exp(logits[order[e]]);
    if (e < k) taken += std::exp(logits[order[e]]);
  }
  std::vector<double> out(hidden);
  if (!plain.shared.gate.empty()) out = plain_expert(plain.shared, x, 0);
  for (size_t j = 0; j < k; ++j) {
    const PlainExpert& expert = plain.experts[order[j]];
    const double e = std::exp(logits[order[j]]);
    if (moe.router == MoeRouter::sigmoid_top) {
      std::vector<double> in = x;
      for (double& v : in)
        v *= e / (1 + e);
      const std::vector<double> y = plain_expert(expert, in, moe.swiglu_limit);
      for (size_t i = 0; i < hidden; ++i)
        out[i] += y[i];
    } else {
      const bool over_taken = moe.router == MoeRouter::top_then_softmax || moe.renormalize;
      const std::vector<double> y = plain_expert(expert, x, moe.swiglu_limit);
      for (size_t i = 0; i < hidden; ++i)
        out[i] += y[i] * e / (over_taken ? taken : all);
    }
  }
  return out;
}

/// Writes the layer as a checkpoint of its family.
class MoeWriter {
 public:
  MoeWriter(const PlainMoe& plain, DType dtype, bool fused) : plain_(plain), dtype_(dtype) {
    const MoeLayout layout = plain.config.moe.layout;
    const std::string block = kMoePrefix + (layout == MoeLayout::llama4              ? "feed_forward."
                                            : layout == MoeLayout::mixtral && !fused ? "block_sparse_moe."
                                                                                     : "mlp.");
    const bool old = layout == MoeLayout::gpt_oss || layout == MoeLayout::llama4;
    const std::string router = block + (old ? "router" : "gate");
    add(router + ".weight", {experts(), hidden()}, plain.router);
    if (!plain.router_bias.empty()) add(router + ".bias", {experts()}, plain.router_bias);
    if (!plain.shared.gate.empty())
      add_single(block + "shared_expert.", plain.shared, "gate_proj", "up_proj", "down_proj");
    if (old || fused) {
      add_fused(block + "experts.", old, layout == MoeLayout::gpt_oss);
      return;
    }
    for (size_t e = 0; e < plain.experts.size(); ++e) {
      const std::string name = block + "experts." + std::to_string(e) + ".";
      if (layout == MoeLayout::mixtral)
        add_single(name, plain.experts[e], "w1", "w3", "w2");
      else
        add_single(name, plain.experts[e], "gate_proj", "up_proj", "down_proj");
    }
  }

  struct Raw {
    std::string name, type;
    std::vector<int64_t> shape;
    std::string bytes;
  };
  std::vector<Raw> tensors;  ///< tests change them before write()

  Raw& at(const std::string& ending) {
    return *std::ranges::find_if(tensors, [&](const Raw& raw) { return raw.name.ends_with(ending); });
  }
  void erase(const std::string& ending) {
    std::erase_if(tensors, [&](const Raw& raw) { return raw.name.ends_with(ending); });
  }
  void write(const TempDir& dir) const {
    SafetensorsWriter writer;
    for (const Raw& raw : tensors)
      writer.add(raw.name, raw.type, raw.shape, raw.bytes);
    dir.write("model.safetensors", writer.bytes(/*padding=*/1));  // unaligned
  }

 private:
  int64_t experts() const { return plain_.config.moe.num_experts; }
  int64_t hidden() const { return plain_.config.hidden_size; }
  void add(const std::string& name, std::vector<int64_t> shape, const Floats& values) {
    const char* type = dtype_ == DType::f32 ? "F32" : dtype_ == DType::f16 ? "F16" : "BF16";
    tensors.push_back({name, type, std::move(shape), encode(values, dtype_)});
  }
  void add_single(const std::string& prefix, const PlainExpert& e, const char* gate, const char* up,
                  const char* down) {
    const auto intermediate = static_cast<int64_t>(e.gate.size()) / hidden();
    add(prefix + gate + ".weight", {intermediate, hidden()}, e.gate);
    add(prefix + up + ".weight", {intermediate, hidden()}, e.up);
    add(prefix + down + ".weight", {hidden(), intermediate}, e.down);
  }
  void add_fused(const std::string& prefix, bool transposed, bool interleaved) {
    const auto h = static_cast<size_t>(hidden()),
               i = static_cast<size_t>(plain_.config.moe.intermediate_size);
    Floats gate_up, gate_up_bias, down, down_bias;
    for (const PlainExpert& e : plain_.experts) {
      Floats rows, biases;
      for (size_t r = 0; r < 2 * i; ++r) {
        const bool is_up = interleaved ? r % 2 == 1 : r >= i;
        const size_t from = interleaved ? r / 2 : r % i;
        const Floats& matrix = is_up ? e.up : e.gate;
        rows.insert(rows.end(), matrix.begin() + static_cast<std::ptrdiff_t>(from * h),
                    matrix.begin() + static_cast<std::ptrdiff_t>((from + 1) * h));
        if (!e.gate_bias.empty()) gate_up_bias.push_back(is_up ? e.up_bias[from] : e.gate_bias[from]);
      }
      append(gate_up, rows, 2 * i, h, transposed && !plain_.config.moe.mxfp4);
      append(down, e.down, h, i, transposed && !plain_.config.moe.mxfp4);
      down_bias.insert(down_bias.end(), e.down_bias.begin(), e.down_bias.end());
    }
    add_experts(prefix + "gate_up_proj", gate_up, 2 * i, h, transposed);
    add_experts(prefix + "down_proj", down, h, i, transposed);
    if (gate_up_bias.empty()) return;
    add(prefix + "gate_up_proj_bias", {experts(), static_cast<int64_t>(2 * i)}, gate_up_bias);
    add(prefix + "down_proj_bias", {experts(), hidden()}, down_bias);
  }
  static void append(Floats& out, const Floats& matrix, size_t n, size_t k, bool transposed) {
    if (!transposed) return void(out.insert(out.end(), matrix.begin(), matrix.end()));
    for (size_t c = 0; c < k; ++c)
      for (size_t r = 0; r < n; ++r)
        out.push_back(matrix[r * k + c]);
  }
  void add_experts(const std::string& name, const Floats& values, size_t n, size_t k, bool transposed) {
    const auto rows = static_cast<int64_t>(n), columns = static_cast<int64_t>(k);
    if (plain_.config.moe.mxfp4) return add_mxfp4(name, values, rows, columns);
    add(name, transposed ? std::vector{experts(), columns, rows} : std::vector{experts(), rows, columns},
        values);
  }
  /// Each block's scale makes all of its values multiples of 0.5 and at most 6.
  void add_mxfp4(const std::string& name, const Floats& values, int64_t rows, int64_t columns) {
    constexpr float kValues[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    std::string blocks, scales;
    for (size_t b = 0; b < values.size(); b += 32) {
      const int power = -6 + static_cast<int>(b / 32 % 3);
      scales += static_cast<char>(127 + power);
      for (size_t i = b; i < b + 32; i += 2) {
        unsigned byte = 0;
        for (size_t j = 0; j < 2; ++j) {
          const float v = std::ldexp(values[i + j], -power);
          const auto code = static_cast<unsigned>(std::ranges::find(kValues, std::fabs(v)) - kValues);
          byte |= (code | (std::signbit(v) ? 8u : 0u)) << (4 * j);
        }
        blocks += static_cast<char>(byte);
      }
    }
    tensors.push_back({name + "_blocks", "U8", {experts(), rows, columns / 32, 16}, blocks});
    tensors.push_back({name + "_scales", "U8", {experts(), rows, columns / 32}, scales});
  }

  const PlainMoe& plain_;
  DType dtype_;
};

}  // namespace fovea::test
