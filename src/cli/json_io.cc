#include "cli/json_io.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <unordered_set>

#include "base/digest.h"
#include "base/edit_distance.h"
#include "base/json_depth.h"
#include "server/openai/constraint_fields.h"
#include "server/openai/field_table.h"

namespace fovea::cli {
namespace {

using nlohmann::json;

constexpr size_t kMaxQuoted = 40;   // characters of a value quoted in a message
constexpr size_t kMaxNamed = 64;    // unknown fields named in warnings
constexpr float kExcluded = -9999;  // written for a log probability of -inf

constexpr std::string_view kPromptFields[] = {"prompt",     "text",      "input",    "ids",
                                              "prompt_ids", "token_ids", "messages", "audio"};
// Allowed beside "messages", for the chat template.
constexpr std::string_view kChatFields[] = {"tools", "documents", "chat_template_kwargs"};
constexpr std::string_view kRequestFields[] = {"temperature",
                                               "top_p",
                                               "top_k",
                                               "min_p",
                                               "repetition_penalty",
                                               "frequency_penalty",
                                               "presence_penalty",
                                               "logit_bias",
                                               "bad_words",
                                               "allowed_token_ids",
                                               "seed",
                                               "n",
                                               "max_tokens",
                                               "max_completion_tokens",
                                               "min_tokens",
                                               "stop",
                                               "stop_token_ids",
                                               "ignore_eos",
                                               "skip_special_tokens",
                                               "include_stop_str_in_output",
                                               "logprobs",
                                               "top_logprobs",
                                               "prompt_logprobs",
                                               "priority",
                                               "lora"};

/// The start of a value as printable ASCII, for messages.
std::string shown(const json& value) {
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() > kMaxQuoted) text.replace(kMaxQuoted, std::string::npos, "...");
  return text;
}

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
    return bad(where, std::string("\"") + key + "\" is " + shown(*it) + "; allowed are integers from " +
                          std::to_string(low) + " to " + std::to_string(std::numeric_limits<T>::max()));
  out = it->get<T>();
  return {};
}

Status read_number(const json& row, const char* key, const std::string& where, std::optional<float>& out) {
  const auto it = row.find(key);
  if (it == row.end() || it->is_null()) return {};
  if (!it->is_number())
    return bad(where, std::string("\"") + key + "\" is " + shown(*it) + "; it must be a number");
  out = it->get<float>();
  return {};
}

