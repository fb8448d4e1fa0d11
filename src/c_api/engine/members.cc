#include "c_api/engine/members.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/edit_distance.h"
#include "base/json_depth.h"
#include "base/printable.h"

namespace fovea::c_api {
namespace {

using nlohmann::json;

constexpr size_t kMaxBytes = size_t{64} << 20;  // of one JSON text

std::string value_text(const json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return value.empty() ? "[]" : "a list";
  return printable(value.dump(-1, ' ', false, json::error_handler_t::replace));
}

}  // namespace

Result<Members> Members::parse(const char* text, std::string what) {
  if (text == nullptr) return Members(json::object(), std::move(what));
  const std::string_view given = text;
  if (given.size() > kMaxBytes)
    return invalid(what + ": " + std::to_string(given.size()) + " bytes; at most " +
                   std::to_string(kMaxBytes) + " are read");
  if (json_nests_deeper(given))
    return invalid(what + ": nested deeper than " + std::to_string(kMaxJsonDepth) + " levels");
  std::vector<std::vector<std::string>> seen;
  std::string twice;
  const json::parser_callback_t watch = [&](int, json::parse_event_t event, json& value) {
    if (event == json::parse_event_t::object_start) seen.emplace_back();
    if (event == json::parse_event_t::object_end) seen.pop_back();
    if (event == json::parse_event_t::key && seen.size() == 1) {
      const auto& key = value.get_ref<const std::string&>();
      if (std::ranges::find(seen.back(), key) != seen.back().end()) twice = key;
      seen.back().push_back(key);
    }
    return true;
  };
  json object;
  try {
    object = json::parse(given, watch);
  } catch (const json::parse_error& error) {
    return invalid(what + ": not valid JSON at byte " + std::to_string(error.byte));
  } catch (const json::exception&) {
    return invalid(what + ": holds a number out of range");
  }
  if (!object.is_object()) return invalid(what + " is " + value_text(object) + "; it must be a JSON object");
  if (!twice.empty()) return invalid(what + ": " + printable(twice) + " is given twice; give it once");
  return Members(std::move(object), std::move(what));
}

const json* Members::find(const char* key) {
  known_.emplace_back(key);
  const auto it = object_.find(key);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

bool Members::is_null(const char* key) {
  known_.emplace_back(key);
  const auto it = object_.find(key);
  return it != object_.end() && it->is_null();
}

void Members::fail(Error error) {
  if (!status_) return;
  error.message = what_ + ": " + error.message;
  status_ = std::move(error);
}

void Members::refuse(const char* key, std::string_view allowed) {
  fail(invalid(std::string(key) + " is " + value_text(object_.at(key)) + "; it must be " +
               std::string(allowed)));
}

void Members::read(const char* key, bool& out) {
  const json* value = find(key);
  if (value == nullptr) return;
  if (value->is_boolean())
    out = value->get<bool>();
  else
    refuse(key, "true or false");
}

void Members::read(const char* key, std::optional<bool>& out) {
  bool value = false;
  read(key, value);
  if (object_.contains(key) && object_.at(key).is_boolean()) out = value;
}

void Members::read(const char* key, std::string& out) {
  const json* value = find(key);
  if (value == nullptr) return;
  if (!value->is_string()) return refuse(key, "a string");
  const auto& text = value->get_ref<const std::string&>();
  if (text.find('\0') != std::string::npos) return refuse(key, "a string without NUL");
  out = text;
}

void Members::read(const char* key, float& out) {
  const json* value = find(key);
  if (value == nullptr) return;
  if (!value->is_number()) return refuse(key, "a number");
  const double number = value->get<double>();
  if (std::abs(number) > static_cast<double>(std::numeric_limits<float>::max()))
    return refuse(key, "a number that a 32-bit float can hold");
  out = static_cast<float>(number);
}

void Members::read(const char* key, double& out, double low, double high) {
  const json* value = find(key);
  if (value == nullptr) return;
  if (value->is_number() && value->get<double>() >= low && value->get<double>() <= high)
    out = value->get<double>();
  else
    refuse(key, "a number from " + json(low).dump() + " to " + json(high).dump());
}

std::optional<int64_t> Members::integer(const char* key, int64_t low, int64_t high) {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  const bool fits = value->is_number_integer() &&
                    !(value->is_number_unsigned() && value->get<uint64_t>() > uint64_t{INT64_MAX}) &&
                    value->get<int64_t>() >= low && value->get<int64_t>() <= high;
  if (fits) return value->get<int64_t>();
  refuse(key, "an integer from " + std::to_string(low) + " to " + std::to_string(high));
  return std::nullopt;
}

void Members::read(const char* key, int& out, int64_t low, int64_t high) {
  if (const auto value = integer(key, low, high)) out = static_cast<int>(*value);
}

void Members::read(const char* key, std::optional<int>& out, int64_t low, int64_t high) {
  if (const auto value = integer(key, low, high)) out = static_cast<int>(*value);
}

void Members::read(const char* key, std::optional<int64_t>& out, int64_t low, int64_t high) {
  if (auto value = integer(key, low, high)) out = value;
}

void Members::read_seed(const char* key, uint64_t& out) {
  const json* value = find(key);
  if (value == nullptr) return;
  if (value->is_number_unsigned())
    out = value->get<uint64_t>();
  else if (value->is_number_integer())
    out = static_cast<uint64_t>(value->get<int64_t>());
  else
    refuse(key, "an integer of 64 bits");
}

void Members::read_strings(const char* key, std::vector<std::string>& out, bool one_too) {
  const json* value = find(key);
  if (value == nullptr) return;
  if (one_too && value->is_string()) {
    out = {value->get<std::string>()};
    return;
  }
  if (!value->is_array() || !std::ranges::all_of(*value, [](const json& item) { return item.is_string(); }))
    return refuse(key, one_too ? "a string or a list of strings" : "a list of strings");
  out = value->get<std::vector<std::string>>();
}

bool Members::read_ids(const char* key, std::vector<int32_t>& out) {
  const json* value = find(key);
  if (value == nullptr) return false;
  const auto fits = [](const json& item) {
    return item.is_number_integer() &&
           !(item.is_number_unsigned() && item.get<uint64_t>() > uint64_t{INT32_MAX}) &&
           item.get<int64_t>() >= INT32_MIN && item.get<int64_t>() <= INT32_MAX;
  };
  if (!value->is_array() || !std::ranges::all_of(*value, fits)) {
    refuse(key, "a list of token ids");
    return false;
  }
  out = value->get<std::vector<int32_t>>();
  return true;
}

Status Members::close() const {
  if (!status_) return status_;
  for (const auto& [key, value] : object_.items()) {
    if (std::ranges::find(known_, key) != known_.end()) continue;
    std::string message = what_ + ": unknown key \"" + printable(key) + "\"";
    if (const std::string_view near = nearest_name(key, known_); !near.empty())
      message += "; did you mean \"" + std::string(near) + "\"?";
    message += "; allowed are ";
    std::vector<std::string_view> sorted = known_;
    std::ranges::sort(sorted);
    sorted.erase(std::ranges::unique(sorted).begin(), sorted.end());
    for (size_t i = 0; i < sorted.size(); ++i)
      message += (i ? ", " : "") + std::string(sorted[i]);
    return invalid(std::move(message));
  }
  return {};
}

}  // namespace fovea::c_api
