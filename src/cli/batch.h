#pragma once
// Runs rows through an engine and gathers what they produced, in the order of the rows.
#include <condition_variable>
#include <mutex>

#include "cli/json_io.h"
#include "cli/terminal.h"

namespace fovea::cli {

struct RowResult {
  std::string name;  ///< for messages
  std::string text;
  std::vector<int32_t> token_ids;
  RequestOutput last;  ///< finish reason, counts, logprobs and logits
  bool done = false;
};

/// The prompt of a row as token ids: `as_chat` puts "prompt" and "text" through the chat template as a user
/// turn. `defaults` stand in for what a conversation has no tools, documents or arguments of its own for.
Result<std::vector<int32_t>> prompt_ids(const Engine& engine, const InputRow& row, bool as_chat,
                                        const ChatRequest& defaults, const std::string& system);

class BatchRunner {
 public:
  BatchRunner(Engine& engine, std::string what, size_t rows)
      : engine_(engine), progress_(std::move(what), static_cast<int64_t>(rows)), results_(rows) {}
  /// Whatever still runs is cancelled: nobody will ask for it.
  ~BatchRunner();

  /// `name` stands before an error of the row ("FILE line N").
  Status submit(size_t row, GenerateRequest request, const std::string& name);

  /// Waits for each row in turn and hands it to `write`; an error of a row or of `write` ends the run.
  Status drain(const std::function<Status(size_t, RowResult&)>& write);

 private:
  Engine& engine_;
  Progress progress_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<RowResult> results_;
  std::vector<uint64_t> ids_;
  int64_t done_ = 0;
};

}  // namespace fovea::cli
