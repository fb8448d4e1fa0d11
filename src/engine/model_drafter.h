#pragma once
// Drafts of a smaller model: greedy, with a KV cache of its own.
#include <memory>
#include <unordered_map>
#include <vector>

#include "engine/batch_builder.h"
#include "engine/drafter_model.h"
#include "engine/sequence.h"
#include "kv/page_pool.h"
#include "text/tokenizer.h"

namespace fovea {

class ModelDrafter final : public DrafterWithModel {
 public:
  /// What it must match.
  struct Target {
    const Tokenizer* tokenizer = nullptr;  ///< null: the number of ids alone is compared
    int sampled_vocab = 0;
    int page_size = 1;  ///< of the model's cache
    int max_seq_len = 0, max_running = 0, max_batched_tokens = 0;
    double memory_share = 0.1;  ///< on the CPU: of the free memory, for its KV cache
    uint64_t seed = 0;          ///< of dummy weights
    bool dummy_weights = false;
  };
  /// Refuses a model with other tokens, and one that is no decoder.
  static Result<std::unique_ptr<ModelDrafter>> create(const SpeculativeConfig& config, const Target& target,
                                                      DrafterDevice device);

  Result<int64_t> device_bytes() override { return model_.device_bytes(run_options_); }
  int64_t kv_bytes_per_page() const override;
  int64_t spare_kv_bytes() const override { return model_.bytes_per_page(); }
  /// On the CPU `pages` is not used.
  Status place(int64_t pages, const Tensor& step, const PlaceOptions& options) override;

  void propose(std::span<DraftJob> jobs) override;
  int behind(const DraftJob& job) const override;
  void end(uint64_t id, std::span<const int32_t>, int, std::string_view) override;

  const Selection& selection() const { return model_.selection(); }
  int64_t weight_bytes() const { return model_.model->weight_bytes(); }
  int64_t kv_bytes() const { return kv_bytes_; }
  /// Pages that no sequence has.
  int64_t free_pages() const { return pool_->free_pages(); }

 private:
  /// A sequence of a step, its tokens so far and the drafts still wanted.
  struct Wanted {
    DraftJob* job = nullptr;
    Sequence* sequence = nullptr;
    int most = 0;
    int drafts = 0;  // so far
    int slot = 0;    // of the first one
  };
  /// Rows of a sequence in a run.
  struct Rows {
    Wanted* wanted = nullptr;
    int count = 0;
    bool last = false;  // they end with the newest token: a draft is wanted
  };

  explicit ModelDrafter(DrafterDevice device) : model_(std::move(device)) {}
  Status load(const SpeculativeConfig& config, const Target& target);
  Status check_tokens(const std::string& dir, const Target& target) const;
  bool begin(DraftJob& job, Wanted& wanted);
  Status draft(std::vector<Wanted>& all);
  Status catch_up(std::vector<Wanted>& all);
  Status run(std::span<const Rows> part, bool decode);
  Status take(std::span<Wanted> all);

  DrafterModel model_;
  DrafterModel::RunOptions run_options_;
  Target target_;
  std::unique_ptr<PagePool> pool_;
  BatchBuilder batch_;
  std::unordered_map<uint64_t, Sequence> sequences_;
  int64_t kv_bytes_ = 0;
  int max_len_ = 0;
  bool failed_ = false;
};

}  // namespace fovea
