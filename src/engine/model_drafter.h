#pragma once
// Drafts of a smaller model on the CPU: greedy, with a KV cache of its own.
#include <memory>
#include <unordered_map>
#include <vector>

#include "engine/batch_builder.h"
#include "engine/model_runner.h"
#include "engine/sequence.h"
#include "fovea/speculative.h"
#include "kv/page_pool.h"
#include "speculative/drafter.h"
#include "text/tokenizer.h"

namespace fovea {

class ModelDrafter final : public Drafter {
 public:
  /// What it must match.
  struct Target {
    const Tokenizer* tokenizer = nullptr;  ///< null: the number of ids alone is compared
    int sampled_vocab = 0;
    int max_seq_len = 0, max_running = 0, max_batched_tokens = 0;
    double memory_share = 0.1;  ///< of the free memory, for its KV cache
    uint64_t seed = 0;          ///< of dummy weights
    bool dummy_weights = false;
  };
  /// Refuses a model with other tokens, and one that is no decoder. `stream`, of the CPU, and `registry` must
  /// outlive it.
  static Result<std::unique_ptr<ModelDrafter>> create(const SpeculativeConfig& config, const Target& target,
                                                      const BackendRegistry& registry, Stream& stream);

  void propose(std::span<DraftJob> jobs) override;
  void end(uint64_t id, std::span<const int32_t>, int, std::string_view) override;

  const Selection& selection() const { return selection_; }
  int64_t weight_bytes() const { return model_->weight_bytes(); }
  int64_t kv_bytes() const { return kv_bytes_; }
  /// Pages that no sequence has.
  int64_t free_pages() const { return pool_->free_pages(); }

 private:
  /// A sequence of a step, its tokens so far and the drafts still wanted.
  struct Wanted {
    DraftJob* job = nullptr;
    Sequence* sequence = nullptr;
    int most = 0;
  };

  explicit ModelDrafter(Stream& stream) : stream_(stream) {}
  Status load(const SpeculativeConfig& config, const Target& target, const BackendRegistry& registry);
  Status check_tokens(const std::string& dir, const Target& target) const;
  bool begin(DraftJob& job, Wanted& wanted);
  Status catch_up(std::vector<Wanted>& all);
  Status extend(std::vector<Wanted>& all);
  Status run(const std::vector<ScheduledChunk>& chunks);
  void take_draft(Wanted& wanted, int logits_row);

  Stream& stream_;
  Selection selection_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<ModelRunner> runner_;
  std::unique_ptr<KvCache> kv_;
  std::unique_ptr<PagePool> pool_;
  BatchBuilder batch_;
  std::unordered_map<uint64_t, Sequence> sequences_;
  int64_t kv_bytes_ = 0;
  int max_len_ = 0, max_tokens_ = 0, vocab_ = 0;
  bool failed_ = false;
};

}  // namespace fovea
