#pragma once
// The model of a drafter with what runs it: on the CPU, or on the device of the model whose tokens it drafts.
#include <memory>
#include <vector>

#include "engine/device_queue.h"
#include "engine/draft_runs.h"
#include "engine/model_runner.h"
#include "fovea/speculative.h"
#include "kv/kv_cache.h"
#include "model/model.h"
#include "speculative/drafter.h"

namespace fovea {

/// Where a drafter's model runs; all must outlive it.
struct DrafterDevice {
  DeviceInfo info;         ///< the CPU by default
  Stream* host = nullptr;  ///< of the CPU: reads weights
  const BackendRegistry* registry = nullptr;
  Ops* ops = nullptr;  ///< null on the CPU, as the next
  DeviceQueue* queue = nullptr;
  std::vector<int> buckets;  ///< rows of graphs

  bool on_cpu() const { return ops == nullptr; }
  Device& memory() const { return on_cpu() ? cpu_device() : queue->device(); }
};

/// A drafter with a model. Call place() before it is used.
class DrafterWithModel : public Drafter {
 public:
  /// Bytes on a device that is not the CPU, beside those of keys and values. Nothing is allocated.
  virtual Result<int64_t> device_bytes() = 0;
  /// Bytes of keys and values beside a page of the model's cache, and for them in addition.
  virtual int64_t kv_bytes_per_page() const = 0;
  virtual int64_t spare_kv_bytes() const = 0;
  /// Allocates everything for `pages` of the model's cache. `step`: heads not on the CPU: the states of the
  /// model's step (ModelRunner::hidden_there()).
  virtual Status place(int64_t pages, const Tensor& step, const PlaceOptions& options) = 0;
};

class DrafterModel {
 public:
  struct Limits {
    int max_running = 0, max_tokens = 0, max_len = 0;
    int page_size = 0;  ///< 0 = chosen
  };

  explicit DrafterModel(DrafterDevice device) : device_(std::move(device)) {}

  /// The type of its weights. Errors: on a device it is that of the model, and another was asked for.
  Result<DType> choose_dtype(const SpeculativeConfig& config, DType own) const;
  /// Selects backends for `config`; `states`: the model is a head.
  Status select(const ModelConfig& model, const SpeculativeConfig& config, DType dtype, const Limits& limits,
                bool states);
  /// Whether the weights are to be described only, until place().
  bool deferred() const {
    return !device_.on_cpu() && device_.ops->packed_format(WeightUse::plain).has_value();
  }

  struct RunOptions {
    int sampled_vocab = 0;
    std::vector<int32_t> tokens;  ///< as HostDraftRuns::Options
    int kept_rows = 0, width = 0, own_width = 0;
    Tensor step;
  };
  Result<int64_t> device_bytes(const RunOptions& options);
  /// Places the weights and makes everything. `pages` of its cache.
  Status place(int64_t pages, const RunOptions& options, const PlaceOptions& placing);

  const DrafterDevice& device() const { return device_; }
  const Selection& selection() const { return selection_; }
  int page_size() const { return selection_.page_size; }
  int64_t bytes_per_page() const;
  /// Rows of one run, at most.
  int max_tokens() const { return options_.limits.max_tokens; }
  /// Rows of a sequence that a decode may have.
  int decode_rows() const { return decode_rows_; }
  DraftRuns& runs() { return *runs_; }
  /// ModelRunner::logits() of the last run.
  Tensor logits() const { return runner_->logits(); }

  std::unique_ptr<Model> model;  ///< set it after select()

 private:
  DrafterDevice device_;
  Selection selection_;
  ModelRunner::Options options_;
  int decode_rows_ = 1;
  std::unique_ptr<ModelRunner> runner_;
  std::unique_ptr<KvCache> kv_;
  std::unique_ptr<DraftRuns> runs_;
};

}  // namespace fovea
