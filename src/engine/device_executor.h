#pragma once
// Steps on a device that is not the CPU: submit() queues the copy of the step's arrays, the forward pass, the
// sampler and the copy of its results, and reads nothing that the device computes; wait() waits for the
// results. Decode steps run as graphs.
//
// A token under a constraint needs the mask of what may follow the token before it. Its row is computed with
// the others, and drawn by a launch of its own, which is queued once that token is known: at the latest
// before the next step. The host fills masks while the device computes the step.
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/device_queue.h"
#include "engine/edit_slots.h"
#include "engine/executor.h"
#include "engine/history_slots.h"
#include "engine/logit_rows.h"
#include "engine/lora_slots.h"
#include "engine/model_runner.h"
#include "ops/op_queue.h"
#include "profile/records.h"

namespace fovea {

class DeviceExecutor final : public Executor {
 public:
  struct Options {
    Overlap overlap{2, true};
    int max_seqs = 0, max_logit_rows = 0;
    int sampled_vocab = 0;     ///< only ids below are sampled
    std::vector<int> buckets;  ///< rows of the graphs, ascending; empty = none
    /// Steps may verify drafts. The sampler edits one row of a request in a launch, so the host samples for
    /// requests with edits.
    bool drafts = false;
    /// N-gram drafts that the device makes; `most` = 0: none.
    struct Ngram {
      int min = 0, max = 0;            ///< tokens that are looked up
      int most = 0;                    ///< drafts
      int page_size = 0;               ///< SchedulerConfig::page_size
      int64_t max_len = 0;             ///< tokens of the longest sequence
      std::vector<double> rates = {};  ///< SpeculativeConfig::synthetic_rates
    };
    Ngram ngram = {};
    /// Biases, bad words and end tokens of a request: with longer lists, its tokens are sampled on the host.
    int64_t edit_list_bytes = 16 << 10;
    /// The slots of adapters; outlive the executor. Null = none.
    LoraSlots* lora = nullptr;
    /// A step that takes longer than this, and longer than kSlowSteps of the slowest so far, has failed.
    std::chrono::duration<double> patience{10};
  };
  static constexpr double kSlowSteps = 10;
  /// Bytes of a row in the RowArrays of a step, for ModelRunner::Options.
  static constexpr size_t kRowBytes = sizeof(int32_t), kLogitRowBytes = sizeof(cuda::SampleRow);
  /// With n-gram drafts of the device, in addition.
  static constexpr size_t kNgramRowBytes = sizeof(cuda::PlacedRow),
                          kNgramLogitRowBytes = sizeof(cuda::FollowedRow);

  /// Bytes on the device that the constructor allocates.
  struct Bytes {
    int64_t results = 0, edits = 0, scratch = 0, masked = 0, history = 0;
    int64_t total() const { return results + edits + scratch + masked + history; }
  };
  static Bytes bytes(const Options& options, int vocab, DeviceQueue& queue);

  /// All must outlive the executor. Throws std::bad_alloc.
  DeviceExecutor(ModelRunner& runner, Ops& ops, DeviceQueue& queue, ThreadPool& pool, const Options& options);
  ~DeviceExecutor() override;

  /// Prepares memory and captures the first kFirstBuckets graphs. Call it after begin_thread(), before the
  /// first step.
  Status start();

  Overlap overlap() const override { return options_.overlap; }
  bool runs_apart() const override { return true; }
  bool keeps_hidden() const override { return runner_.hidden_states() > 0; }
  void begin_thread() override { queue_.begin_thread(); }
  bool samples_on_host(const SequenceSampling& sampling) const override;
  bool drafts_there(const Sequence& sequence) const override {
    return history_ && history_->find(sequence.id).has_value();
  }
  Ticket submit(const Step& step) override;
  StepResult wait(Ticket ticket) override;
  std::optional<Error> failure() const override { return failure_; }
  std::vector<AttentionUse> attention() const override { return runner_.attention(); }

  /// For tests.
  struct Counts {
    int64_t replays = 0, future_tokens = 0, overlapped = 0, host_sampled = 0;
    int64_t placed = 0;                ///< rows whose position the host did not know
    int64_t masked = 0, deferred = 0;  ///< rows under constraints; those whose token before was not known
  };
  const Counts& counts() const { return counts_; }
  size_t graphs() const { return graphs_.size(); }

 private:
  using Clock = std::chrono::steady_clock;
  /// Steps that have memory for results: more than may be open.
  static constexpr int kRing = 4;
  /// Marks of a step, in the order in which they are reached.
  enum Part : int { uploaded, computed, sampled, returned, kParts };
  static_assert(kRing * kParts <= DeviceQueue::kDraftMark);

