#pragma once
// Runs one step: plans the attention once for each distinct spec, then runs the encoder for newly admitted
// sequences and the model's forward pass. Both call the attention once per layer.
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "attention/phased.h"
#include "base/aligned.h"
#include "engine/batch_builder.h"
#include "fovea/engine_stats.h"
#include "kv/kv_cache.h"
#include "model/model.h"

namespace fovea {

class ModelRunner final : public StepAttention {
 public:
  struct Options {
    AttentionLimits limits;
    AttentionConfig attention;       ///< the configuration given to backend selection
    DType activations = DType::f32;  ///< activation_dtype() of the device
    KvCacheDType kv_dtype = KvCacheDType::auto_;
    KvLayout kv_layout = KvLayout::hnd;
    int max_logit_rows = 1;
    int max_encoder_len = 0;   ///< rows of the longest encoder input; 0 = no encoder
    int max_encoder_rows = 0;  ///< of one step
  };

  /// Allocates all buffers; run() allocates only what plans need. The model, and the KV cache set before the
  /// first run(), must outlive the runner.
  static Result<std::unique_ptr<ModelRunner>> create(Model& model, const Selection& selection,
                                                     const BackendRegistry& registry, const Options& options);

  /// Bytes of attention workspace, activations and logits.
  int64_t scratch_bytes() const;
  void set_kv_cache(KvCache& kv) { kv_ = &kv; }

  /// `spec`, one of attention_specs(), completed with the engine's choices: encoder self-attention reads the
  /// step's rows, of type `activations`, all other attention reads the KV cache.
  static AttentionSpec resolve(AttentionSpec spec, DType activations, KvCacheDType kv_dtype, KvLayout layout,
                               int page_size);

  /// Errors come from planning, which leaves the KV cache unchanged, and from a backend's forward: then the
  /// step's slots are undefined.
  Status run(const BatchBuilder& batch, Stream& stream);
  int vocab_size() const { return model_.config().vocab_size; }
  /// [vocab] of the last run's logit row `row`; the caller may change it.
  std::span<float> logits(int row);

  Status forward(int index, const AttentionArgs& args, Stream& stream) override;

  /// Totals over all runs so far.
  double plan_seconds() const { return plan_seconds_; }
  double attention_seconds() const;
  std::vector<AttentionUse> attention() const;

 private:
  /// All attention calls that share one spec.
  struct Group {
    AttentionSpec spec;
    AttentionLimits limits;
    PhasedAttention attention;
    AlignedArray<std::byte> workspace;
    std::array<const BackendInfo*, 2> backends{};  // by phase
  };

  ModelRunner(Model& model, const Options& options) : model_(model), options_(options) {}

  static AttentionLimits limits_of(AttentionType type, const Options& options);
  Status plan(const BatchBuilder& batch, Stream& stream);

  Model& model_;
  Options options_;
  KvCache* kv_ = nullptr;
  std::vector<Group> groups_;
  std::vector<size_t> group_of_;  // of each of attention_specs()
  AlignedArray<float> logits_;    // [max_logit_rows, vocab]
  int64_t activation_bytes_ = 0;
  double plan_seconds_ = 0;
};

}  // namespace fovea
