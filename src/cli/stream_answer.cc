#include "cli/stream_answer.h"

#include <condition_variable>
#include <cstdio>
#include <mutex>

namespace fovea::cli {

Result<StreamedAnswer> stream_answer(Engine& engine, GenerateRequest request, InterruptFlag& interrupt) {
  StreamedAnswer answer;
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  interrupt.take();  // one that came before is not meant for this answer
  const auto start = Clock::now();
  FOVEA_TRY(id, engine.submit(std::move(request), [&](const RequestOutput& output) {
    std::fwrite(output.text.data(), 1, output.text.size(), stdout);
    std::fflush(stdout);
    answer.text += output.text;
    if (answer.first_token_seconds == 0 && output.completion_tokens > 0)
      answer.first_token_seconds = seconds_since(start);
    if (output.finish == FinishReason::none) return;
    answer.last = output;
    const std::lock_guard lock(mutex);
    done = true;
    changed.notify_all();
  }));
  {
    // Looked at here and not in the sink: a long prompt gives no output for a while.
    std::unique_lock lock(mutex);
    while (!changed.wait_for(lock, std::chrono::milliseconds(20), [&] { return done; }))
      if (interrupt.take()) engine.cancel(id);
  }
  engine.wait_idle();  // the sink has returned
  answer.seconds = seconds_since(start);
  std::fputc('\n', stdout);
  std::fflush(stdout);
  if (answer.last.finish == FinishReason::error) return answer.last.error;
  return answer;
}

}  // namespace fovea::cli
