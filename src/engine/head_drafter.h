#pragma once
// Drafts of a layer on the model's hidden states (EAGLE, EAGLE-3, MTP) on the CPU: greedy chains. Its keys
// and values are a layer more in the pages of the model's own cache: what is found in the prefix cache is
// found for both. Rows of drafts beyond a sequence's pages lie in pages of their own for one step.
#include <memory>
#include <unordered_map>
#include <vector>

#include "engine/batch_builder.h"
#include "engine/model_runner.h"
#include "engine/sequence.h"
#include "model/draft_head.h"
#include "speculative/drafter.h"

namespace fovea {

class HeadDrafter final : public Drafter {
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
  /// `model`, which keeps head.hidden (Model::keep_hidden()), `stream`, of the CPU, and `registry` must
  /// outlive it. Call set_pages() before it is used.
  static Result<std::unique_ptr<HeadDrafter>> create(const SpeculativeConfig& config, DraftHeadConfig head,
                                                     const Target& target, const Model& model,
                                                     const BackendRegistry& registry, Stream& stream);

  /// What its layer takes beside a page of the model's cache.
  int64_t bytes_per_page() const;
  /// Allocates keys and values beside `pages` of the model's cache.
  Status set_pages(int64_t pages);

  void propose(std::span<DraftJob> jobs) override;
  void observe(std::span<const HiddenRows> rows, std::span<const std::span<const float>> states) override;
  void end(uint64_t id, std::span<const int32_t>, int, std::string_view) override { heads_.erase(id); }

  int64_t weight_bytes() const { return head_.model->weight_bytes(); }
  int64_t kv_bytes() const { return kv_bytes_; }

 private:
  /// A sequence: row i has the embedding of token i + 1.
  struct Head {
    Sequence sequence;           // its tokens are those of rows
    std::vector<float> pending;  // the model's states of rows [sequence.computed, ...)
  };
  /// Rows of a head that a run computes; the last one's logits are wanted if a job is given.
  struct Rows {
    Head* head = nullptr;
    int count = 0;
    DraftJob* job = nullptr;
    int most = 0;  // drafts
  };

  explicit HeadDrafter(Stream& stream) : stream_(stream) {}
  Status load(const SpeculativeConfig& config, DraftHeadConfig head, const Target& target, const Model& model,
              const BackendRegistry& registry);
  int pending(const Head& head) const { return static_cast<int>(head.pending.size()) / width_; }
  void take_tokens(Head& head, std::span<const int32_t> tokens) const;
  void fail(const Status& status);
  Status compute(std::span<Rows> all);
  Status run(std::span<Rows> part);
  Status extend(std::span<Rows> all);
  Status run_chunks(const std::vector<ScheduledChunk>& chunks, const float* states, int64_t width);
  void take_draft(const Rows& rows, int row);

  Stream& stream_;
  Selection selection_;
  DraftHead head_;
  std::unique_ptr<ModelRunner> runner_;
  std::unique_ptr<KvCache> kv_;
  BatchBuilder batch_;
  std::unordered_map<uint64_t, Head> heads_;
  std::vector<float> states_;  // of the rows of a run
  std::vector<KvGroup> groups_;
  int64_t kv_bytes_ = 0, pages_ = 0;
  int width_ = 0, hidden_ = 0;  // of a row's state of the model, and of the head
  int page_size_ = 0, max_len_ = 0, max_tokens_ = 0, max_running_ = 0, sampled_vocab_ = 0;
  bool failed_ = false;
};

}  // namespace fovea
