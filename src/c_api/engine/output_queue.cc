#include "c_api/engine/output_queue.h"

#include <algorithm>
#include <chrono>
#include <deque>

namespace fovea::c_api {
namespace {

/// Longer is without limit: the clock's arithmetic must not overflow.
constexpr int64_t kLongestWait = int64_t{365} * 24 * 3600 * 1000;  // ms

const Error& destroyed() {
  static const auto& error = *new Error{ErrorCode::cancelled, "the engine was destroyed"};
  return error;
}

template <class Ready>
bool wait_for(std::condition_variable& condition, std::unique_lock<std::mutex>& lock, int64_t timeout_ms,
              const Ready& ready) {
  if (timeout_ms >= 0 && timeout_ms < kLongestWait)
    return condition.wait_for(lock, std::chrono::milliseconds(timeout_ms), ready);
  condition.wait(lock, ready);
  return true;
}

int32_t finish_code(FinishReason reason) {
  switch (reason) {
    case FinishReason::none: return FOVEA_FINISH_NONE;
    case FinishReason::stop: return FOVEA_FINISH_STOP;
    case FinishReason::length: return FOVEA_FINISH_LENGTH;
    case FinishReason::cancelled: return FOVEA_FINISH_CANCELLED;
    case FinishReason::error: return FOVEA_FINISH_ERROR;
  }
  return FOVEA_FINISH_ERROR;
}

int32_t status_code(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument: return FOVEA_INVALID_ARGUMENT;
    case ErrorCode::not_found: return FOVEA_NOT_FOUND;
    case ErrorCode::unsupported: return FOVEA_UNSUPPORTED;
    case ErrorCode::out_of_memory: return FOVEA_OUT_OF_MEMORY;
    case ErrorCode::io: return FOVEA_IO;
    case ErrorCode::cancelled: return FOVEA_CANCELLED;
    case ErrorCode::internal: return FOVEA_INTERNAL;
  }
  return FOVEA_INTERNAL;
}

fovea_token_logprob to_c(const TokenLogprob& one) {
  return {one.token_id, one.rank, one.logprob};
}

/// A fovea_outputs and all that it refers to.
struct Batch : fovea_outputs {
  Batch() : fovea_outputs{} {}

  std::vector<TaggedOutput> outputs;
  std::vector<fovea_output> items;
  std::vector<const fovea_output*> pointers;
  std::deque<std::vector<fovea_token_logprobs>> logprobs;
  std::deque<std::vector<fovea_token_logprob>> tops;

  const fovea_token_logprobs* keep(const std::vector<TokenLogprobs>& given);
  fovea_output view_of(const TaggedOutput& tagged);
};

const fovea_token_logprobs* Batch::keep(const std::vector<TokenLogprobs>& given) {
  if (given.empty()) return nullptr;
  auto& all = logprobs.emplace_back();
  all.reserve(given.size());
  for (const TokenLogprobs& token : given) {
    fovea_token_logprobs one = {to_c(token.token), static_cast<int32_t>(token.top.size()), nullptr};
    if (!token.top.empty()) {
      auto& top = tops.emplace_back();
      top.reserve(token.top.size());
      for (const TokenLogprob& other : token.top)
        top.push_back(to_c(other));
      one.top = top.data();
    }
    all.push_back(one);
  }
  return all.data();
}

fovea_output Batch::view_of(const TaggedOutput& tagged) {
  const RequestOutput& from = tagged.output;
  fovea_output to = {};
  to.size = sizeof(fovea_output);
  to.index = from.index;
  to.id = from.id;
  to.tag = tagged.tag;
  to.text = from.text.c_str();
  to.text_bytes = from.text.size();
  to.token_ids = from.token_ids.data();
  to.num_token_ids = from.token_ids.size();
  to.logprobs = keep(from.logprobs);
  to.num_logprobs = from.logprobs.size();
  to.finish = finish_code(from.finish);
  to.stop_token = from.stop_token.value_or(-1);
  to.stop_string = from.stop_reason.c_str();
  const bool failed = from.finish == FinishReason::error;
  to.error = failed ? from.error.message.c_str() : "";
  to.error_status = failed ? status_code(from.error.code) : FOVEA_OK;
  to.prompt_tokens = from.prompt_tokens;
  to.cached_tokens = from.cached_tokens;
  to.completion_tokens = from.completion_tokens;
  to.prompt_logprobs = keep(from.prompt_logprobs);
  to.num_prompt_logprobs = from.prompt_logprobs.size();
  to.queue_seconds = from.queue_seconds;
  to.prefill_seconds = from.prefill_seconds;
  to.decode_seconds = from.decode_seconds;
  return to;
}

}  // namespace

fovea_outputs* make_batch(std::vector<TaggedOutput> outputs) {
  if (outputs.empty()) return nullptr;
  auto batch = std::make_unique<Batch>();
  batch->outputs = std::move(outputs);
  batch->items.reserve(batch->outputs.size());
  batch->pointers.reserve(batch->outputs.size());
  for (const TaggedOutput& tagged : batch->outputs)
    batch->pointers.push_back(&batch->items.emplace_back(batch->view_of(tagged)));
  static_cast<fovea_outputs&>(*batch) = {sizeof(fovea_outputs), 0, batch->pointers.size(),
                                         batch->pointers.data()};
  return batch.release();
}

void OutputQueue::push(const RequestOutput& output, uint64_t tag) noexcept {
  bool last = false;
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    newest_id_ = std::max(newest_id_, output.id);
    try {
      queue_.push_back({output, tag});
    } catch (...) {
      lost_ = true;
    }
    last = output.finish != FinishReason::none && --live_ == 0;
  }
  filled_.notify_one();
  if (last) idle_.notify_all();
}

void OutputQueue::expect(int answers) {
  const std::lock_guard lock(mutex_);
  live_ += answers;
}

void OutputQueue::unexpect(int answers) {
  bool last = false;
  {
    const std::lock_guard lock(mutex_);
    live_ -= answers;
    last = live_ == 0;
  }
  if (last) idle_.notify_all();
}

void OutputQueue::note_id(uint64_t id) {
  const std::lock_guard lock(mutex_);
  newest_id_ = std::max(newest_id_, id);
}

bool OutputQueue::has_id(uint64_t id) {
  const std::lock_guard lock(mutex_);
  return id != 0 && id <= newest_id_;
}

Result<std::vector<TaggedOutput>> OutputQueue::take(int64_t timeout_ms) {
  std::unique_lock lock(mutex_);
  wait_for(filled_, lock, timeout_ms, [&] { return closed_ || lost_ || !queue_.empty(); });
  if (closed_) return destroyed();
  if (lost_) {
    lost_ = false;
    return Error{ErrorCode::out_of_memory, "an output was lost for want of memory; cancel the requests"};
  }
  std::vector<TaggedOutput> outputs;
  outputs.swap(queue_);
  return outputs;
}

Result<bool> OutputQueue::wait_idle(int64_t timeout_ms) {
  std::unique_lock lock(mutex_);
  const bool idle = wait_for(idle_, lock, timeout_ms, [&] { return closed_ || live_ == 0; });
  if (closed_) return destroyed();
  return idle;
}

void OutputQueue::close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    queue_.clear();
  }
  filled_.notify_all();
  idle_.notify_all();
}

}  // namespace fovea::c_api

void fovea_outputs_free(fovea_outputs* outputs) {
  delete static_cast<fovea::c_api::Batch*>(outputs);
}
