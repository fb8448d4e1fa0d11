#include "cli/json_io.h"

#include <unistd.h>

#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

namespace fovea::cli {
namespace {

using nlohmann::json;

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
Status read_number(const json& row, const char* key, const std::string& where, std::optional<T>& out) {
  const auto it = row.find(key);
  if (it == row.end() || it->is_null()) return {};
  const bool fits = std::is_integral_v<T> ? it->is_number_integer() : it->is_number();
  if (!fits)
    return bad(where,
               std::string("\"") + key + "\" must be " + (std::is_integral_v<T> ? "an integer" : "a number"));
  if constexpr (std::is_integral_v<T>) {
    const auto value = it->get<int64_t>();
    if (value < 0 || value > static_cast<int64_t>(INT32_MAX))
      return bad(where, std::string("\"") + key + "\" is " + it->dump() + "; allowed are 0 to 2147483647");
    out = static_cast<T>(value);
  } else {
    out = it->get<T>();
  }
  return {};
}

Result<std::vector<int32_t>> read_ids(const json& value, const std::string& where) {
  if (!value.is_array()) return bad(where, "token ids must be an array of integers");
  std::vector<int32_t> ids;
  ids.reserve(value.size());
  for (const json& id : value) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() > INT32_MAX)
      return bad(where, "token id " + id.dump().substr(0, 40) + ": must be an integer of the vocabulary");
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

Result<std::vector<ChatTurn>> read_messages(const json& value, const std::string& where) {
  if (!value.is_array() || value.empty())
    return bad(where, "\"messages\" must be a non-empty array of {\"role\", \"content\"}");
  std::vector<ChatTurn> turns;
  for (const json& message : value) {
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string() ||
        !message.contains("content") || !message["content"].is_string())
      return bad(where, "each message needs a string \"role\" and a string \"content\"");
    turns.push_back({message["role"].get<std::string>(), message["content"].get<std::string>()});
  }
  return turns;
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
  const json row = json::parse(line, nullptr, false);
  if (row.is_discarded() || !row.is_object()) return bad(where, "not a JSON object");
  InputRow out;
  out.line = number;
  if (row.contains("id")) out.id_json = row["id"].dump(-1, ' ', false, json::error_handler_t::replace);
  FOVEA_RETURN_IF_ERROR(read_string(row, "prompt", where, out.text));
  FOVEA_RETURN_IF_ERROR(read_string(row, "text", where, out.text));
  for (const char* key : {"ids", "prompt_ids"}) {
    if (!row.contains(key)) continue;
    FOVEA_TRY(ids, read_ids(row[key], where));
    out.ids = std::move(ids);
  }
  if (row.contains("messages")) {
    FOVEA_TRY(turns, read_messages(row["messages"], where));
    out.messages = std::move(turns);
  }
  const int forms = int(out.text.has_value()) + int(out.ids.has_value()) + int(!out.messages.empty());
  if (forms != 1) return bad(where, "needs exactly one of \"prompt\", \"text\", \"ids\" or \"messages\"");
  FOVEA_RETURN_IF_ERROR(read_number(row, "max_tokens", where, out.sampling.max_tokens));
  FOVEA_RETURN_IF_ERROR(read_number(row, "temperature", where, out.sampling.temperature));
  FOVEA_RETURN_IF_ERROR(read_number(row, "top_p", where, out.sampling.top_p));
  FOVEA_RETURN_IF_ERROR(read_number(row, "min_p", where, out.sampling.min_p));
  FOVEA_RETURN_IF_ERROR(read_number(row, "top_k", where, out.sampling.top_k));
  FOVEA_RETURN_IF_ERROR(read_number(row, "seed", where, out.seed));
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

Result<std::vector<InputRow>> read_rows(const std::string& path) {
  std::ifstream file(path);
  if (!file) return io_error("cannot read " + path + ": no such file, or no permission; give a JSONL file");
  std::vector<InputRow> rows;
  std::string line;
  for (int64_t number = 1; std::getline(file, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    FOVEA_TRY(row, parse_row(line, number, path + " line " + std::to_string(number)));
    rows.push_back(std::move(row));
  }
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

Result<OutputFile> OutputFile::open(const std::string& path) {
  OutputFile out;
  if (path.empty() || path == "-") return out;
  out.path_ = path;
  out.temporary_ = path + ".partial." + std::to_string(::getpid());
  out.file_.open(out.temporary_, std::ios::trunc);
  if (!out.file_) {
    const std::string name = std::exchange(out.temporary_, {});
    return io_error("cannot write " + name + ": give --output a folder that exists and is writable");
  }
  return out;
}

OutputFile::~OutputFile() {
  if (temporary_.empty()) return;
  file_.close();
  std::error_code ignored;
  std::filesystem::remove(temporary_, ignored);
}

void OutputFile::line(const std::string& text) {
  if (path_.empty())
    std::cout << text << '\n';
  else
    file_ << text << '\n';
}

Status OutputFile::commit() {
  if (path_.empty()) {
    std::cout.flush();
    return std::cout ? Status{} : Status{io_error("cannot write to standard output")};
  }
  file_.close();
  if (!file_) return io_error("cannot write " + path_ + ": is the disk full?");
  std::error_code error;
  std::filesystem::rename(temporary_, path_, error);
  if (error) return io_error("cannot write " + path_ + ": " + error.message());
  temporary_.clear();
  return {};
}

}  // namespace fovea::cli
