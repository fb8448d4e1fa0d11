#pragma once
// The forward pass of Llama-like decoders as a list of operations, the same on every device.
#include "model/model.h"
#include "model/placed_weights.h"
#include "ops/op_queue.h"
#include "tensor/arena.h"

namespace fovea {

/// Maximum rows of one step; the arena's shapes depend on these alone.
struct DecoderLimits {
  int max_tokens = 0, max_logit_rows = 0;
  std::vector<int> hidden = {};  ///< ids of Model::keep_hidden(), one for each of StepTensors::hidden
  LoraLimits lora = {};          ///< max_rank 0 = no adapters
};

/// Queues one step. `logits` [step.logit_rows.size(0), vocab_size]. With a dry arena and queue, and a step of
/// as many rows as the limits allow, it only measures the arena's size. Errors are in the queue's status.
void decoder_forward(const ModelConfig& config, const PlacedDecoder& weights, const DecoderLimits& limits,
                     const StepTensors& step, const Tensor& logits, Arena& arena, OpQueue& queue);

/// out = moe(x), both [rows, hidden], contiguous; rows at most `max_rows`.
void moe_forward(const PlacedMoe& moe, const Tensor& x, const Tensor& out, int64_t max_rows, Arena& arena,
                 OpQueue& queue, const ExpertLora* lora = nullptr);

}  // namespace fovea
