#pragma once
// Runs one step: plans the attention once for each distinct spec, then runs the encoder for newly admitted
// sequences and the model's forward pass. Both call the attention once per layer. On a device that is not the
// CPU it queues the step and reads none of the device's memory.
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "attention/phased.h"
#include "engine/batch_builder.h"
#include "engine/encoder_arrays.h"
#include "engine/step_arrays.h"
#include "fovea/engine_stats.h"
#include "kv/kv_cache.h"
#include "model/model.h"
#include "ops/cpu_ops.h"
#include "profile/records.h"

namespace fovea {

class ModelRunner final : public StepAttention {
 public:
  struct Options {
    Ops* ops = &cpu_ops();  ///< of the device that holds the model's weights; must outlive the runner
    // The next ones are not used on the CPU.
    int open_steps = 1;                         ///< maximum steps queued at a time
    size_t row_bytes = 0, logit_row_bytes = 0;  ///< of the RowArrays of a step
    int graph_rows = 0;                         ///< StepArrays::More::rows at most
    AttentionLimits limits;
    AttentionConfig attention;       ///< the configuration given to backend selection
    DType activations = DType::f32;  ///< activation_dtype() of the device
    KvCacheDType kv_dtype = KvCacheDType::auto_;
    KvLayout kv_layout = KvLayout::hnd;
    int max_logit_rows = 1;
    int hidden_states = 0;  ///< ids of Model::keep_hidden(), which was called
    /// Rows of a step that have them at most, if not all: of heads, those with logits.
    int hidden_rows = 0;
    int max_encoder_len = 0;   ///< rows of the longest encoder input; 0 = no encoder
    int max_encoder_rows = 0;  ///< of one step
  };

  /// Allocates all buffers; run() allocates only what plans need. The model, and the KV cache set before the
  /// first run(), must outlive the runner.
  static Result<std::unique_ptr<ModelRunner>> create(Model& model, const Selection& selection,
                                                     const BackendRegistry& registry, const Options& options);

  /// Bytes on the device that create() has allocated.
  struct Bytes {
    int64_t workspace = 0, activations = 0, logits = 0, step_arrays = 0;
    int64_t total() const { return workspace + activations + logits + step_arrays; }
  };
  Bytes bytes() const;
  /// bytes() before anything is allocated, where the model is not on the CPU.
  static Result<Bytes> measure(Model& model, const Selection& selection, const BackendRegistry& registry,
                               const Options& options);
  int64_t scratch_bytes() const { return bytes().total(); }
  /// `kv` must have one group, because a step has one page table.
  void set_kv_cache(KvCache& kv);

  /// `spec`, one of attention_specs(), completed with the engine's choices: encoder self-attention reads the
  /// step's rows, of type `activations`, all other attention reads the KV cache.
  static AttentionSpec resolve(AttentionSpec spec, DType activations, KvCacheDType kv_dtype, KvLayout layout,
                               int page_size);

  /// Errors come from planning, which leaves the KV cache unchanged, and from a backend's forward: then the
  /// step's slots are undefined.
  Status run(const BatchBuilder& batch, Stream& stream);
  int vocab_size() const { return model_.config().vocab_size; }
  /// f32 [logit rows of the last run, vocab] on the device; the caller may change them.
  Tensor logits() const { return logits_.tensor(ElementType::f32, {logit_rows_, vocab_size()}); }
  /// Row `row` of logits(); only on the CPU.
  std::span<float> logits(int row) const;

  int hidden_states() const { return options_.hidden_states; }
  /// State `state` of the last run's rows, f32 [T, hidden size]; of a head's rows with logits. Only on the
  /// CPU.
  std::span<const float> hidden(int state) const;
  /// All states of a row side by side, f32 [hidden_rows, hidden_states * hidden size], at the same address in
  /// every step: those of the last run come first. Not on the CPU.
  Tensor hidden_there() const;
  /// Draft heads: the states that the rows of the next run continue, f32 [T or more, width], on the device.
  void set_states(const Tensor& rows) { states_ = rows; }

  /// The two halves of run() on a device that is not the CPU: operations queued between them may change the
  /// step's arrays, as Ops::take_tokens() does. upload() of a step with encoder inputs runs the encoder, and
  /// waits for it and for all steps queued before.
  Status upload(const BatchBuilder& batch, Stream& stream, const StepArrays::More& more = {});
  const StepTensors& tensors() const { return arrays_->tensors(); }
  const StepArrays& arrays() const { return *arrays_; }
  /// The adapters of the uploaded step, valid until the next one; null = none.
  void set_lora(const LoraStep* step) { lora_ = step; }
  /// The step as filled up by upload(), whose logits() has as many rows. What it queues can be captured in a
  /// graph that serves every later step which is filled up to the same number of rows.
  Status launch(Stream& stream);

  /// The work of one layer of the uploaded step, by the group that profiles name with an attention operation.
  std::vector<profile::OpWork> attention_work() const;

  /// Counts the uploaded decode step, which a graph runs, in attention().
  void count_replay();

  Status forward(int index, const AttentionArgs& args, Stream& stream) override;
  PhasedAttention* expanded(int index) override;

  /// Totals over all runs so far.
  double plan_seconds() const { return plan_seconds_; }
  double attention_seconds() const;
  std::vector<AttentionUse> attention() const;

 private:
  /// All attention calls that share one spec.
  struct Group {
    /// The work of one layer of the uploaded step.
    AttentionWork work(const StepArrays& arrays) const;

    AttentionSpec spec;
    AttentionLimits limits;
    PhasedAttention attention;
    size_t workspace_bytes = 0;
    Buffer workspace;
    std::array<const BackendInfo*, 2> backends{};  // by phase
    PhasedAttention::Use replayed{};               // decodes in graphs, in addition to attention.use()
  };

  ModelRunner(Model& model, const Options& options) : model_(model), options_(options) {}

  Status make_groups(const Selection& selection, const BackendRegistry& registry);
  StepArrays::Limits step_limits(int page_size) const;
  static AttentionLimits limits_of(AttentionType type, const Options& options);
  bool on_cpu() const { return &options_.ops->device() == &cpu_device(); }
  bool has(AttentionType type) const;
  int64_t max_pages(AttentionType type) const;
  int64_t most_hidden_rows() const {
    return options_.hidden_rows > 0 ? options_.hidden_rows : options_.limits.max_tokens;
  }
  int64_t hidden_bytes() const;
  EncodeInput encode_input(const BatchBuilder& batch);
  Status encode_there(const BatchBuilder& batch, Stream& stream);
  Status plan(Group& group, const BatchMeta& meta, const PhaseSplit& split, Stream& stream);
  Status plan(const BatchBuilder& batch, Stream& stream);
  template <class F>
  Status timed(const F& plan);

  Model& model_;
  Options options_;
  KvCache* kv_ = nullptr;
  std::vector<Group> groups_;
  std::vector<size_t> group_of_;  // for each of attention_specs()
  // None on the CPU; the second only with an encoder.
  std::optional<StepArrays> arrays_;
  std::optional<EncoderArrays> encoder_arrays_;
  Buffer logits_;  // f32 [max_logit_rows, vocab]
  int64_t logit_rows_ = 0;
  Buffer hidden_;  // f32 [hidden_states][rows, hidden size], for the most rows; elsewhere as hidden_there()
  int64_t hidden_rows_ = 0;
  Tensor states_;
  const LoraStep* lora_ = nullptr;
  int64_t activation_bytes_ = 0;
  double plan_seconds_ = 0;
};

}  // namespace fovea
