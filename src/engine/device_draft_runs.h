#pragma once
// A drafter's runs on a device that is not the CPU: arrays, forward pass and the greedy choice are queued,
// and drafts stay there until drafts() waits for all of them. Decode runs whose rows all have logits run as
// graphs.
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "engine/device_queue.h"
#include "engine/draft_runs.h"
#include "engine/host_buffer.h"
#include "engine/model_runner.h"
#include "ops/op_queue.h"

namespace fovea {

class DeviceDraftRuns final : public DraftRuns {
 public:
  struct Options {
    int max_seqs = 0;
    int slots = 0;
    int sampled_vocab = 0;        ///< of the model; ids of a head with `tokens` may lie beyond
    std::vector<int32_t> tokens;  ///< the model's token of each logit; empty = the same
    int kept_rows = 0, width = 0, own_width = 0;  ///< heads: of a row's state of the model, and of the head
    int max_rows = 0;                             ///< of a run
    std::vector<int> buckets;                     ///< rows of the graphs, ascending; empty = none
    Tensor step;  ///< heads: the states of the model's step, f32 [rows, width], at the same address always
  };
  /// For ModelRunner::Options of the drafter's model.
  static constexpr int kOpenRuns = 6;
  static constexpr size_t kRowBytes = 2 * sizeof(int32_t), kLogitRowBytes = sizeof(cuda::SampleRow);

  /// Bytes on the device that the constructor allocates, for logits of `vocab` ids and up to `logit_rows`
  /// rows.
  static int64_t bytes(const Options& options, int vocab, int logit_rows, DeviceQueue& queue);

  /// All must outlive it. Throws std::bad_alloc.
  DeviceDraftRuns(ModelRunner& runner, Ops& ops, DeviceQueue& queue, int logit_rows, Options options);
  ~DeviceDraftRuns() override;
  /// Fills what the runs read. Call it before them.
  Status start();

  bool wants_all_logits(int rows) const override;
  void begin(std::span<const std::span<const float>> states) override;
  Status keep(std::span<const int32_t> rows, int first) override;
  Status run(const Run& run) override;
  Result<std::span<const int32_t>> drafts(int count) override;

  /// Calls of keep() whose ids may still be read: one for each step of the model that may be open, and those
  /// of the step before, whose end says nothing about what was queued after it.
  static constexpr int kKeeps = 4;

  /// For tests.
  int64_t replays() const { return replays_; }

 private:
  using Key = std::pair<States, int>;  // and rows

  int bucket_of(const Run& run) const;
  Status upload(const Run& run, int bucket);
  Status compute(States source);
  Status compute_in_graph(States source, int bucket);
  Status wait();

  ModelRunner& runner_;
  Ops& ops_;
  DeviceQueue& queue_;
  Options options_;
  Buffer drafts_, raw_, map_;  // i32 [slots]; [slots] numbers of logits, and [logits], both only with a map
  Buffer kept_, states_;       // f32 [rows, width]
  Buffer keep_ids_, scratch_;  // i32 [kept_rows]; of the sampler
  HostBuffer host_drafts_;
  HostBuffer host_keep_ids_;                // [kKeeps, kept_rows]
  std::vector<int32_t> from_, state_rows_;  // of a run
  std::vector<cuda::SampleRow> sample_rows_;
  Tensor from_there_, state_rows_there_, sample_rows_there_;
  std::map<Key, std::unique_ptr<DeviceGraph>> graphs_;
  bool capture_failed_ = false, failed_ = false;
  int queued_ = 0;      // runs whose arrays may still be read
  uint64_t keeps_ = 0;  // so far
  int64_t replays_ = 0;
};

}  // namespace fovea
