#pragma once
// Building blocks of decoder families. Activations are fp32. Every operation is row-wise, so a row's bits
// depend neither on other rows nor on the number of threads.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/aligned.h"
#include "model/model.h"
#include "model/moe.h"
#include "model/weights.h"

namespace fovea {

/// RoPE tables for one step's rows.
struct RopeRows {
  const float* cos = nullptr;  ///< [T, rotary_dim / 2], by each row's position
  const float* sin = nullptr;
  int rotary_dim = 0;
  bool interleaved = false;
};

/// Scratch of one step, shared by all layers. T rows; widths in elements.
struct LayerScratch {
  float* qkv = nullptr;               ///< [T, (Hq + 2 Hkv) * D]
  float* heads = nullptr;             ///< [T, Hq * D] attention output
  float* gate_up = nullptr;           ///< [T, 2 * intermediate]
  float* act = nullptr;               ///< [T, intermediate]
  std::vector<RopeRows> ropes;        ///< by LayerConfig::rope
  std::span<const int32_t> row_ids;   ///< 0 .. T - 1: row t uses row t of cos and sin
  std::optional<MoeScratch> experts;  ///< of models with experts
};

/// Scales queries of layers without rotation by their position p, which sharpens the softmax far from the
/// start: q *= 1 + scale * log(1 + floor((p + 1) / floor)).
struct QueryTemperature {
  double scale = 0.0;  ///< 0 = off
  double floor = 8192.0;
};

/// RMSNorm, or LayerNorm if it has a bias; empty without a weight.
struct Norm {
  AlignedArray<float> weight, bias;  ///< [dim]; for rms_plus_one, weight = 1 + w
  float eps = 0.0f;

  explicit operator bool() const { return weight.size() > 0; }
  /// y = norm(x) for rows of the weight's size; in place (y == x) is allowed.
  void apply(const float* x, int64_t x_stride, float* y, int64_t y_stride, int64_t rows,
             ThreadPool& pool) const;
  /// RMSNorm of each of the heads [rows, heads, D] in place; rows `row_stride` apart.
  void apply_to_heads(float* x, int64_t row_stride, int heads, int64_t rows, ThreadPool& pool) const;
  int64_t bytes() const { return static_cast<int64_t>((weight.size() + bias.size()) * sizeof(float)); }
};

/// Grouped-query attention with rotary positions: qkv, norm of q and k, RoPE, KV append, attention. The
/// output projection is separate, so that rows without wanted logits can be dropped before it.
struct AttentionBlock {
  Linear qkv;  ///< outputs: Hq heads of q, Hkv of k, Hkv of v
  Linear out;
  /// By config.qk_norm: weights [D] (head; all ones for l2_after_rope), or [Hq * D] and [Hkv * D] (row).
  Norm q_norm, k_norm;
  AlignedArray<float> sinks;  ///< [Hq] where config.sinks
  QueryTemperature temperature;

  /// scratch.heads = attention of x [T, hidden] in decoder layer `layer`.
  void attend(const ModelConfig& config, int layer, const float* x, const ForwardInput& input,
              const LayerScratch& scratch, Stream& stream) const;
  int64_t bytes() const;

 private:
  void norm_heads(const ModelConfig& config, float* q, int64_t rows, ThreadPool& pool) const;
};

/// down(activation(gate(x)) * up(x))
struct GatedMlp {
  Activation activation = Activation::silu;
  Linear gate_up;  ///< outputs: gate, then up
  Linear down;

  /// out = mlp(x), both [rows, hidden].
  void forward(const float* x, int64_t rows, float* out, const LayerScratch& scratch, ThreadPool& pool) const;
};

/// Selected by LayerConfig::moe.
using MlpBlock = std::variant<GatedMlp, MoeBlock>;

/// How a checkpoint stores matrices that share their input: one tensor each, or stacked into one
/// (qkv_proj, gate_up_proj).
enum class Stored : uint8_t { apart, stacked };

/// Tensors PREFIX.weight, and PREFIX.bias of a LayerNorm.
Norm read_norm(const std::string& prefix, int64_t size, const ModelConfig& config, WeightReader& reader);
/// Tensors PREFIX + {q,k,v,o}_proj, and, depending on the config, {q,k}_norm.weight and sinks.
AttentionBlock read_attention(const std::string& prefix, const ModelConfig& config, WeightReader& reader,
                              Stored stored = Stored::apart);
/// Tensors PREFIX + {gate,up,down}_proj.
GatedMlp read_gated_mlp(const std::string& prefix, const ModelConfig& config, WeightReader& reader,
                        Stored stored = Stored::apart);

}  // namespace fovea
