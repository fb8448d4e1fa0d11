#pragma once
// The engine without its thread: requests, scheduler, runner and sampler, one step at a time. Not
// thread-safe: a single thread calls everything here.
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "engine/batch_builder.h"
#include "engine/duration_histogram.h"
#include "engine/model_runner.h"
#include "engine/request.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"

namespace fovea {

class EngineCore {
 public:
  /// Runner and stream must outlive the core.
  EngineCore(const SchedulerConfig& config, ModelRunner& runner, Stream& stream);

  /// Add the answers of one request in order of their index. With a prefix cache, all but the first wait
  /// until the first has computed the prompt, then share its pages.
  void add(std::unique_ptr<Request> request);
  /// Ends all answers of a request with FinishReason::cancelled; unknown and finished ids are ignored.
  void cancel(uint64_t id);
  void cancel_all();

  /// Computes one step, then emits its outputs. Sinks may call stats(), so `before_emit` runs between the
  /// two. No-op when idle().
  void step(const std::function<void()>& before_emit);

  bool idle() const { return scheduler_.idle(); }
  size_t live() const { return requests_.size(); }
  EngineStats stats() const;
  EngineSnapshot snapshot() const;
  const Scheduler& scheduler() const { return scheduler_; }

 private:
  /// The result of one logit row; a pure function of the row.
  struct RowResult {
    Status status;
    std::optional<int32_t> sampled;
    std::optional<TokenLogprobs> logprobs;  // of the sampled, or of the next prompt token
  };
  /// One logit row of the step.
  struct Row {
    Request* request = nullptr;
    int position = 0;      // of the row's token
    bool samples = false;  // the next token is sampled from it
    RowResult result;
  };

  using Time = std::chrono::steady_clock::time_point;
  /// Start time of a step and the runner's time counters at that point.
  struct StepStart {
    Time time;
    double attention_seconds = 0, plan_seconds = 0;
  };

  StepStart begin_step();
  void count_step(std::span<const ScheduledChunk> chunks, const StepStart& start, Time end);
  void add_to_snapshot(const Sequence& sequence, EngineSnapshot& out) const;
  void collect_rows(std::span<const ScheduledChunk> chunks);
  void evaluate_rows();
  void evaluate(int index, Sampler& sampler);
  void deliver(Row& row, std::span<const float> logits, Time now);
  std::unique_ptr<Request> take(Request& request);
  /// Queues the other answers of a request once its first has computed the shared prompt or has ended.
  void release_siblings(const Request& first);
  void cancel_one(Request& request);
  Request& request_of(const Sequence& sequence) const;

  ModelRunner& runner_;
  Stream& stream_;
  Scheduler scheduler_;
  BatchBuilder batch_;
  std::vector<Sampler> samplers_;  // one per thread
  std::vector<Row> rows_;
  std::vector<Request*> touched_;  // requests of this step, in batch order
  std::unordered_map<uint64_t, std::unique_ptr<Request>> requests_;
  std::unordered_map<uint64_t, std::vector<Request*>> held_;  // by group: answers not queued yet
  EngineStats stats_;
  DurationHistogram token_gaps_;
  Time last_step_end_;
  int64_t step_tokens_ = 0;  // tokens of this step, as EngineStats::step_tokens counts them
  std::deque<EngineSnapshot::Step> last_steps_;
};

}  // namespace fovea
