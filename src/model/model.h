#pragma once
// A loaded decoder: token ids in, logits of chosen rows out. Families implement it from shared layers.
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "device/stream.h"
#include "fovea/attention_backend.h"
#include "kv/kv_cache.h"
#include "model/config.h"
#include "model/kv_scales.h"

namespace fovea {

/// The attention of one planned step, called by the model once a layer. Hides which backends serve the step.
class StepAttention {
 public:
  virtual ~StepAttention() = default;
  /// q [T, Hq, D] and out [T, Hq, Dv] of the step's rows, fp32 unless the spec says otherwise.
  virtual void forward(int layer, const AttentionArgs& args, Stream& stream) = 0;
};

/// One step's rows, all sequences concatenated; T = token_ids.size().
struct ForwardInput {
  std::span<const int32_t> token_ids;   ///< [T]
  std::span<const int32_t> positions;   ///< [T] absolute, for RoPE
  std::span<const int64_t> slots;       ///< [T] where each row's K and V go
  std::span<const int32_t> logit_rows;  ///< rows in [0, T) whose logits are wanted, strictly ascending
  StepAttention* attention = nullptr;
  KvCache* kv = nullptr;
};

struct ModelLoadOptions {
  std::string dir;
  std::optional<DType> dtype;  ///< nullopt = the checkpoint's ("auto")
  bool dummy_weights = false;  ///< random weights from the config alone
  uint64_t seed = 0;           ///< of dummy weights
};

/// What the attention layers of `config` need, before any weight is read: every layer's attention_spec().
AttentionSpec attention_spec_of(const ModelConfig& config);

class Model {
 public:
  virtual ~Model() = default;

  /// Reads the weights from `options.dir`, or makes them at random. Names, types and shapes are checked
  /// against `config` before anything is allocated; every error names the file and tensor and what to change.
  static Result<std::unique_ptr<Model>> load(const ModelConfig& config, const ModelLoadOptions& options,
                                             Stream& stream);

  virtual const ModelConfig& config() const = 0;
  /// What each layer's attention needs; layers with equal specs share one plan.
  virtual const AttentionSpec& attention_spec(int layer) const = 0;
  virtual int64_t weight_bytes() const = 0;
  /// Bytes of weights read to make one token (what a decode step at batch 1 streams).
  virtual int64_t weight_bytes_per_token() const = 0;

  /// Activations are sized for this many rows once; forward() allocates nothing beyond it. Returns their
  /// bytes.
  virtual int64_t reserve(int max_tokens, int max_logit_rows) = 0;

  /// logits [logit_rows.size(), vocab_size] fp32; rows that pad the vocabulary are logits like the others.
  virtual void forward(const ForwardInput& input, float* logits, Stream& stream) = 0;

  /// Those that the checkpoint brought; none with dummy weights.
  const KvScales& kv_scales() const { return kv_scales_; }

 private:
  KvScales kv_scales_;
};

}  // namespace fovea
