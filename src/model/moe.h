#pragma once
// Mixture of experts: a router sends each row to the top k of many gated MLPs. A row's expert outputs are
// summed in ascending order of expert id, independent of other rows, chunks and threads.
#include <cstdint>
#include <string>
#include <vector>

#include "base/aligned.h"
#include "base/thread_pool.h"
#include "model/config.h"
#include "model/weights.h"

namespace fovea {

/// Buffers of MoeBlock::forward, shared by all layers of a model.
class MoeScratch {
 public:
  MoeScratch() = default;
  /// Sized for `max_rows` rows in any of the config's expert layers.
  MoeScratch(const ModelConfig& config, int64_t max_rows);
  int64_t bytes() const;

 private:
  friend struct MoeBlock;
  int64_t max_rows_ = 0, block_rows_ = 0;
  AlignedArray<float> logits_;     // [max_rows, experts]
  AlignedArray<int32_t> experts_;  // [max_rows, k] ids of each row's experts
  AlignedArray<float> weights_;    // [max_rows, k] of each row's experts
  AlignedArray<int64_t> starts_;   // [experts + 2] start of each expert's rows in the two arrays below
  AlignedArray<int32_t> rows_;     // [max_rows * k] by expert, ascending
  AlignedArray<float> scales_;     // [max_rows * k] their weights
  AlignedArray<float> in_;         // [block_rows, hidden]
  AlignedArray<float> gate_up_;    // [block_rows, 2 * intermediate]
  AlignedArray<float> act_;        // [block_rows, intermediate]
  AlignedArray<float> out_;        // [block_rows, hidden]
};

/// One gated MLP.
struct Expert {
  Linear gate_up;  ///< outputs: gate, then up (interleaved rows are reordered when loaded)
  Linear down;
  int64_t bytes() const { return gate_up.bytes() + down.bytes(); }
};

/// The MLP of a layer with LayerConfig::moe.
struct MoeBlock {
  MoeConfig config;
  Activation activation = Activation::silu;  ///< used if config.swiglu_limit is 0
  Linear router;                             ///< [experts, hidden]
  std::vector<Expert> experts;
  Expert shared;  ///< applied to every row with weight 1; empty (n() == 0) if none

  /// out = moe(x), both [rows, hidden], contiguous, not overlapping; at most the scratch's max_rows.
  /// Allocates nothing, except inside linear().
  void forward(const float* x, int64_t rows, float* out, MoeScratch& scratch, ThreadPool& pool) const;

  int64_t bytes() const;
  /// Weight bytes that one row reads: router, shared expert, and experts_per_token of the experts.
  int64_t bytes_per_token() const;

 private:
  void assign(const float* x, int64_t rows, MoeScratch& scratch, ThreadPool& pool) const;
  void run(const Expert& expert, const float* in, int64_t rows, float* out, MoeScratch& scratch,
           ThreadPool& pool) const;
};

/// Reads a layer's router and experts. `layer_prefix` is "model.layers.N.": the block's name under it depends
/// on config.moe.layout and on the checkpoint's tensors.
MoeBlock read_moe(const std::string& layer_prefix, const ModelConfig& config, WeightReader& reader);

}  // namespace fovea
