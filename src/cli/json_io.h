#pragma once
// JSON lines in and out. The JSON library stays inside json_io.cc.
#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/options.h"

namespace fovea::cli {

/// One row of an input file: a prompt in one of three forms, and what overrides the flags.
struct InputRow {
  int64_t line = 0;                         ///< of the file, from 1
  std::string id_json;                      ///< the row's own "id", as JSON; empty = none
  std::optional<std::string> text;          ///< "prompt" or "text"
  std::optional<ChatRequest> chat;          ///< "messages", "tools", "documents", "chat_template_kwargs"
  std::optional<std::vector<int32_t>> ids;  ///< "ids" or "prompt_ids"
  SamplingFlags sampling;  ///< max_tokens, temperature, top_p, top_k, min_p, stop, ignore_eos
  std::optional<uint64_t> seed;
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

/// Reads every row of a JSONL file before anything runs; an error names the line. Empty lines are skipped.
Result<std::vector<InputRow>> read_rows(const std::string& path);

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

}  // namespace fovea::cli
