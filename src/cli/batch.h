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

/// What goes with a row to its result.
struct RowTag {
  std::string name;     ///< for messages
  std::string id_json;  ///< InputRow's
  RowKey key;
};

struct RowResult {
  int64_t index = 0;
  RowTag tag;
  std::optional<Error> refused;     ///< in place of all below
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

  struct Options {
    std::string what;         ///< for the progress bar
    int64_t rows = 0;         ///< how many come; 0 = unknown
    int64_t first = 0;        ///< index of the first one that is submitted
    size_t window = 1;        ///< answers that are waited for or held back (more if one row has more)
    bool keep_going = false;  ///< a row that fails has its error for a result
  };

  /// `write` is called on a thread of its own, as soon as a row's turn has come: who sends the rows may wait
  /// for an answer before sending the next.
  BatchRunner(Engine& engine, Options options, Write write);
  /// Whatever still runs is cancelled: nobody will ask for it.
  ~BatchRunner();

  /// Submits a row; waits where the window is full. The tag's name stands before an error of the row ("FILE
  /// line N"). An error of a row, unless `keep_going`, or of `write` ends the run: it comes back from here or
  /// from drain().
  Status submit(GenerateRequest request, RowTag tag = {});
  /// A row that is not to be computed; its turn comes as that of the others.
  Status refuse(Error error, RowTag tag);
  /// What ended the run, if anything did.
  Status status();
  /// Waits for all that is left. Nothing may be submitted after.
  Status drain();

 private:
  void write_rows();
  /// The next row in line, once it is done; null when no more is to be written.
  std::unique_ptr<RowResult> next_done();
  Status write_row(RowResult& row) const;
  /// Waits until so many more answers have room.
  Status wait_for_room(size_t answers);
  void add(std::unique_ptr<RowResult> row, size_t answers);
  void join(bool abandon);

  Engine& engine_;
  Progress progress_;  // the writer's
  const Options options_;
  const Write write_;
  int64_t submitted_;

  std::mutex mutex_;  // of all below, and of results until they are done
  std::condition_variable changed_;
  std::deque<std::unique_ptr<RowResult>> rows_;  // submitted, and their turn has not come
  size_t held_ = 0;                              // answers that are not written
  int64_t written_;                              // rows, with those before the first
  bool closed_ = false, abandoned_ = false;
  std::optional<Error> failure_;  // of a row or of `write`
  std::thread writer_;
};

/// Runs every row of `source` that `output` does not have yet, and writes a line for each. Where the source
/// can be read twice, a first pass looks for bad rows before anything runs; else a bad row has an error for a
/// line, the others go on, and the run is an error at its end.
struct Batch {
  std::string what;  ///< the command
  std::function<Result<GenerateRequest>(const InputRow&)> request;
  std::function<std::string(const RowResult&)> line;
  int max_running = 64;
};
Status run_batch(Engine& engine, RowSource& source, const Batch& batch, OutputFile& output);

/// A result's "prompt_logprobs": null for the first token, which has no past, then logprobs_json().
std::string prompt_logprobs_json(const Engine& engine, const RowResult& result);

}  // namespace fovea::cli
