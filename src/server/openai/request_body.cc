#include "server/openai/request_body.h"

#include <algorithm>
#include <cfloat>
#include <charconv>
#include <cmath>

#include "base/json_depth.h"
#include "fovea/result.h"
#include "server/openai/json_writer.h"

namespace fovea::openai {
namespace {

using text::Json;

constexpr size_t kMaxShown = 40;  // bytes of a value in a message
constexpr size_t kMaxPath = 160;  // bytes of a client's field path
constexpr size_t kMaxUnknown = 16, kMaxUnknownPath = 64;

/// An upper bound on the number of values: all except the first follow a comma or an opening bracket.
size_t count_values(std::string_view text) {
  size_t count = 1;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      i += c == '\\';
      in_string = c != '"';
    } else {
      in_string = c == '"';
      count += c == ',' || c == '[' || c == '{';
    }
  }
  return count;
}

/// Truncates to at most `most` bytes, at a character boundary.
std::string shortened(std::string text, size_t most = kMaxShown) {
  if (text.size() <= most) return text;
  size_t end = most;
  while (end > 0 && (static_cast<uint8_t>(text[end]) & 0xC0) == 0x80)
    --end;
  return text.substr(0, end) + "...";
}

/// A name that is safe in an error message and in a comma-separated header.
std::string printable(std::string_view name) {
  std::string out(name.substr(0, kMaxShown + 1));
  std::ranges::replace_if(out, [](char c) { return c <= 0x20 || c >= 0x7F || c == ',' || c == '"'; }, '?');
  return shortened(std::move(out));
}

std::string joined(const std::string& path, std::string_view key) {
  return path.empty() ? std::string(key) : path + "." + std::string(key);
}

/// The path of a duplicate key, anywhere below `value`.
std::optional<std::string> find_twice(const Json& value, const std::string& path) {
  if (const Json::Array* array = value.array()) {
    for (size_t i = 0; i < array->size(); ++i) {
      const Json& item = (*array)[i];
      if (!item.array() && !item.object()) continue;  // avoids building paths for a million token ids
      if (auto twice = find_twice(item, path + "[" + std::to_string(i) + "]")) return twice;
    }
  }
  const Json::Object* object = value.object();
  if (!object) return {};
  // Sorted, not hashed: a client cannot cause hash collisions.
  std::vector<std::string_view> keys;
  keys.reserve(object->size());
  for (const auto& [key, unused] : *object)
    keys.push_back(key);
  std::sort(keys.begin(), keys.end());
  if (const auto twice = std::adjacent_find(keys.begin(), keys.end()); twice != keys.end())
    return joined(path, shortened(std::string(*twice)));
  for (const auto& [key, member] : *object) {
    if (!member.array() && !member.object()) continue;
    if (auto twice = find_twice(member, joined(path, shortened(key)))) return twice;
  }
  return {};
}

}  // namespace

ApiResult<Json> parse_body(std::string_view body) {
  if (body.find_first_not_of(" \t\r\n") == std::string_view::npos)
    return bad_request("the request body is empty; it must be a JSON object");
  // The library treats a NUL as the end and would ignore what follows.
  if (const size_t at = body.find('\0'); at != std::string_view::npos)
    return bad_request("the request body: not valid JSON at byte " + std::to_string(at) + ", a NUL");
  if (json_nests_deeper(body))
    return bad_request("the request body is nested deeper than " + std::to_string(kMaxJsonDepth) + " levels");
  if (count_values(body) > kMaxJsonValues)
    return bad_request("the request body has more than " + std::to_string(kMaxJsonValues) +
                       " values; send fewer prompts at a time");
  auto parsed = text::parse_json(body, "the request body");
  if (!parsed)
    return bad_request(parsed.error().message +
                       " (JSON is UTF-8 without NaN, Infinity, numbers beyond 1.8e308 and unpaired "
                       "surrogates)");
  if (!parsed->object())
    return bad_request("the request body is " + shown(*parsed) + "; it must be a JSON object");
  if (auto twice = find_twice(*parsed, "")) {
    const std::string path = shortened(*std::move(twice), kMaxPath);
    return bad_request("the field " + path + " is given twice; give it once", path);
  }
  return *std::move(parsed);
}