Result<std::vector<int32_t>> read_ids(const json& value, const std::string& where) {
  if (!value.is_array()) return bad(where, "token ids must be an array of integers");
  std::vector<int32_t> ids;
  ids.reserve(value.size());
  for (const json& id : value) {
    if (!is_integer_from<int32_t>(id, 0))
      return bad(where, "token id " + shown(id) + ": must be an integer of the vocabulary");
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

/// The row's conversation with its members in their original order, because templates print them.
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

/// A string or an array of strings, as in OpenAI's "stop".
Status read_strings(const json& row, const char* key, const std::string& where,
                    std::optional<std::vector<std::string>>& out) {
  const auto it = row.find(key);
  if (it == row.end() || it->is_null()) return {};
  const json list = it->is_array() ? *it : json::array({*it});
  out.emplace();
  for (const json& text : list) {
    if (!text.is_string())
      return bad(where, std::string("\"") + key + "\" must be a string or an array of strings");
    out->push_back(text.get<std::string>());
  }
  return {};
}

Status read_id_list(const json& row, const char* key, const std::string& where,
                    std::optional<std::vector<int32_t>>& out) {
  const auto it = row.find(key);
  if (it == row.end() || it->is_null()) return {};
  FOVEA_TRY(ids, read_ids(*it, where + ": \"" + key + "\""));
  out = std::move(ids);
  return {};
}

Status read_bool(const json& row, const char* key, const std::string& where, std::optional<bool>& out) {
  const auto it = row.find(key);
  if (it == row.end() || it->is_null()) return {};
  if (!it->is_boolean()) return bad(where, std::string("\"") + key + "\" must be true or false");
  out = it->get<bool>();
  return {};
}

Result<std::vector<LogitBias>> read_bias(const json& value, const std::string& where) {
  if (!value.is_object()) return bad(where, "must be an object of token ids and numbers, as {\"13\": -100}");
  std::vector<LogitBias> biases;
  for (const auto& [key, bias] : value.items()) {
    LogitBias b;
    const auto end = std::from_chars(key.data(), key.data() + key.size(), b.token_id);
    if (key.empty() || end.ec != std::errc() || end.ptr != key.data() + key.size())
      return bad(where, "the key " + shown(key) + " must be a token id, as {\"13\": -100}");
    if (!bias.is_number())
      return bad(where, "the bias of token " + std::to_string(b.token_id) + " is " + shown(bias) +
                            "; it must be a number from -100 to 100");
    b.bias = bias.get<float>();
    biases.push_back(b);
  }
  return biases;
}

/// Chat style: "logprobs" true and "top_logprobs" K. Completion style: "logprobs" K.
Status read_logprobs(const json& row, const std::string& where, InputRow& out) {
  std::optional<int> top;
  FOVEA_RETURN_IF_ERROR(read_integer(row, "top_logprobs", where, -1, top));
  const auto it = row.find("logprobs");
  const bool is_switch = it != row.end() && it->is_boolean();
  const bool on = is_switch && it->get<bool>();
  if (top && !on) return bad(where, "\"top_logprobs\" needs \"logprobs\": true beside it");
  if (on) out.sampling.logprobs = top.value_or(0);
  out.no_logprobs = is_switch && !on;
  return is_switch ? Status{} : read_integer(row, "logprobs", where, -1, out.sampling.logprobs);
}

Status read_max_tokens(const json& row, const std::string& where, SamplingFlags& out) {
  FOVEA_RETURN_IF_ERROR(read_integer(row, "max_tokens", where, 1, out.max_tokens));
  std::optional<int> same;
  FOVEA_RETURN_IF_ERROR(read_integer(row, "max_completion_tokens", where, 1, same));
  if (same && out.max_tokens)
    return bad(where, "\"max_tokens\" and \"max_completion_tokens\" are the same; give one of them");
  if (same) out.max_tokens = same;
  return {};
}

Status read_sampling(const json& row, const std::string& where, SamplingFlags& out) {
  FOVEA_RETURN_IF_ERROR(read_number(row, "temperature", where, out.temperature));
  FOVEA_RETURN_IF_ERROR(read_number(row, "top_p", where, out.top_p));
  FOVEA_RETURN_IF_ERROR(read_number(row, "min_p", where, out.min_p));
  FOVEA_RETURN_IF_ERROR(read_integer(row, "top_k", where, -1, out.top_k));
  FOVEA_RETURN_IF_ERROR(read_number(row, "repetition_penalty", where, out.repetition_penalty));
  FOVEA_RETURN_IF_ERROR(read_number(row, "frequency_penalty", where, out.frequency_penalty));
  FOVEA_RETURN_IF_ERROR(read_number(row, "presence_penalty", where, out.presence_penalty));
  if (const auto it = row.find("logit_bias"); it != row.end() && !it->is_null()) {
    FOVEA_TRY(bias, read_bias(*it, where + ": \"logit_bias\""));
    out.logit_bias = std::move(bias);
  }
  FOVEA_RETURN_IF_ERROR(read_strings(row, "bad_words", where, out.bad_words));
  FOVEA_RETURN_IF_ERROR(read_id_list(row, "allowed_token_ids", where, out.allowed_token_ids));
  FOVEA_RETURN_IF_ERROR(read_integer<uint64_t>(row, "seed", where, 0, out.seed));
  FOVEA_RETURN_IF_ERROR(read_integer(row, "n", where, 1, out.n));
  FOVEA_RETURN_IF_ERROR(read_max_tokens(row, where, out));
  FOVEA_RETURN_IF_ERROR(read_integer(row, "min_tokens", where, 0, out.min_tokens));
  FOVEA_RETURN_IF_ERROR(read_strings(row, "stop", where, out.stop));
  FOVEA_RETURN_IF_ERROR(read_id_list(row, "stop_token_ids", where, out.stop_token_ids));
  FOVEA_RETURN_IF_ERROR(read_bool(row, "ignore_eos", where, out.ignore_eos));
  FOVEA_RETURN_IF_ERROR(read_bool(row, "skip_special_tokens", where, out.skip_special_tokens));
  FOVEA_RETURN_IF_ERROR(read_bool(row, "include_stop_str_in_output", where, out.include_stop_str_in_output));
  return read_integer(row, "prompt_logprobs", where, -1, out.prompt_logprobs);
}

/// The form of the answer, in any of the server's spellings.
Status read_form(const json& row, const std::string& line, const std::string& where, SamplingFlags& out) {
  const auto fields = openai::constraint_fields();
  if (std::ranges::none_of(fields, [&](std::string_view name) { return row.contains(name); })) return {};
  FOVEA_TRY(value, text::parse_json(line, where));  // keeps the order of properties
  openai::Fields reader(value);
  out.constraint = openai::read_constraint(reader);
  if (reader.error()) return bad(where, reader.error()->message);
  return {};
}

Status read_prompt(const json& row, const std::string& line, const std::string& where, InputRow& out) {
  int forms = 0;
  for (const std::string_view key : kPromptFields)
    forms += row.contains(key);
  if (forms != 1)
    return bad(where,
               "needs exactly one of \"prompt\", \"text\", \"input\", \"ids\", \"messages\" or \"audio\"");
  for (const char* key : {"prompt", "text", "input"})
    FOVEA_RETURN_IF_ERROR(read_string(row, key, where, out.text));
  FOVEA_RETURN_IF_ERROR(read_string(row, "audio", where, out.audio));
  FOVEA_RETURN_IF_ERROR(read_string(row, "decoder_prompt", where, out.decoder_prompt));
  for (const char* key : {"ids", "prompt_ids", "token_ids"}) {
    if (!row.contains(key)) continue;
    FOVEA_TRY(ids, read_ids(row[key], where));
    out.ids = std::move(ids);
  }
  if (!row.contains("messages")) {
    for (const std::string_view key : kChatFields)
      if (row.contains(key) && !row[key].is_null())
        return bad(where, "\"" + std::string(key) + "\" is part of a chat; give \"messages\" too");
    return {};
  }
  FOVEA_TRY(chat, read_chat(line, where));
  out.chat = std::move(chat);
  return {};
}

/// Checks the members of `object` that are not in `known` against the table of fields.
Status check_members(const json& object, const std::vector<std::string_view>& known, const std::string& where,
                     const std::string& path, std::vector<std::string>* ignored) {
  for (const auto& [key, value] : object.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    const std::string name = path + shown(key);
    if (const openai::FieldRule* rule = openai::find_rule(key)) {
      const auto given = text::parse_json(value.dump(), where);
      if (rule->kind == openai::FieldRule::Kind::refused && !(given && openai::is_off(*rule, *given)))
        return bad(where, openai::refusal(*rule, name, shown(value)));
    } else if (ignored != nullptr) {
      ignored->push_back(name);
    } else {
      std::string names;
      for (const std::string_view other : known)
        names += (names.empty() ? "known are " : ", ") + std::string(other);
      const bool near = !nearest_name(key, known).empty();
      return bad(where, openai::unknown_field(name, key, known) + (near ? "" : "; " + names) +
                            "; leave it out, or give --ignore-unknown-fields");
    }
  }
  return {};
}

Status check_fields(const json& row, const std::string& where, RowKind kind,
                    std::vector<std::string>* ignored) {
  std::vector<std::string_view> known(std::begin(kPromptFields), std::end(kPromptFields));
  known.push_back("id");
  known.insert(known.end(), std::begin(kChatFields), std::end(kChatFields));
  if (kind == RowKind::generate) {
    known.push_back("decoder_prompt");
    std::copy(std::begin(kRequestFields), std::end(kRequestFields), std::back_inserter(known));
    std::ranges::copy(openai::constraint_fields(), std::back_inserter(known));
  } else if (kind == RowKind::score) {
    known.push_back("prompt_logprobs");
  }
  FOVEA_RETURN_IF_ERROR(check_members(row, known, where, "", ignored));
  const auto messages = row.find("messages");
  if (messages == row.end() || !messages->is_array()) return {};
  const auto names = openai::message_fields();
  known.assign(names.begin(), names.end());
  for (size_t i = 0; i < messages->size(); ++i) {
    const std::string path = "messages[" + std::to_string(i) + "].";
    if ((*messages)[i].is_object())
      FOVEA_RETURN_IF_ERROR(check_members((*messages)[i], known, where, path, ignored));
  }
  return {};
}

/// Duplicate keys are ambiguous, and the JSON library keeps only one; `twice` receives such a key.
json parse_strictly(const std::string& text, std::optional<std::string>& twice) {
  std::vector<std::unordered_set<std::string>> keys;  // of the open objects
  const auto look = [&](int, json::parse_event_t event, json& value) {
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second && !twice)
      twice = value.get<std::string>();
    return true;
  };
  return json::parse(text, look, false);
}

/// The position after the string that begins at `at`, in valid JSON.
size_t string_end(std::string_view text, size_t at) {
  for (++at; text[at] != '"'; ++at)
    at += text[at] == '\\';
  return at + 1;
}

/// A member's value as spelled in a valid JSON object; the library would round long numbers and sort the
/// members of objects. "" if missing.
std::string_view raw_member(std::string_view object, std::string_view wanted) {
  constexpr std::string_view kBetween = " \t\r,:";
  size_t at = object.find('{') + 1;
  for (;;) {
    at = object.find_first_not_of(kBetween, at);
    if (object[at] == '}') return {};
    const size_t key_end = string_end(object, at);
    const bool found = json::parse(object.substr(at, key_end - at)) == wanted;
    const size_t begin = object.find_first_not_of(kBetween, key_end);
    int depth = 0;
    for (at = begin; depth > 0 || (object[at] != ',' && object[at] != '}');) {
      if (object[at] == '"') {
        at = string_end(object, at);
        continue;
      }
      depth += object[at] == '[' || object[at] == '{';
      depth -= object[at] == ']' || object[at] == '}';
      ++at;
    }
    if (found) return object.substr(begin, object.find_last_not_of(" \t\r", at - 1) + 1 - begin);
  }
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
  if (!list.is_array() || list.empty()) return messages;  // the caller of the template reports the error
  const auto& first = list[0];
  if (first.is_object() && first.contains("role") && first["role"] == "system") return messages;
  const nlohmann::ordered_json message = {{"role", "system"}, {"content", system}};
  list.insert(list.begin(), message);
  return list.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

Result<std::vector<ChatTurn>> parse_turns(const std::string& text, const std::string& where) {
  if (json_nests_deeper(text))
    return bad(where, "nested deeper than " + std::to_string(kMaxJsonDepth) + " levels");
  const auto list = nlohmann::ordered_json::parse(text, nullptr, false);
  if (!list.is_array()) return bad(where, "not a JSON list of messages");
  std::vector<ChatTurn> turns;
  for (const auto& message : list) {
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string())
      return bad(where, "message " + std::to_string(turns.size()) + R"( has no string "role")");
    const auto content = message.find("content");
    const bool is_text = content != message.end() && content->is_string();
    turns.push_back({message["role"], is_text ? content->get<std::string>() : "", message.dump()});
  }
  return turns;
}

std::string turns_json(const std::vector<ChatTurn>& turns) {
  std::string out = "[";
  for (const ChatTurn& turn : turns)
    out += (out.size() > 1 ? "," : "") + turn.json;
  return out + "]";
}

std::string json_string(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::optional<std::string> parse_json_string(std::string_view text) {
  const auto value = nlohmann::json::parse(text, nullptr, false);
  return value.is_string() ? std::optional(value.get<std::string>()) : std::nullopt;
}

bool is_json(std::string_view text) {
  return !json_nests_deeper(std::string(text)) && nlohmann::json::accept(text);
}

std::string request_fields() {
  std::string names;
  for (const std::string_view name : kRequestFields)
    names += (names.empty() ? "" : ", ") + std::string(name);
  return names;
}

Result<std::vector<std::string>> parse_string_list(const std::string& text, const std::string& what) {
  const json list = json::parse(text, nullptr, false);
  const auto is_string = [](const json& item) { return item.is_string(); };
  if (!list.is_array() || !std::all_of(list.begin(), list.end(), is_string))
    return invalid(what + " is " + shown(text) + "; allowed is a JSON list of strings, [\"a\", \"b\"]");
  return list.get<std::vector<std::string>>();
}

Result<std::vector<LogitBias>> parse_logit_bias(const std::string& text) {
  const std::string where = "--logit-bias";
  std::optional<std::string> twice;
  if (json_nests_deeper(text)) return bad(where, "must be an object of token ids and numbers");
  const json value = parse_strictly(text, twice);
  if (twice) return bad(where, "the field " + shown(*twice) + " is given twice");
  return read_bias(value, where);
}

Status parse_row(const std::string& line, const std::string& where, const RowFormat& format, InputRow& out) {
  if (json_nests_deeper(line))
    return bad(where, "nested deeper than " + std::to_string(kMaxJsonDepth) + " levels");
  std::optional<std::string> twice;
  const json row = parse_strictly(line, twice);
  if (row.is_discarded() || !row.is_object()) return bad(where, "not a JSON object");
  if (twice) return bad(where, "the field " + shown(*twice) + " is given twice");
  if (row.contains("id")) out.id_json = raw_member(line, "id");
  FOVEA_RETURN_IF_ERROR(
      check_fields(row, where, format.kind, format.ignore_unknown ? &out.ignored : nullptr));
  FOVEA_RETURN_IF_ERROR(read_prompt(row, line, where, out));
  FOVEA_RETURN_IF_ERROR(read_sampling(row, where, out.sampling));
  FOVEA_RETURN_IF_ERROR(read_form(row, line, where, out.sampling));
  FOVEA_RETURN_IF_ERROR(read_integer(row, "priority", where, std::numeric_limits<int>::min(), out.priority));
  FOVEA_RETURN_IF_ERROR(read_string(row, "lora", where, out.lora));
  return read_logprobs(row, where, out);
}

Result<RowSource> RowSource::open(const std::string& given, const RowFormat& format) {
  const std::string path = given == "-" ? "/dev/stdin" : given;
  RowSource source({});
  struct stat status = {};
  source.socket_ = given == "-" && ::fstat(STDIN_FILENO, &status) == 0 && S_ISSOCK(status.st_mode);
  int watched;
  if (source.socket_) {
    std::ios::sync_with_stdio(false);  // otherwise in_avail() ignores stdio's buffer
    watched = ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0);
  } else {
    FOVEA_TRY(file, open_input(path));
    source.file_ = std::move(file);
    // Non-blocking: the pipe's writer may have exited.
    watched = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  }
  if (watched >= 0) source.watched_.reset(::fdopen(watched, "r"));
  source.path_ = path;
  source.format_ = format;
  source.keeps_going_ = given == "-" || !source.rewind();
  return source;
}

std::string RowSource::name(const InputRow& row) const {
  return row.line ? path_ + " line " + std::to_string(row.line) : "";
}

Result<std::optional<InputRow>> RowSource::next() {
  if (path_.empty()) return at_ < rows_.size() ? std::optional(rows_[at_++]) : std::nullopt;
  std::string line;
  while (std::getline(in(), line)) {
    ++line_;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    InputRow row;
    row.line = line_;
    row.digest = Digest().add(line).value();
    Status read = parse_row(line, path_ + " line " + std::to_string(line_), format_, row);
    for (const std::string& name : row.ignored)
      if (named_.size() < kMaxNamed && named_.insert(name).second)
        std::fprintf(stderr, "warning: %s: unknown field %s is ignored\n", this->name(row).c_str(),
                     name.c_str());
    if (!read && !keeps_going_) return std::move(read).error();
    if (!read) row.refused = std::move(read).error();
    any_ = true;
    return std::optional(std::move(row));
  }
  if (in().bad()) return io_error("cannot read " + path_ + " to its end");
  if (!any_) return invalid(path_ + " has no rows; each line must be one JSON object");
  return std::optional<InputRow>();
}

std::istream& RowSource::in() {
  if (socket_) return std::cin;
  return file_;
}

bool RowSource::ready(int milliseconds) {
  if (!watched_ || in().rdbuf()->in_avail() > 0) return true;
  pollfd end = {::fileno(watched_.get()), POLLIN, 0};
  return ::poll(&end, 1, milliseconds) != 0;
}

bool RowSource::rewind() {
  at_ = 0;
  if (path_.empty()) return true;
  if (socket_) return false;
  line_ = 0;
  file_.clear();
  file_.seekg(0);
  const bool moved = !file_.fail();
  file_.clear();  // a pipe can still be read
  return moved;
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

Status refused_rows(int64_t rows) {
  if (rows == 0) return {};
  return invalid(rows == 1 ? "1 row was not answered; its line has an \"error\" that says why"
                           : std::to_string(rows) +
                                 " rows were not answered; their lines have an \"error\" that says why");
}

std::string error_row(int64_t index, const std::string& id_json, const Error& error) {
  const bool ours = error.code == ErrorCode::internal || error.code == ErrorCode::out_of_memory;
  JsonRow row;
  row.add("index", index);
  if (!id_json.empty()) row.add_raw("id", id_json);
  JsonRow what;
  what.add("message", error.message).add("type", ours ? "server_error" : "invalid_request_error");
  return row.add_raw("error", what.str()).str();
}

namespace {

std::string entry_json(const Engine& engine, const TokenLogprob& entry, const std::string* top) {
  const std::string bytes = engine.token_bytes(entry.token_id);
  JsonRow row;
  row.add("token", bytes).add("token_id", static_cast<int64_t>(entry.token_id));
  row.add_raw("logprob", number_text(std::max(entry.logprob, kExcluded))).add("rank", entry.rank);
  std::vector<int32_t> values;
  for (const char c : bytes)
    values.push_back(static_cast<unsigned char>(c));
  row.add("bytes", values);
  if (top) row.add_raw("top_logprobs", *top);
  return row.str();
}

}  // namespace

std::string logprobs_json(const Engine& engine, const TokenLogprobs& logprobs) {
  std::string top = "[";
  for (size_t i = 0; i < logprobs.top.size(); ++i)
    top += (i ? ", " : "") + entry_json(engine, logprobs.top[i], nullptr);
  top += ']';
  return entry_json(engine, logprobs.token, &top);
}

}  // namespace fovea::cli
