#include "cli/json_io.h"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/json_depth.h"

namespace fovea::cli {
namespace {

using nlohmann::json;

constexpr size_t kMaxQuoted = 40;  // characters of a value in a message

Error bad(const std::string& where, std::string_view what) {
  return invalid(where + ": " + std::string(what));
}

Status read_string(const json& row, const char* key, const std::string& where,
                   std::optional<std::string>& out) {
  const auto it = row.find(key);
  if (it == row.end()) return {};
  if (!it->is_string()) return bad(where, std::string("\"") + key + "\" must be a string");
  out = it->get<std::string>();
  return {};
}

template <class T>
bool is_integer_from(const json& value, T low) {
  const auto fits = [low](auto x) {
    return std::cmp_greater_equal(x, low) && std::cmp_less_equal(x, std::numeric_limits<T>::max());
  };
  return value.is_number_unsigned() ? fits(value.get<uint64_t>())
                                    : value.is_number_integer() && fits(value.get<int64_t>());
}

template <class T>
Status read_integer(const json& row, const char* key, const std::string& where, T low,
                    std::optional<T>& out) {
  const auto it = row.find(key);
  if (it == row.end() || it->is_null()) return {};
  if (!is_integer_from(*it, low))
    return bad(where, std::string("\"") + key + "\" is " + it->dump().substr(0, kMaxQuoted) +
                          "; allowed are integers from " + std::to_string(low) + " to " +
                          std::to_string(std::numeric_limits<T>::max()));
  out = it->get<T>();
  return {};
}

Status read_number(const json& row, const char* key, const std::string& where, std::optional<float>& out) {
  const auto it = row.find(key);
  if (it == row.end() || it->is_null()) return {};
  if (!it->is_number()) return bad(where, std::string("\"") + key + "\" must be a number");
  out = it->get<float>();
  return {};
}

Result<std::vector<int32_t>> read_ids(const json& value, const std::string& where) {
  if (!value.is_array()) return bad(where, "token ids must be an array of integers");
  std::vector<int32_t> ids;
  ids.reserve(value.size());
  for (const json& id : value) {
    if (!is_integer_from<int32_t>(id, 0))
      return bad(where,
                 "token id " + id.dump().substr(0, kMaxQuoted) + ": must be an integer of the vocabulary");
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

/// The row's conversation with its members in their order, which templates print.
Result<ChatRequest> read_chat(const std::string& line, const std::string& where) {
  const auto row = nlohmann::ordered_json::parse(line);
  const auto& messages = row["messages"];
  if (!messages.is_array() || messages.empty())
    return bad(where, "\"messages\" must be a non-empty array of {\"role\", \"content\"}");
  for (const auto& message : messages) {
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string())
      return bad(where, "each message needs a string \"role\"");
  }
  ChatRequest chat;
  chat.messages = messages.dump();
  if (row.contains("tools")) chat.tools = row["tools"].dump();
  if (row.contains("documents")) chat.documents = row["documents"].dump();
  if (row.contains("chat_template_kwargs")) chat.template_kwargs = row["chat_template_kwargs"].dump();
  return chat;
}

Status read_stop(const json& row, const std::string& where, std::vector<std::string>& out) {
  const auto it = row.find("stop");
  if (it == row.end() || it->is_null()) return {};
  if (it->is_string()) {
    out.push_back(it->get<std::string>());
    return {};
  }
  if (!it->is_array()) return bad(where, "\"stop\" must be a string or an array of strings");
  for (const json& text : *it) {
    if (!text.is_string()) return bad(where, "\"stop\" must be a string or an array of strings");
    out.push_back(text.get<std::string>());
  }
  return {};
}

Result<InputRow> parse_row(const std::string& line, int64_t number, const std::string& where) {
  if (json_nests_deeper(line))
    return bad(where, "nested deeper than " + std::to_string(kMaxJsonDepth) + " levels");
  const json row = json::parse(line, nullptr, false);
  if (row.is_discarded() || !row.is_object()) return bad(where, "not a JSON object");
  InputRow out;
  out.line = number;
  if (row.contains("id")) out.id_json = row["id"].dump(-1, ' ', false, json::error_handler_t::replace);
  int forms = 0;
  for (const char* key : {"prompt", "text", "ids", "prompt_ids", "messages"})
    forms += row.contains(key);
  if (forms != 1) return bad(where, "needs exactly one of \"prompt\", \"text\", \"ids\" or \"messages\"");
  FOVEA_RETURN_IF_ERROR(read_string(row, "prompt", where, out.text));
  FOVEA_RETURN_IF_ERROR(read_string(row, "text", where, out.text));
  for (const char* key : {"ids", "prompt_ids"}) {
    if (!row.contains(key)) continue;
    FOVEA_TRY(ids, read_ids(row[key], where));
    out.ids = std::move(ids);
  }
  if (row.contains("messages")) {
    FOVEA_TRY(chat, read_chat(line, where));
    out.chat = std::move(chat);
  }
  FOVEA_RETURN_IF_ERROR(read_integer(row, "max_tokens", where, 1, out.sampling.max_tokens));
  FOVEA_RETURN_IF_ERROR(read_integer(row, "top_k", where, -1, out.sampling.top_k));
  FOVEA_RETURN_IF_ERROR(read_integer<uint64_t>(row, "seed", where, 0, out.seed));
  FOVEA_RETURN_IF_ERROR(read_number(row, "temperature", where, out.sampling.temperature));
  FOVEA_RETURN_IF_ERROR(read_number(row, "top_p", where, out.sampling.top_p));
  FOVEA_RETURN_IF_ERROR(read_number(row, "min_p", where, out.sampling.min_p));
  FOVEA_RETURN_IF_ERROR(read_stop(row, where, out.sampling.stop));
  if (row.contains("ignore_eos")) {
    if (!row["ignore_eos"].is_boolean()) return bad(where, "\"ignore_eos\" must be true or false");
    out.sampling.ignore_eos = row["ignore_eos"].get<bool>();
  }
  return out;
}

std::string number_text(float value) {
  if (!std::isfinite(value)) return "null";
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value);
  return std::string(buffer, end.ptr);
}

}  // namespace

Result<std::ifstream> open_input(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))
    return io_error("cannot read " + path + ": it is a folder; give a file");
  std::ifstream file(path, std::ios::binary);
  if (!file) return io_error("cannot read " + path + ": no such file, or no permission");
  return file;
}