std::string shown(const Json& value) {
  if (value.array()) return value.array()->empty() ? "[]" : "an array";
  if (value.object()) return "an object";
  std::string text;
  append_json(text, value);
  return shortened(std::move(text));
}

std::optional<int64_t> as_integer(const Json& value) {
  if (const int64_t* integer = value.integer()) return *integer;
  if (value.large_integer()) return {};
  constexpr double kExact = 9007199254740992;  // 2^53: above it, doubles do not represent all integers
  const double* real = value.real();
  if (!real || std::trunc(*real) != *real || std::abs(*real) > kExact) return {};
  return static_cast<int64_t>(*real);
}

ApiResult<std::vector<int32_t>> read_id_list(const Json& value, const std::string& path) {
  if (!value.array())
    return bad_request(path + " is " + shown(value) + "; it must be a list of token ids", path);
  std::vector<int32_t> ids;
  ids.reserve(value.array()->size());
  for (const Json& item : *value.array()) {
    const std::optional<int64_t> id = as_integer(item);
    if (!id || *id < 0 || *id > INT32_MAX) {
      const std::string at = path + "[" + std::to_string(ids.size()) + "]";
      return bad_request(at + " is " + shown(item) + "; it must be a token id, an integer of 0 or more", at);
    }
    ids.push_back(static_cast<int32_t>(*id));
  }
  return ids;
}

Fields::Fields(const Json& object, std::string path) : members_(object.object()), path_(std::move(path)) {
  static const Json::Object kNone;
  if (!members_ || members_->size() > kMaxFields) {
    const std::string name = path_.empty() ? "the request body" : path_;
    fail(bad_request(members_ ? name + " has " + std::to_string(members_->size()) + " fields; at most " +
                                    std::to_string(kMaxFields) + " are allowed"
                              : name + " is " + shown(object) + "; it must be an object",
                     path_));
    members_ = &kNone;
  }
  known_.resize(members_->size());
}

namespace {
thread_local LookedFor* t_looked_for = nullptr;
}

LookedFor::LookedFor() : outer_(t_looked_for) {
  t_looked_for = this;
}
LookedFor::~LookedFor() {
  t_looked_for = outer_;
}

const Json* Fields::find(std::string_view key) {
  asked_.push_back(key);
  if (t_looked_for != nullptr) t_looked_for->paths_.insert(path_of(key));
  for (size_t i = 0; i < known_.size(); ++i) {
    if ((*members_)[i].first != key) continue;
    known_[i] = true;
    return (*members_)[i].second.is_null() ? nullptr : &(*members_)[i].second;
  }
  return nullptr;
}

std::string Fields::path_of(std::string_view key) const {
  return joined(path_, key);
}

void Fields::fail(ApiError error) {
  if (!error_) error_ = std::move(error);
}

void Fields::fail(std::string_view key, std::string message) {
  fail(bad_request(std::move(message), path_of(key)));
}

void Fields::refuse(std::string_view key, const Json& value, std::string_view allowed) {
  fail(key, path_of(key) + " is " + shown(value) + "; it must be " + std::string(allowed));
}

bool Fields::read(std::string_view key, bool& out) {
  const Json* value = find(key);
  if (!value) return false;
  if (!value->boolean()) {
    refuse(key, *value, "true or false");
    return false;
  }
  out = *value->boolean();
  return true;
}

bool Fields::read(std::string_view key, float& out) {
  const Json* value = find(key);
  if (!value) return false;
  const double number = value->integer() ? static_cast<double>(*value->integer())
                        : value->real()  ? *value->real()
                                         : HUGE_VAL;
  if (!(std::abs(number) <= FLT_MAX)) {
    refuse(key, *value, "a number that fp32 can hold");
    return false;
  }
  out = static_cast<float>(number);
  return true;
}

bool Fields::read(std::string_view key, std::string& out) {
  const Json* value = find(key);
  if (!value) return false;
  if (!value->string()) {
    refuse(key, *value, "a string");
    return false;
  }
  out = *value->string();
  return true;
}

