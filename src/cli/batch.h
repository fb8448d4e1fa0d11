#pragma once
// Runs rows through an engine and hands out what they produced, in the order of the rows, while later ones
// are still read: what is in memory does not grow with the number of rows.
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>

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
/// turn. `defaults` stand in for what a conversation has no tools, documents or arguments of its own for.
Result<std::vector<int32_t>> prompt_ids(const Engine& engine, const InputRow& row, bool as_chat,
                                        const ChatRequest& defaults, const std::string& system);

class BatchRunner {
 public:
  using Write = std::function<Status(RowResult&)>;

  /// `rows`: how many come, for the progress bar; 0 = unknown. At most `window` answers are waited for or
  /// held back for their turn (more if a single row has more).
  BatchRunner(Engine& engine, std::string what, int64_t rows, size_t window, Write write)
      : engine_(engine), progress_(std::move(what), rows), window_(window), write_(std::move(write)) {}
  /// Whatever still runs is cancelled: nobody will ask for it.
  ~BatchRunner();

  /// Submits a row; waits for earlier ones and writes them where the window is full. `name` stands before an
  /// error of the row ("FILE line N"). An error of a row or of `write` ends the run.
  Status submit(GenerateRequest request, std::string name = {}, std::string id_json = {});
  /// Waits for all that is left.
  Status drain() { return write_down_to(0); }

 private:
  /// Writes rows that are done, and waits for the first in line while more than `most` answers are held.
  Status write_down_to(size_t most);
  bool first_done();

  Engine& engine_;
  Progress progress_;
  const size_t window_;
  const Write write_;
  std::deque<std::unique_ptr<RowResult>> rows_;  // submitted and not written, in order
  size_t held_ = 0;                              // their answers
  int64_t submitted_ = 0, written_ = 0;
  std::mutex mutex_;  // of what sinks write: the results, until they are done
  std::condition_variable changed_;
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
