#pragma once
// The engine without its thread: requests, scheduler, executor and sampler, one step at a time. Everything
// here belongs to one thread.
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
#include "engine/executor.h"
#include "engine/request.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"

namespace fovea {

class EngineCore {
 public:
  /// Executor and stream must outlive the core.
  EngineCore(const SchedulerConfig& config, Executor& executor, Stream& stream);

  /// Answers of one request come in order of their index. With a prefix cache the others wait until the first
  /// has computed the prompt, whose pages they then share.
  void add(std::unique_ptr<Request> request);
  /// Ends all answers of a request with FinishReason::cancelled; an id that is not (or no longer) here is
  /// ignored.
  void cancel(uint64_t id);
  void cancel_all();

  /// Computes one step and hands out what it produced; who gets an answer may look at stats() first, so
  /// `before_emit` is called in between. Nothing happens when idle().
  void step(const std::function<void()>& before_emit);

  bool idle() const { return scheduler_.idle(); }
  size_t live() const { return requests_.size(); }
  EngineStats stats() const;
  EngineSnapshot snapshot() const;
  const Scheduler& scheduler() const { return scheduler_; }

 private:
  /// What one logit row gave; a pure function of the row.
  struct RowResult {
    Status status;
    std::optional<int32_t> sampled;
    std::optional<TokenLogprobs> logprobs;  // of the sampled, or of the next prompt token
  };
  /// One logit row of the step.
  struct Row {
    Request* request = nullptr;
    int position = 0;      // of the row's token
    bool samples = false;  // gives the next token
    RowResult result;
  };

  using Time = std::chrono::steady_clock::time_point;
  /// What the executor had done before the step, and the step's tokens.
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
  /// Lets the other answers of a request into the queue, once its first has no more to give them.
  void release_siblings(const Request& first);
  void cancel_one(Request& request);
  Request& request_of(const Sequence& sequence) const;

  Executor& executor_;
  Stream& stream_;
  Scheduler scheduler_;
  BatchBuilder batch_;
  std::vector<Sampler> samplers_;  // one a thread
  std::vector<Row> rows_;
  std::vector<Request*> touched_;  // of this step, in batch order
  std::unordered_map<uint64_t, std::unique_ptr<Request>> requests_;
  std::unordered_map<uint64_t, std::vector<Request*>> held_;  // by group: answers not in the queue yet
  EngineStats stats_;
  DurationHistogram token_gaps_;
  Time last_step_end_;
  int64_t step_tokens_ = 0;  // that this step gave, as EngineStats::step_tokens counts them
  std::deque<EngineSnapshot::Step> last_steps_;
};

}  // namespace fovea
