#pragma once
// The weights of a decoder's blocks, and how they are read. decoder_forward.cc computes with them.
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/aligned.h"
#include "model/config.h"
#include "model/moe.h"
#include "model/weights.h"

namespace fovea {

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
  int64_t bytes() const { return static_cast<int64_t>((weight.size() + bias.size()) * sizeof(float)); }
};

/// Grouped-query attention with rotary positions.
struct AttentionBlock {
  Linear qkv;  ///< outputs: Hq heads of q, Hkv of k, Hkv of v
  Linear out;
  /// By config.qk_norm: weights [D] (head; all ones for l2_after_rope), or [Hq * D] and [Hkv * D] (row).
  Norm q_norm, k_norm;
  AlignedArray<float> sinks;  ///< [Hq] where config.sinks
  QueryTemperature temperature;

  int64_t bytes() const;
};

/// The indexer of sparse attention (IndexerConfig): its queries from the queries' latent, its key and the
/// weights of its heads from the hidden state.
struct IndexerBlock {
  Linear queries;  ///< [heads * dim, q_rank]
  Linear key;      ///< [dim, hidden]
  Norm key_norm;   ///< LayerNorm [dim]
  Linear weights;  ///< [heads, hidden]

  int64_t bytes() const { return queries.bytes() + key.bytes() + key_norm.bytes() + weights.bytes(); }
};

/// Latent attention (MlaConfig): queries and the cached record from the hidden state, the up-projections of
/// keys and values for each head, and the output.
struct LatentBlock {
  /// Outputs: the queries' latent [q_rank], or without one the queries [heads * qk_dim]; then the record.
  Linear down;
  Norm q_norm;                   ///< [q_rank]; empty without
  Linear q_up;                   ///< [heads * qk_dim, q_rank]; empty without
  Norm kv_norm;                  ///< [kv_rank]
  std::vector<Linear> key_up;    ///< [heads] of [kv_rank, nope_dim]: queries into the latent's space
  std::vector<Linear> value_up;  ///< [heads] of [v_dim, kv_rank]
  /// [heads] of [nope_dim, kv_rank]: latents into keys; empty without MlaConfig::expanded_keys.
  std::vector<Linear> key_down;
  Linear out;
  std::optional<IndexerBlock> indexer;

  int64_t bytes() const;
};

/// down(activation(gate(x)) * up(x))
struct GatedMlp {
  Activation activation = Activation::silu;
  Linear gate_up;  ///< outputs: gate, then up
  Linear down;
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
/// Tensors PREFIX + {q_a_proj,q_a_layernorm,q_b_proj} or q_proj,
/// {kv_a_proj_with_mqa,kv_a_layernorm,kv_b_proj}, o_proj, and indexer.{wq_b,wk,k_norm,weights_proj} if
/// `indexer`.
LatentBlock read_latent(const std::string& prefix, const ModelConfig& config, WeightReader& reader,
                        bool indexer = false);
/// Tensors PREFIX + {gate,up,down}_proj.
GatedMlp read_gated_mlp(const std::string& prefix, const ModelConfig& config, WeightReader& reader,
                        Stored stored = Stored::apart);

}  // namespace fovea