Result<std::string> read_file(const std::string& path) {
  FOVEA_TRY(file, open_input(path));
  std::ostringstream text;
  text << file.rdbuf();
  if (file.bad()) return io_error("cannot read " + path + " to its end");
  return text.str();
}

Result<ChatRequest> chat_request(const TemplateFlags& flags) {
  ChatRequest chat;
  if (!flags.tools.empty()) {
    FOVEA_TRY(tools, read_file(flags.tools));
    chat.tools = std::move(tools);
  }
  if (!flags.documents.empty()) {
    FOVEA_TRY(documents, read_file(flags.documents));
    chat.documents = std::move(documents);
  }
  chat.template_kwargs = flags.kwargs;
  return chat;
}

std::string message_json(std::string_view role, std::string_view content) {
  return JsonRow().add("role", role).add("content", content).str();
}

std::string with_system(const std::string& messages, const std::string& system) {
  if (system.empty() || json_nests_deeper(messages)) return messages;
  auto list = nlohmann::ordered_json::parse(messages, nullptr, false);
  if (!list.is_array() || list.empty()) return messages;  // the template's caller says what is wrong
  const auto& first = list[0];
  if (first.is_object() && first.contains("role") && first["role"] == "system") return messages;
  list.insert(list.begin(), {{"role", "system"}, {"content", system}});
  return list.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

Result<std::vector<InputRow>> read_rows(const std::string& path) {
  FOVEA_TRY(file, open_input(path));
  std::vector<InputRow> rows;
  std::string line;
  for (int64_t number = 1; std::getline(file, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    FOVEA_TRY(row, parse_row(line, number, path + " line " + std::to_string(number)));
    rows.push_back(std::move(row));
  }
  if (file.bad()) return io_error("cannot read " + path + " to its end");
  if (rows.empty()) return invalid(path + " has no rows; each line must be one JSON object");
  return rows;
}

JsonRow& JsonRow::begin(std::string_view key) {
  if (text_.size() > 1) text_ += ", ";
  text_ += json(key).dump() + ": ";
  return *this;
}

JsonRow& JsonRow::add(std::string_view key, std::string_view text) {
  begin(key);
  text_ += json(text).dump(-1, ' ', false, json::error_handler_t::replace);
  return *this;
}

JsonRow& JsonRow::add(std::string_view key, int64_t value) {
  begin(key);
  text_ += std::to_string(value);
  return *this;
}

JsonRow& JsonRow::add(std::string_view key, double value) {
  begin(key);
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.6g", value);
  text_ += std::isfinite(value) ? buffer : "null";
  return *this;
}

JsonRow& JsonRow::add(std::string_view key, const std::vector<int32_t>& values) {
  begin(key);
  text_ += '[';
  for (size_t i = 0; i < values.size(); ++i)
    text_ += (i ? ", " : "") + std::to_string(values[i]);
  text_ += ']';
  return *this;
}

JsonRow& JsonRow::add(std::string_view key, const std::vector<float>& values) {
  begin(key);
  text_ += '[';
  for (size_t i = 0; i < values.size(); ++i)
    text_ += (i ? ", " : "") + number_text(values[i]);
  text_ += ']';
  return *this;
}

JsonRow& JsonRow::add_raw(std::string_view key, std::string_view raw) {
  begin(key);
  text_ += raw;
  return *this;
}

}  // namespace fovea::cli
