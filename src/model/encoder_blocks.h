#pragma once
// Blocks of encoders and of decoders with cross attention (BERT, BART, Whisper): multi-head attention and an
// ungated MLP, each with a LayerNorm before it (pre) or after its residual sum (residual). Activations are
// fp32; every operation is row-wise.
#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "base/aligned.h"
#include "model/model.h"
#include "model/weights.h"

namespace fovea {

/// LayerNorm with bias; empty = none.
struct BiasedNorm {
  AlignedArray<float> weight, bias;  ///< [hidden] each

  explicit operator bool() const { return weight.size() > 0; }
  void forward(const float* x, float* y, int64_t rows, float eps, ThreadPool& pool) const;
  int64_t bytes() const { return static_cast<int64_t>((weight.size() + bias.size()) * sizeof(float)); }
};

struct SelfAttention {
  Linear qkv, out;  ///< qkv's outputs: all heads of q, then k, then v
  BiasedNorm norm;
};

/// Queries from the decoder, keys and values from the encoder's output.
struct CrossAttention {
  Linear q, kv, out;  ///< kv's outputs: all heads of k, then v
  BiasedNorm norm;
};

struct FeedForward {
  Linear in, out;
  BiasedNorm norm;
};

struct EncoderLayer {
  SelfAttention attention;
  FeedForward mlp;
  int64_t bytes() const;
};

struct CrossDecoderLayer {
  SelfAttention attention;
  CrossAttention cross;
  FeedForward mlp;
  int64_t bytes() const;
};

/// Settings shared by the layers of one stack.
struct BlockShape {
  int hidden = 0, heads = 0, intermediate = 0;
  NormPlacement placement = NormPlacement::residual;  ///< or pre
  float eps = 1e-5f;
  Activation activation = Activation::gelu;

  int head_dim() const { return hidden / heads; }
  /// Row width of BlockScratch::wide: q, k, v and the attention output, or the MLP's intermediate values.
  int64_t wide() const { return std::max<int64_t>(4 * int64_t{hidden}, intermediate); }
};

/// Buffers of one pass over T rows.
struct BlockScratch {
  float* x = nullptr;       ///< [T, hidden] the residual stream
  float* normed = nullptr;  ///< [T, hidden]
  float* branch = nullptr;  ///< [T, hidden] a block's output
  float* wide = nullptr;    ///< [T, BlockShape::wide()]
};

/// Runs blocks on the residual stream in a scratch.
class BlockRunner {
 public:
  BlockRunner(const BlockShape& shape, const BlockScratch& scratch, Stream& stream)
      : shape_(shape), s_(scratch), stream_(stream) {}

  /// Every row of a sequence sees every other; keys and values are this step's rows, a ragged KvView.
  Status encoder_layer(const EncoderLayer& layer, int64_t rows, int index, StepAttention& attention);
  /// Causal, over the paged KV cache.
  Status self_attention(const SelfAttention& block, int layer, const ForwardInput& input);
  /// Over the encoder's keys and values, in separate pages of the same cache layer.
  Status cross_attention(const CrossAttention& block, int layer, int index, const ForwardInput& input);
  void feed_forward(const FeedForward& block, int64_t rows);

 private:
  const float* enter(const BiasedNorm& norm, int64_t rows);
  void leave(const BiasedNorm& norm, const Linear& out, const float* inner, int64_t rows);

  const BlockShape& shape_;
  const BlockScratch& s_;
  Stream& stream_;
};

/// Tensor names of one layer, after its prefix.
struct BlockNames {
  std::string_view q, k, v, out, attention_norm;
  std::string_view in, mlp_out, mlp_norm;
};

/// NAME.weight and NAME.bias, or gamma and beta in checkpoints converted from TensorFlow.
BiasedNorm read_biased_norm(const std::string& name, int64_t size, WeightReader& reader);
/// `key_bias` false: the key projection has no bias (Whisper).
SelfAttention read_self_attention(const std::string& prefix, const BlockNames& names, int64_t hidden,
                                  bool key_bias, WeightReader& reader);
FeedForward read_feed_forward(const std::string& prefix, const BlockNames& names, int64_t hidden,
                              int64_t intermediate, WeightReader& reader);

/// The first of `prefixes` under which the checkpoint has `tensor`.
std::string find_prefix(const WeightReader& reader, const std::string& tensor,
                        std::initializer_list<std::string_view> prefixes);

}  // namespace fovea
