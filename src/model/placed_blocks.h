#pragma once
// Blocks of encoders and of decoders with cross attention on a device (encoder_blocks.h on the CPU): the
// weights as the operations read them, and the blocks as lists of operations on the residual stream.
#include "model/encoder_blocks.h"
#include "model/placed_weights.h"
#include "ops/op_queue.h"
#include "tensor/arena.h"

namespace fovea {

struct PlacedSelfAttention {
  LinearWeight qkv, out;  ///< qkv's outputs: all heads of q, then k, then v
  NormWeight norm;
};

struct PlacedCrossAttention {
  LinearWeight q, kv, out;  ///< kv's outputs: all heads of k, then v
  NormWeight norm;
};

struct PlacedFeedForward {
  LinearWeight in, out;
  NormWeight norm;
};

struct PlacedEncoderLayer {
  PlacedSelfAttention attention;
  PlacedFeedForward mlp;
};

NormWeight place(const BiasedNorm& norm, float eps, WeightPlacement& placement);
PlacedSelfAttention place(const SelfAttention& block, float eps, WeightPlacement& placement);
PlacedCrossAttention place(const CrossAttention& block, float eps, WeightPlacement& placement);
PlacedFeedForward place(const FeedForward& block, float eps, WeightPlacement& placement);

/// A matrix [rows, width] in arena memory for [max_rows, width]. Rows of 16-bit types begin at multiples of
/// 16 bytes, as matrix kernels read them.
Tensor take_rows(Arena& arena, ElementType type, int64_t max_rows, int64_t rows, int64_t width);

/// Runs blocks on a residual stream x, which is fp32; blocks read it rounded to the type of activations.
class BlockPass {
 public:
  /// Takes x and the blocks' inputs and outputs from the arena, for `max_rows` rows, and up to `max_kept` of
  /// keep_rows().
  BlockPass(const BlockShape& shape, int64_t rows, int64_t max_rows, int64_t max_kept, Arena& arena,
            OpQueue& queue);

  const Tensor& x() const { return x_; }  ///< f32 [rows, hidden]
  Tensor take(ElementType type, int64_t width) { return take_rows(arena_, type, max_rows_, rows_, width); }
  /// x, or norm(x), in the type of activations.
  Tensor input(const NormWeight& norm);

  /// Every row of a sequence sees every other; keys and values are this step's rows, a ragged KvView.
  /// `attention` is null in a dry run.
  void encoder_layer(const PlacedEncoderLayer& layer, int index, StepAttention* attention);
  /// Causal, over the paged KV cache.
  void self_attention(const PlacedSelfAttention& block, int layer, const StepTensors& step);
  /// Over the encoder's keys and values, in separate pages of the same cache layer.
  void cross_attention(const PlacedCrossAttention& block, int layer, int index, const StepTensors& step);
  void feed_forward(const PlacedFeedForward& block);
  /// Keeps rows `ids` of x alone, if they are not all; only feed_forward() may follow.
  void keep_rows(const Tensor& ids);

 private:
  Tensor enter(const NormWeight& norm);
  void leave(const NormWeight& norm, const LinearWeight& out, const Tensor& inner);

  const BlockShape& shape_;
  int64_t rows_;
  const int64_t max_rows_;
  Arena& arena_;
  OpQueue& q_;
  Tensor x_, kept_, input_, branch_;
};

/// Writes keys and values kv [T, 2 * hidden] to slots i64 [T] of a layer of the cache. positions i32 [T] of
/// any content.
void append_kv(const Tensor& kv, const BlockShape& shape, const Tensor& positions, const Tensor& slots,
               const KvView& view, OpQueue& queue);

}  // namespace fovea
