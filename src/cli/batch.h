#pragma once
// Runs rows through an engine and hands out what they produced, in the order of the rows, while later ones
// are still read: what is in memory does not grow with the number of rows.
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "cli/json_io.h"
#include "cli/output_file.h"
#include "cli/terminal.h"

namespace fovea::cli {

/// One answer.
struct Choice {
  std::string text;
  std::vector<int32_t> token_ids;
  std::vector<TokenLogprobs> logprobs;
  RequestOutput last;  ///< finish reason, counts, the prompt's log probabilities and logits
};

struct RowResult {
  int64_t index = 0;
  std::string name;                 ///< for messages
  std::string id_json;              ///< InputRow's
  std::vector<int32_t> prompt_ids;  ///< when its log probabilities were asked for
  bool logprobs = false;            ///< asked for
  std::vector<Choice> choices;      ///< by index
  size_t unfinished = 0;            ///< of the choices
  uint64_t request = 0;
};

/// The prompt of a row as token ids: `as_chat` puts "prompt" and "text" through the chat template as a user
/// turn. `defaults` stand in for what a conversation has no tools, documents or arguments of its own for;
/// they and `system` are errors for a row that is no conversation.
Result<std::vector<int32_t>> prompt_ids(const Engine& engine, const InputRow& row, bool as_chat,
                                        const ChatRequest& defaults, const std::string& system);

class BatchRunner {
 public:
  using Write = std::function<Status(RowResult&)>;

  /// `rows`: how many come, for the progress bar; 0 = unknown. At most `window` answers are waited for or
  /// held back for their turn (more if a single row has more). `write` is called on a thread of its own, as
  /// soon as a row's turn has come: who sends the rows may wait for an answer before sending the next.
  BatchRunner(Engine& engine, std::string what, int64_t rows, size_t window, Write write);
  /// Whatever still runs is cancelled: nobody will ask for it.
  ~BatchRunner();

  /// Submits a row; waits where the window is full. `name` stands before an error of the row ("FILE line
  /// N"). An error of a row or of `write` ends the run: it comes back from here or from drain().
  Status submit(GenerateRequest request, std::string name = {}, std::string id_json = {});
  /// What ended the run, if anything did.
  Status status();
  /// Waits for all that is left. Nothing may be submitted after.
  Status drain();

 private:
  void write_rows();
  /// The next row in line, once it is done; null when no more is to be written.
  std::unique_ptr<RowResult> next_done();
  Status write_row(RowResult& row) const;
  void join(bool abandon);

  Engine& engine_;
  Progress progress_;  // the writer's
  const size_t window_;
  const Write write_;
  int64_t submitted_ = 0;

  std::mutex mutex_;  // of all below, and of results until they are done
  std::condition_variable changed_;
  std::deque<std::unique_ptr<RowResult>> rows_;  // submitted, and their turn has not come
  size_t held_ = 0;                              // answers that are not written
  int64_t written_ = 0;                          // rows
  bool closed_ = false, abandoned_ = false;
  std::optional<Error> failure_;  // of a row or of `write`
  std::thread writer_;
};

/// Runs every row of `source` and writes a line for each. Where the source can be read twice, a first pass
/// looks for bad rows before anything runs.
struct Batch {
  std::string what;
  std::function<Result<GenerateRequest>(const InputRow&)> request;
  std::function<std::string(const RowResult&)> line;
  int max_running = 64;
};
Status run_batch(Engine& engine, RowSource& source, const Batch& batch, OutputFile& output);

/// A result's "prompt_logprobs": null for the first token, which has no past, then logprobs_json().
std::string prompt_logprobs_json(const Engine& engine, const RowResult& result);

}  // namespace fovea::cli
