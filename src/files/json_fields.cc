#include "files/json_fields.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "base/json_depth.h"
#include "base/printable.h"

namespace fovea {
namespace {

constexpr int64_t kMaxTokenId = std::numeric_limits<int32_t>::max();

bool fits(const nlohmann::json& value, int64_t low, int64_t high) {
  constexpr int64_t kMaxInt64 = std::numeric_limits<int64_t>::max();
  if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(kMaxInt64)) return false;
  return value.is_number_integer() && value.get<int64_t>() >= low && value.get<int64_t>() <= high;
}

std::string short_number(double x) {
  return nlohmann::json(x).dump();
}

}  // namespace

Result<nlohmann::json> parse_json_object(std::string_view text, const std::string& file) {
  if (json_nests_deeper(text))
    return invalid(file + ": nested deeper than " + std::to_string(kMaxJsonDepth) + " levels");
  nlohmann::json root;
  size_t at = 0;
  try {
    root = nlohmann::json::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    at = error.byte;
  } catch (const nlohmann::json::exception&) {  // a number outside the range of double
    return invalid(file + ": holds a number out of range");
  }
  if (at != 0)
    return invalid(file + ": not valid JSON at byte " + std::to_string(at) +
                   (file.starts_with('-') ? "; correct it" : "; copy or download it again"));
  if (!root.is_object()) return invalid(file + ": must hold a JSON object, {...}");
  return root;
}

const nlohmann::json* Fields::find(const char* key) const {
  const auto it = object_.find(key);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

bool Fields::has(const char* key) const {
  return object_.contains(key);
}

bool Fields::is(const char* key, std::string_view text) const {
  const nlohmann::json* value = find(key);
  return value && value->is_string() && value->get_ref<const std::string&>() == text;
}

void Fields::refuse(const char* key, const std::string& help, ErrorCode code) {
  if (!status_) return;
  const nlohmann::json* value = find(key);
  const std::string text = value ? printable(value->dump(-1, ' ', true)) : has(key) ? "null" : "missing";
  status_ = Error{code, file_ + ": " + key + " is " + text + "; " + help};
}

int64_t Fields::integer(const char* key, int64_t low, int64_t high, std::optional<int64_t> fallback) {
  const nlohmann::json* value = find(key);
  if (!value && fallback) return *fallback;
  if (value && fits(*value, low, high)) return value->get<int64_t>();
  refuse(key, "an integer from " + std::to_string(low) + " to " + std::to_string(high) + " is needed");
  return low;
}

double Fields::number(const char* key, double low, double high, std::optional<double> fallback) {
  const nlohmann::json* value = find(key);
  if (!value && fallback) return *fallback;
  if (value && value->is_number()) {
    const double x = value->get<double>();
    if (x >= low && x <= high) return x;
  }
  refuse(key, "a number from " + short_number(low) + " to " + short_number(high) + " is needed");
  return low;
}

bool Fields::boolean(const char* key, bool fallback) {
  const nlohmann::json* value = find(key);
  if (!value) return fallback;
  if (value->is_boolean()) return value->get<bool>();
  refuse(key, "true or false is needed");
  return fallback;
}

std::string Fields::string(const char* key, const std::string& fallback) {
  const nlohmann::json* value = find(key);
  if (!value) return fallback;
  if (value->is_string()) return value->get<std::string>();
  refuse(key, "a string is needed");
  return fallback;
}

std::vector<int32_t> Fields::token_ids(const char* key) {
  const nlohmann::json* value = find(key);
  std::vector<int32_t> ids;
  if (!value) return ids;
  const nlohmann::json list = value->is_array() ? *value : nlohmann::json::array({*value});
  for (const nlohmann::json& id : list) {
    if (!fits(id, 0, kMaxTokenId)) {
      refuse(key, "a token id (0 or more) or a list of them is needed");
      return {};
    }
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

}  // namespace fovea
