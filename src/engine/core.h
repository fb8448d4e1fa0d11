#pragma once
// The engine without its thread: requests, scheduler and executor, one step at a time. Not thread-safe: a
// single thread calls everything here.
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
#include "engine/scheduler.h"
#include "engine/speculator.h"

namespace fovea {

class EngineCore {
 public:
  /// `config.overlap` is ignored; executor.overlap() applies. The executor must outlive the core.
  /// `speculator`: null = no drafts.
  EngineCore(SchedulerConfig config, Executor& executor, std::unique_ptr<Speculator> speculator = nullptr);

  /// Add the answers of one request in order of their index. With a prefix cache, all but the first wait
  /// until the first has computed the prompt, then share its pages.
  void add(std::unique_ptr<Request> request);
  /// Ends all answers of a request with FinishReason::cancelled; unknown and finished ids are ignored.
  void cancel(uint64_t id);
  /// Cancels all requests and waits for all open steps; idle() afterwards.
  void cancel_all();
  /// Executor::failure(): step() has ended all requests with it, and ends those that are added later.
  const std::optional<Error>& failure() const { return failure_; }

  /// Submits as many steps as may be open, waits for the oldest, then emits its outputs; a device gets its
  /// next step before. Sinks may call stats(), so `before_emit` runs between the two. No-op when idle().
  void step(const std::function<void()>& before_emit);

  bool idle() const { return scheduler_.idle(); }
  size_t live() const { return requests_.size(); }
  EngineStats stats() const;
  EngineSnapshot snapshot() const;
  const Scheduler& scheduler() const { return scheduler_; }

 private:
  using Time = std::chrono::steady_clock::time_point;
  /// A submitted step.
  struct OpenStep {
    Ticket ticket;
    Time start;
    std::span<const ScheduledChunk> chunks;
    std::vector<Request*> requests;  // of the chunks; those that have ended meanwhile are in ended_
    DraftTable::Choice drafts;       // Speculator::end_plan()
    bool observed = false;
  };

  bool waits_for_tokens() const;
  bool submit_next();
  void prepare(std::span<const ScheduledChunk> chunks, Time start);
  SequenceStep sequence_step(Request& request, const ScheduledChunk& chunk) const;
  void count_step(const OpenStep& step, const StepResult& result, Time end);
  void add_to_snapshot(const Sequence& sequence, EngineSnapshot& out) const;
  /// Returns the rows of the chunk whose tokens stay.
  int deliver(Request& request, const ScheduledChunk& chunk, SequenceResult& result, Time now);
  /// Returns the number of accepted drafts.
  int deliver_tokens(Request& request, const ScheduledChunk& chunk, SequenceResult& result);
  void observe(OpenStep& step);
  void observe(const OpenStep& step, std::span<const int> rows,
               std::span<const std::span<const float>> states);
  void settle(std::span<Request* const> answers);
  /// Frees ended requests that no open step refers to any more.
  void drop_ended();
  std::unique_ptr<Request> take(Request& request);
  /// Queues the other answers of a request once its first has computed the shared prompt or has ended.
  void release_siblings(const Request& first);
  std::vector<Request*> group(uint64_t id) const;
  void end_group(uint64_t id, FinishReason reason, const Error& error);
  void end_all(FinishReason reason, const Error& error = {});
  void end(Request& request, FinishReason reason, const Error& error);
  Request& request_of(const Sequence& sequence) const;

  Executor& executor_;
  Scheduler scheduler_;
  std::unique_ptr<Speculator> speculator_;
  BatchBuilder batch_;
  std::vector<SequenceStep> sequence_steps_;
  std::vector<HiddenRows> hidden_rows_;          // of a step
  std::deque<OpenStep> open_;                    // oldest first
  std::vector<std::unique_ptr<Request>> ended_;  // with rows in flight
  std::unordered_map<uint64_t, std::unique_ptr<Request>> requests_;
  std::unordered_map<uint64_t, std::vector<Request*>> held_;  // by group: answers not queued yet
  EngineStats stats_;
  DurationHistogram token_gaps_;
  Time last_step_end_;
  int64_t step_tokens_ = 0;  // tokens of this step, as EngineStats::step_tokens counts them
  std::deque<EngineSnapshot::Step> last_steps_;
  std::optional<Error> failure_;
};

}  // namespace fovea
