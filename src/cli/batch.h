#pragma once
// Runs rows through an engine and delivers their results in row order while later rows are still being
// read; memory use does not grow with the number of rows.
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

/// Metadata carried from a row to its result.
struct RowTag {
  std::string name;     ///< for messages
  std::string id_json;  ///< InputRow::id_json
  RowKey key;
};

struct RowResult {
  int64_t index = 0;
  RowTag tag;
  std::optional<Error> refused;     ///< if set, the members below are unused
  std::vector<int32_t> prompt_ids;  ///< set if prompt log probabilities were requested
  bool logprobs = false;            ///< requested
  std::vector<Choice> choices;      ///< by choice index
  size_t unfinished = 0;            ///< number of unfinished choices
  uint64_t request = 0;
};

/// The prompt of a row as token ids: `as_chat` renders "prompt" and "text" with the chat template as a user
/// turn. `defaults` provide tools, documents and template arguments for conversations that have none of their
/// own; they and `system` are errors for a row that is not a conversation.
Result<std::vector<int32_t>> prompt_ids(const Engine& engine, const InputRow& row, bool as_chat,
                                        const ChatRequest& defaults, const std::string& system);

class BatchRunner {
 public:
  using Write = std::function<Status(RowResult&)>;

  struct Options {
    std::string what;         ///< for the progress bar
    int64_t rows = 0;         ///< expected number; 0 = unknown
    int64_t first = 0;        ///< index of the first submitted row
    size_t window = 1;        ///< maximum answers running or not yet written (more if one row has more)
    bool keep_going = false;  ///< the result of a failed row is its error
  };

  /// `write` is called on a separate thread as soon as the row and all preceding rows have finished, because
  /// the sender of the rows may wait for an answer before it sends the next row.
  BatchRunner(Engine& engine, Options options, Write write);
  /// Cancels all requests that are still running.
  ~BatchRunner();

  /// Submits a row; blocks while the window is full. An error of the row is prefixed with the tag's name
  /// ("FILE line N"). An error of `write`, or of a row unless `keep_going`, ends the run and is returned by
  /// submit() or drain().
  Status submit(GenerateRequest request, RowTag tag = {});
  /// Adds a row that is not computed; its error is written in row order like other results.
  Status refuse(Error error, RowTag tag);
  /// The error that ended the run, if any.
  Status status();
  /// Waits for all remaining rows. Nothing may be submitted afterwards.
  Status drain();

 private:
  void write_rows();
  /// Waits for the next row in order to finish; null when there is nothing more to write.
  std::unique_ptr<RowResult> next_done();
  Status write_row(RowResult& row) const;
  /// Waits until the window has room for `answers` more.
  Status wait_for_room(size_t answers);
  void add(std::unique_ptr<RowResult> row, size_t answers);
  void join(bool abandon);

  Engine& engine_;
  Progress progress_;  // used by the writer thread only
  const Options options_;
  const Write write_;
  int64_t submitted_;

  std::mutex mutex_;  // guards the members below, and results until they are finished
  std::condition_variable changed_;
  std::deque<std::unique_ptr<RowResult>> rows_;  // submitted and not yet written, in order
  size_t held_ = 0;                              // answers not yet written
  int64_t written_;                              // rows, including those before options_.first
  bool closed_ = false, abandoned_ = false;
  std::optional<Error> failure_;  // of a row or of `write`
  std::thread writer_;
};

/// Runs every row of `source` that `output` does not have yet, and writes a line for each. If the source can
/// be read twice, a first pass rejects bad rows before anything runs. Otherwise the line of a bad row is an
/// error, the other rows continue, and the run returns an error at its end.
struct Batch {
  std::string what;  ///< name of the command
  std::function<Result<GenerateRequest>(const InputRow&)> request;
  std::function<std::string(const RowResult&)> line;
  int max_running = 64;
};
Status run_batch(Engine& engine, RowSource& source, const Batch& batch, OutputFile& output);

/// "prompt_logprobs" of a result: null for the first token, which has no context, then logprobs_json().
std::string prompt_logprobs_json(const Engine& engine, const RowResult& result);

}  // namespace fovea::cli
