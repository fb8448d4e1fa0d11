#pragma once
// The blocks that decoder families are built from. Activations are fp32; every operation works row by row, so
// a row's bits depend neither on its neighbours nor on the threads.
#include <cstdint>
#include <string>

#include "base/aligned.h"
#include "model/model.h"
#include "model/weights.h"

namespace fovea {

/// Scratch of one step, shared by all layers. T rows; widths in elements.
struct LayerScratch {
  float* qkv = nullptr;        ///< [T, (Hq + 2 Hkv) * D]
  float* heads = nullptr;      ///< [T, Hq * D] attention output
  float* gate_up = nullptr;    ///< [T, 2 * intermediate]
  float* act = nullptr;        ///< [T, intermediate]
  const float* cos = nullptr;  ///< [T, D / 2] of each row's position
  const float* sin = nullptr;
  std::span<const int32_t> row_ids;  ///< 0 .. T - 1: row t uses row t of cos and sin
};

/// Grouped-query attention with rotary positions: qkv, optional RMSNorm of each q and k head, RoPE, KV
/// append, attention, output projection.
struct AttentionBlock {
  Linear qkv;  ///< outputs: Hq heads of q, Hkv of k, Hkv of v
  Linear out;
  AlignedArray<float> q_norm, k_norm;  ///< [D] each; empty = none

  /// scratch.heads = attention of x [T, hidden].
  void attend(const ModelConfig& config, int layer, const float* x, const ForwardInput& input,
              const LayerScratch& scratch, ThreadPool& serial, Stream& stream) const;
};

/// down(silu(gate(x)) * up(x))
struct GatedMlp {
  Linear gate_up;  ///< outputs: gate, then up
  Linear down;

  /// out = mlp(x), both [rows, hidden].
  void forward(const float* x, int64_t rows, float* out, const LayerScratch& scratch, ThreadPool& pool) const;
};

/// Tensors PREFIX + {q,k,v,o}_proj, and {q,k}_norm.weight when config.qk_norm is head.
AttentionBlock read_attention(const std::string& prefix, const ModelConfig& config, WeightReader& reader);
/// Tensors PREFIX + {gate,up,down}_proj.
GatedMlp read_gated_mlp(const std::string& prefix, const ModelConfig& config, WeightReader& reader);

}  // namespace fovea
