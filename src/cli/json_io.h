#pragma once
// JSON lines in and out. The JSON library stays inside json_io.cc.
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cli/options.h"

namespace fovea::cli {

/// One row of an input file: a prompt in one of four forms, and what overrides the flags.
struct InputRow {
  int64_t line = 0;                           ///< of the file, from 1
  uint64_t digest = 0;                        ///< of the line, to know it again; 0 = not of a file
  std::optional<Error> refused;               ///< the row can't be read; RowSource::keeps_going() only
  std::string id_json;                        ///< the row's own "id", as JSON; empty = none
  std::optional<std::string> text;            ///< "prompt", "text" or "input"
  std::optional<ChatRequest> chat;            ///< "messages", "tools", "documents", "chat_template_kwargs"
  std::optional<std::vector<int32_t>> ids;    ///< "ids", "prompt_ids" or "token_ids"
  std::optional<std::string> audio;           ///< "audio": a WAV file's path
  std::optional<std::string> decoder_prompt;  ///< "decoder_prompt", of encoder-decoder models
  SamplingFlags sampling;                     ///< request_fields()
  std::optional<int> priority;
  std::vector<std::string> ignored;  ///< names of fields that are not known
  bool no_logprobs = false;          ///< "logprobs" is false, whatever the flags say
};

/// A file to read; a folder, or one that can't be read, is an error.
Result<std::ifstream> open_input(const std::string& path);

Result<std::string> read_file(const std::string& path);

/// The files and text of the flags; messages stay empty.
Result<ChatRequest> chat_request(const TemplateFlags& flags);

/// {"role", "content"} as JSON.
std::string message_json(std::string_view role, std::string_view content);

/// `messages`, a JSON list, with a system message first unless it has one; "" adds none.
std::string with_system(const std::string& messages, const std::string& system);

/// One message of a conversation.
struct ChatTurn {
  std::string role, text;  ///< text is empty where the content is none
  std::string json;        ///< the whole message
};
/// A JSON list of messages; `where` stands before an error.
Result<std::vector<ChatTurn>> parse_turns(const std::string& json, const std::string& where);
std::string turns_json(const std::vector<ChatTurn>& turns);

/// `text` as a JSON string, and back: nullopt where it is none.
std::string json_string(std::string_view text);
std::optional<std::string> parse_json_string(std::string_view json);
bool is_json(std::string_view text);

/// Which fields a row may have beside its prompt and "id".
enum class RowKind {
  generate,  ///< all of request_fields()
  score,     ///< "prompt_logprobs"
  embed,     ///< none
};

struct RowFormat {
  RowKind kind = RowKind::generate;
  bool ignore_unknown = false;  ///< fields that no server has are warned of, not errors
};

/// The fields of a request, for --help: "temperature, top_p, ...".
std::string request_fields();

/// ["a", "b"]; `what` stands before an error.
Result<std::vector<std::string>> parse_string_list(const std::string& json, const std::string& what);

/// OpenAI's form of biases, {"TOKEN ID": NUMBER, ...}; nothing but the form is checked.
Result<std::vector<LogitBias>> parse_logit_bias(const std::string& json);

/// One line of a JSONL file. `where` stands before every error. Fields that are not known, or that occur
/// twice, are errors. `row` gets what was read before an error, its "id" first.
Status parse_row(const std::string& line, const std::string& where, const RowFormat& format, InputRow& row);

/// Where rows come from, one at a time.
class RowSource {
 public:
  /// A JSONL file, "-" = standard input; empty lines are skipped.
  static Result<RowSource> open(const std::string& path, const RowFormat& format);
  explicit RowSource(std::vector<InputRow> rows) : rows_(std::move(rows)) {}

  /// The next row, nullopt after the last. A file without any is an error, and so is a bad row, unless
  /// keeps_going().
  Result<std::optional<InputRow>> next();
  /// "FILE line N" for a row's errors; "" for one that is not of a file.
  std::string name(const InputRow& row) const;
  /// Waits for the other end of a pipe, at most so long; true when next() has something to read, or the end.
  bool ready(int milliseconds);
  /// Back to the first row; false where that can't be done (a pipe).
  bool rewind();
  /// Rows come from somebody who sends them: standard input as "-", or a pipe. They can't be looked through
  /// before the first is answered, so that a bad one is answered as such and the others go on.
  bool keeps_going() const { return keeps_going_; }

 private:
  std::vector<InputRow> rows_;
  size_t at_ = 0;

  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  std::istream& in();

  std::string path_;
  std::ifstream file_;
  bool socket_ = false;  // standard input is one, and has no name that could be opened
  std::unique_ptr<std::FILE, Close>
      watched_;  // the same file, never read; null where it can't be opened twice
  RowFormat format_;
  std::set<std::string> named_;  // unknown fields that were warned of
  int64_t line_ = 0;
  bool any_ = false, keeps_going_ = false;
};

/// What a run ends with that had an error for the result of so many rows.
Status refused_rows(int64_t rows);
/// Result of a row that can't be answered: "index", "id" and OpenAI's "error".
std::string error_row(int64_t index, const std::string& id_json, const Error& error);

/// A JSON object built field by field, in order.
class JsonRow {
 public:
  JsonRow& add(std::string_view key, std::string_view text);
  JsonRow& add(std::string_view key, const char* text) { return add(key, std::string_view(text)); }
  JsonRow& add(std::string_view key, int64_t value);
  JsonRow& add(std::string_view key, int value) { return add(key, static_cast<int64_t>(value)); }
  JsonRow& add(std::string_view key, double value);
  JsonRow& add(std::string_view key, const std::vector<int32_t>& values);
  /// The shortest decimals that read back as the same fp32; infinities and NaN become null.
  JsonRow& add(std::string_view key, const std::vector<float>& values);
  JsonRow& add_raw(std::string_view key, std::string_view json);
  std::string str() const { return text_ + "}"; }

 private:
  JsonRow& begin(std::string_view key);
  std::string text_ = "{";
};

/// OpenAI's entry of one token: token, token_id, logprob, rank, bytes, and top_logprobs with the same. -inf
/// is written as -9999 (vLLM's), which JSON can hold.
std::string logprobs_json(const Engine& engine, const TokenLogprobs& logprobs);

}  // namespace fovea::cli
