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
  interrupt.take();  // clears an earlier Ctrl-C
  const auto start = Clock::now();
  FOVEA_TRY(id, engine.submit(std::move(request), [&](const RequestOutput& output) {
    // Timed by tokens and before writing: text may be held back, and a terminal may be slow.
    if (const double now = seconds_since(start); output.completion_tokens > 0) {
      if (answer.first_tokens == 0) {
        answer.first_token_seconds = now;
        answer.first_tokens = output.completion_tokens;
      }
      answer.last_token_seconds = now;
    }
    std::fwrite(output.text.data(), 1, output.text.size(), stdout);
    std::fflush(stdout);
    answer.text += output.text;
    if (output.finish == FinishReason::none) return;
    answer.last = output;
    const std::lock_guard lock(mutex);
    done = true;
    changed.notify_all();
  }));
  {
    // Checked here and not in the sink, which is not called during a long prefill.
    std::unique_lock lock(mutex);
    while (!changed.wait_for(lock, std::chrono::milliseconds(20), [&] { return done; }))
      if (interrupt.take()) engine.cancel(id);
  }
  engine.wait_idle();  // the sink has returned
  std::fputc('\n', stdout);
  std::fflush(stdout);
  if (answer.last.finish == FinishReason::error) return answer.last.error;
  return answer;
}

}  // namespace fovea::cli
