#pragma once
// Drafts of a layer on the model's hidden states (EAGLE, EAGLE-3, MTP): greedy chains. Its keys and values
// are a layer more in the pages of the model's own cache: what is found in the prefix cache is found for
// both. Rows of drafts beyond a sequence's pages lie in pages of their own for one step.
#include <memory>
#include <unordered_map>
#include <vector>

#include "engine/batch_builder.h"
#include "engine/drafter_model.h"
#include "engine/sequence.h"
#include "model/draft_head.h"

namespace fovea {

class HeadDrafter final : public DrafterWithModel {
 public:
  /// The model's engine.
  struct Target {
    int page_size = 0;
    int sampled_vocab = 0;
    int max_seq_len = 0, max_running = 0, max_batched_tokens = 0;
    int window = 0;     ///< SchedulerConfig::window
    uint64_t seed = 0;  ///< of dummy weights
    bool dummy_weights = false;
  };
  /// `model`, which keeps head.hidden (Model::keep_hidden()), must outlive it.
  static Result<std::unique_ptr<HeadDrafter>> create(const SpeculativeConfig& config, DraftHeadConfig head,
                                                     const Target& target, const Model& model,
                                                     DrafterDevice device);

  Result<int64_t> device_bytes() override { return model_.device_bytes(run_options_); }
  int64_t kv_bytes_per_page() const override { return model_.bytes_per_page(); }
  int64_t spare_kv_bytes() const override { return spare_pages() * model_.bytes_per_page(); }
  Status place(int64_t pages, const Tensor& step, const PlaceOptions& options) override;

  void propose(std::span<DraftJob> jobs) override;
  void observe(std::span<const HiddenRows> rows, std::span<const std::span<const float>> states) override;
  void settle(std::span<const HiddenRows> sequences) override;
  void end(uint64_t id, std::span<const int32_t>, int, std::string_view) override { heads_.erase(id); }

  int64_t weight_bytes() const { return model_.model->weight_bytes(); }
  /// For tests: f32 [rows, vocabulary of the head] of its last run, on its device.
  Tensor logits() const { return model_.logits(); }

 private:
  /// A sequence: row i has the embedding of token i + 1.
  struct Head {
    Sequence sequence;          // its tokens are those of rows
    std::vector<int32_t> kept;  // rows of DraftRuns::States::kept: of rows [sequence.computed, ...)
  };
  /// Rows of a head that a run computes; the last one's draft is wanted if there is a job.
  struct Rows {
    Head* head = nullptr;
    std::vector<int32_t> states;  // of each row
    DraftJob* job = nullptr;
    int most = 0;    // drafts
    int drafts = 0;  // so far
    int slot = 0;    // of the first one
    int row = 0;     // of the newest draft in the logits of its run
    int count() const { return static_cast<int>(states.size()); }
  };

  explicit HeadDrafter(DrafterDevice device) : model_(std::move(device)) {}
  Status load(const SpeculativeConfig& config, DraftHeadConfig head, const Target& target,
              const Model& model);
  int64_t spare_pages_each() const;
  int64_t spare_pages() const { return max_running_ * spare_pages_each(); }
  void take_tokens(Head& head, std::span<const int32_t> tokens) const;
  void fail(const Status& status);
  void clear_others(std::span<const HiddenRows> rows);
  Status compute(std::span<Rows> all, DraftRuns::States source);
  Status draft(std::span<Rows> group);
  Status run(std::span<Rows* const> part, DraftRuns::States source, bool decode);
  Status take(std::span<const Rows> all);

  DrafterModel model_;
  DrafterModel::RunOptions run_options_;
  BatchBuilder batch_;
  std::unordered_map<uint64_t, Head> heads_;
  int64_t pages_ = 0;
  int next_kept_ = 0;  // of run_options_.kept_rows
  int page_size_ = 0, max_len_ = 0, max_running_ = 0;
  bool failed_ = false;
};

}  // namespace fovea
