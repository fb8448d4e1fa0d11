#pragma once
// Reads and writes JSON lines. Only json_io.cc includes the JSON library.
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

/// One row of an input file: a prompt in one of four forms, and fields that override the flags.
struct InputRow {
  int64_t line = 0;                           ///< line number in the file, from 1
  uint64_t digest = 0;                        ///< of the line's text; 0 = not from a file
  std::optional<Error> refused;               ///< the row can't be read; RowSource::keeps_going() only
  std::string id_json;                        ///< the row's own "id", as JSON; empty = none
  std::optional<std::string> text;            ///< "prompt", "text" or "input"
  std::optional<ChatRequest> chat;            ///< "messages", "tools", "documents", "chat_template_kwargs"
  std::optional<std::vector<int32_t>> ids;    ///< "ids", "prompt_ids" or "token_ids"
  std::optional<std::string> audio;           ///< "audio": a WAV file's path
  std::optional<std::string> decoder_prompt;  ///< "decoder_prompt", for encoder-decoder models
  SamplingFlags sampling;                     ///< request_fields()
  std::optional<int> priority;
  std::optional<std::string> lora;   ///< a LoRA adapter's name
  std::vector<std::string> ignored;  ///< names of unknown fields
  bool no_logprobs = false;          ///< "logprobs" is false, which overrides the flags
};

/// Opens a file for reading; a folder or an unreadable file is an error.
Result<std::ifstream> open_input(const std::string& path);

Result<std::string> read_file(const std::string& path);

/// Reads the files and text that the flags name; messages stay empty.
Result<ChatRequest> chat_request(const TemplateFlags& flags);

/// {"role", "content"} as JSON.
std::string message_json(std::string_view role, std::string_view content);

/// `messages`, a JSON list, with a system message first unless it has one; "" adds none.
std::string with_system(const std::string& messages, const std::string& system);

/// One message of a conversation.
struct ChatTurn {
  std::string role, text;  ///< text is empty if the content is not a string
  std::string json;        ///< the whole message
};
/// Parses a JSON list of messages; errors are prefixed with `where`.
Result<std::vector<ChatTurn>> parse_turns(const std::string& json, const std::string& where);
std::string turns_json(const std::vector<ChatTurn>& turns);

/// `text` as a JSON string, and the inverse, which is nullopt if `json` is not a string.
std::string json_string(std::string_view text);
std::optional<std::string> parse_json_string(std::string_view json);
bool is_json(std::string_view text);

/// The fields that a row may have beside its prompt and "id".
enum class RowKind {
  generate,  ///< all of request_fields()
  score,     ///< "prompt_logprobs"
  embed,     ///< none
};

struct RowFormat {
  RowKind kind = RowKind::generate;
  bool ignore_unknown = false;  ///< fields that no server has give warnings, not errors
};

/// The fields of a request, for --help: "temperature, top_p, ...".
std::string request_fields();

/// Parses ["a", "b"]; errors are prefixed with `what`.
Result<std::vector<std::string>> parse_string_list(const std::string& json, const std::string& what);

/// OpenAI's form of biases, {"TOKEN ID": NUMBER, ...}; only the form is checked.
Result<std::vector<LogitBias>> parse_logit_bias(const std::string& json);

/// Parses one line of a JSONL file. Errors are prefixed with `where`. Unknown and duplicate fields are
/// errors. After an error `row` has the members read before it; "id" is read first.
Status parse_row(const std::string& line, const std::string& where, const RowFormat& format, InputRow& row);

/// A source of rows, read one at a time.
class RowSource {
 public:
  /// A JSONL file, "-" = standard input; empty lines are skipped.
  static Result<RowSource> open(const std::string& path, const RowFormat& format);
  explicit RowSource(std::vector<InputRow> rows) : rows_(std::move(rows)) {}

  /// The next row, nullopt after the last. Errors: a file without rows; a bad row, unless keeps_going().
  Result<std::optional<InputRow>> next();
  /// "FILE line N" for a row's errors; "" for a row that is not from a file.
  std::string name(const InputRow& row) const;
  /// Waits at most `milliseconds` for a pipe; true if next() can read data or the end of input.
  bool ready(int milliseconds);
  /// Goes back to the first row; false if impossible (a pipe).
  bool rewind();
  /// Whether rows are streamed by a sender: standard input as "-", or a pipe. They can't be validated before
  /// the first is answered, so a bad row gets an error as its result and the others continue.
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
  bool socket_ = false;  // standard input is a socket, which can't be opened by name
  std::unique_ptr<std::FILE, Close>
      watched_;  // the same file, polled and never read; null if it can't be opened twice
  RowFormat format_;
  std::set<std::string> named_;  // unknown fields already named in a warning
  int64_t line_ = 0;
  bool any_ = false, keeps_going_ = false;
};

/// The status of a run in which `rows` rows have an error as their result.
Status refused_rows(int64_t rows);
/// The result line of a row that can't be answered: "index", "id" and OpenAI's "error".
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

/// OpenAI's entry for one token: token, token_id, logprob, rank, bytes, and top_logprobs with the same
/// members. -inf is written as -9999, as in vLLM, because JSON has no infinity.
std::string logprobs_json(const Engine& engine, const TokenLogprobs& logprobs);

}  // namespace fovea::cli