  /// A row under a constraint.
  struct MaskedRow {
    size_t sequence = 0;
    cuda::SampleRow row;
  };
  struct OpenStep {
    uint64_t number = 0;
    Status status;
    std::vector<SequenceStep> sequences;
    std::vector<uint64_t> ids;   // of the sequences
    std::vector<bool> on_host;   // [sequences] their tokens are sampled on the host
    LogitRows rows;              // of `sequences`
    std::vector<bool> followed;  // [sequences] their history is on the device
    std::vector<MaskedRow> masked;
    std::vector<int> masked_of;  // [logit rows] place in `masked`; -1 = none
    bool drawn = false;          // `masked` has been queued
    bool copies_logits = false;  // of some rows
    int bucket = 0;              // rows of the graph; 0 = none
    bool lora = false;           // some rows have an adapter
    int decode_rows = 0, prefill_rows = 0;
    double plan_seconds = 0;
  };

  struct GraphKey {
    int rows = 0;
    bool lora = false;
    auto operator<=>(const GraphKey&) const = default;
  };

  size_t ring(uint64_t number) const { return static_cast<size_t>(number % kRing); }
  int mark(uint64_t number, Part part) const { return static_cast<int>(ring(number)) * kParts + part; }
  /// The place in tokens_ of the token that a step samples for a sequence.
  int32_t token_slot(uint64_t number, size_t sequence) const {
    return static_cast<int32_t>(ring(number)) * options_.max_seqs + static_cast<int32_t>(sequence);
  }
  int bucket_of(const Step& step) const;
  Status queue(const Step& step, OpenStep& open);
  profile::StepInfo describe_step(const Step& step, const OpenStep& open) const;
  Status collect_rows(const Step& step, OpenStep& open);
  Status open_history(OpenStep& open);
  void place_rows(const OpenStep& open, size_t i, size_t first_row, size_t sequence);
  cuda::PlaceArgs place_args() const;
  cuda::FollowArgs follow_args(int32_t logit_rows) const;
  void move_later_steps(const OpenStep& open, const StepResult& result);
  Status find_edits(OpenStep& open, size_t sequence, cuda::SampleRow& row);
  Status upload(const BatchBuilder& batch, int bucket);
  /// Forward pass and sampling of the uploaded step.
  Status compute(const OpenStep* marked);
  Status compute_in_graph(OpenStep& open);
  Status capture_first();
  Status capture(const GraphKey& key);
  void without_graphs(const Error& error);
  Status copy_logits(OpenStep& open);
  static bool is_known(const OpenStep& open, const MaskedRow& row);
  Status draw_masked(OpenStep& open);
  cuda::SampleArgs sample_args() const;
  void draw_all_masked();
  Status await(const OpenStep& open);
  std::string describe(const OpenStep& open, bool where) const;
  void evaluate(OpenStep& open, StepResult& result);
  void fail(Error error);
  /// The copy of a row's logits, its result, all in host memory.
  std::span<float> host_logits(uint64_t number, int row) const;
  cuda::SampleResult* host_results(uint64_t number) const;
  cuda::SampleResult* masked_results(uint64_t number) const;
  /// Bytes of the rows of a launch of masked rows, which its masks follow; and with these.
  static size_t masked_row_bytes(const Options& options);
  static size_t masked_bytes(const Options& options);

  ModelRunner& runner_;
  DeviceQueue& queue_;
  Ops& ops_;
  ThreadPool& pool_;
  Options options_;
  Buffer tokens_;                   // i32 [kRing, max_seqs]: what each step samples
  Buffer results_, scratch_;        // SampleResult [max_logit_rows]; of the sampler
  Buffer masked_, masked_results_;  // SampleRow [max_seqs] and masks; SampleResult [max_seqs]
  EditSlots edits_;
  std::optional<HistorySlots> history_;           // for n-gram drafts of the device
  HostBuffer host_results_;                       // SampleResult [kRing, max_logit_rows]
  HostBuffer host_masked_, host_masked_results_;  // [kRing] each, allocated at first use
  std::vector<HostBuffer> host_logits_;       // [kRing] f32 [max_logit_rows, vocab], allocated at first use
  std::vector<int32_t> from_;                 // [rows] place in tokens_ of a future token; -1 = known
  std::vector<cuda::SampleRow> sample_rows_;  // [logit rows]
  std::vector<cuda::PlacedRow> placed_rows_;  // [rows]
  std::vector<cuda::FollowedRow> followed_rows_;  // [logit rows]
  Tensor from_there_, sample_rows_there_, placed_rows_there_, followed_rows_there_;
  std::unordered_map<uint64_t, int32_t> newest_;  // by sequence: the place of its token in flight
  /// Steps without adapters have graphs of their own, which contain nothing of adapters.
  std::map<GraphKey, std::unique_ptr<DeviceGraph>> graphs_;
  bool capture_failed_ = false;
  std::vector<Sampler> samplers_;  // one per thread of the pool
  std::deque<std::unique_ptr<OpenStep>> open_;
  std::optional<Error> failure_;
  double slowest_ = 0;  // seconds
  uint64_t submitted_ = 0;
  Counts counts_;
};

}  // namespace fovea