bool Fields::read(std::string_view key, int& out, int64_t low, int64_t high) {
  const Json* value = find(key);
  if (!value) return false;
  const std::optional<int64_t> integer = as_integer(*value);
  if (!integer || *integer < low || *integer > high) {
    refuse(key, *value, "an integer from " + std::to_string(low) + " to " + std::to_string(high));
    return false;
  }
  out = static_cast<int>(*integer);
  return true;
}

bool Fields::read_seed(std::string_view key, std::optional<uint64_t>& out) {
  const Json* value = find(key);
  if (!value) return false;
  if (const std::optional<int64_t> integer = as_integer(*value)) {
    out = static_cast<uint64_t>(*integer);
    return true;
  }
  if (const Json::LargeInteger* large = value->large_integer()) {
    uint64_t seed = 0;
    const char* end = large->digits.data() + large->digits.size();
    if (const auto got = std::from_chars(large->digits.data(), end, seed);
        got.ec == std::errc() && got.ptr == end) {
      out = seed;
      return true;
    }
  }
  refuse(key, *value, "an integer of 64 bits");
  return false;
}

bool Fields::read_strings(std::string_view key, std::vector<std::string>& out, size_t most) {
  const Json* value = find(key);
  if (!value) return false;
  if (!value->array()) {
    refuse(key, *value, "a list of strings");
    return false;
  }
  if (value->array()->size() > most) {
    fail(key, path_of(key) + " has " + std::to_string(value->array()->size()) + " strings; at most " +
                  std::to_string(most) + " are allowed");
    return false;
  }
  out.clear();
  for (const Json& item : *value->array()) {
    if (!item.string()) {
      refuse(std::string(key) + "[" + std::to_string(out.size()) + "]", item, "a string");
      return false;
    }
    out.push_back(*item.string());
  }
  return true;
}

bool Fields::read_string_or_strings(std::string_view key, std::vector<std::string>& out, size_t most) {
  const Json* value = find(key);
  if (value && value->string()) {
    out = {*value->string()};
    return true;
  }
  if (!value || value->array()) return read_strings(key, out, most);
  refuse(key, *value, "a string or a list of strings");
  return false;
}

bool Fields::read_ids(std::string_view key, std::vector<int32_t>& out) {
  const Json* value = find(key);
  if (!value) return false;
  auto ids = read_id_list(*value, path_of(key));
  if (!ids) {
    fail(ids.error());
    return false;
  }
  out = *std::move(ids);
  return true;
}

void Fields::close(bool with_table) {
  for (size_t i = 0; i < known_.size(); ++i) {
    if (known_[i]) continue;
    const auto& [key, value] = (*members_)[i];
    if (const FieldRule* rule = with_table ? find_rule(key) : nullptr) {
      if (rule->kind == FieldRule::Kind::refused && !is_off(*rule, value))
        fail(bad_request(refusal(*rule, path_of(key), shown(value)), path_of(key), "unsupported_parameter"));
      continue;
    }
    std::string path = shortened(joined(path_, printable(key)), kMaxUnknownPath);
    if (!first_unknown_)
      first_unknown_ = bad_request(unknown_field(path, key.size() <= kMaxShown ? key : "", asked_) +
                                       "; leave it out, or start the server with --ignore-unknown-fields",
                                   path, "unknown_parameter");
    if (unknown_.size() < kMaxUnknown) unknown_.push_back(std::move(path));
  }
}

void Fields::ignore(std::string path) {
  if (unknown_.size() < kMaxUnknown) unknown_.push_back(std::move(path));
}

void Fields::join(const Fields& nested) {
  if (nested.error_) fail(*nested.error_);
  if (!first_unknown_) first_unknown_ = nested.first_unknown_;
  for (const std::string& path : nested.unknown_)
    if (unknown_.size() < kMaxUnknown) unknown_.push_back(path);
}

std::optional<ApiError> Fields::outcome(UnknownFields unknown) const {
  return first_unknown_ && unknown == UnknownFields::refused ? first_unknown_ : error_;
}

}  // namespace fovea::openai
