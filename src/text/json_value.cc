#include "text/json_value.h"

#include <nlohmann/json.hpp>

#include "fovea/result.h"

namespace fovea::text {
namespace {

constexpr size_t kMaxDepth = 100;

// Builds the tree from nlohmann's events; every callback returns whether to continue.
class TreeBuilder {
 public:
  using number_integer_t = nlohmann::json::number_integer_t;
  using number_unsigned_t = nlohmann::json::number_unsigned_t;
  using number_float_t = nlohmann::json::number_float_t;
  using string_t = nlohmann::json::string_t;
  using binary_t = nlohmann::json::binary_t;

  bool null() { return slot() != nullptr; }
  bool boolean(bool value) { return put(value); }
  bool number_integer(number_integer_t value) { return put(static_cast<int64_t>(value)); }
  bool number_unsigned(number_unsigned_t value) {
    if (value > static_cast<uint64_t>(INT64_MAX))
      return put(Json::LargeInteger{static_cast<double>(value), std::to_string(value)});
    return put(static_cast<int64_t>(value));
  }
  bool number_float(number_float_t value, const string_t& text) {
    const bool integer = text.find_first_of(".eE") == std::string::npos;
    return integer ? put(Json::LargeInteger{value, text}) : put(value);
  }
  bool string(string_t& value) { return put(std::move(value)); }
  bool binary(binary_t&) { return false; }
  bool start_object(size_t) { return open(Json::Object{}); }
  bool key(string_t& name) {
    open_.back()->object()->emplace_back().first = std::move(name);
    return true;
  }
  bool end_object() { return close(); }
  bool start_array(size_t) { return open(Json::Array{}); }
  bool end_array() { return close(); }
  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception&) {
    error_ = "not valid JSON at byte " + std::to_string(position);
    return false;
  }

  Json take() { return std::move(root_); }
  const std::string& error() const { return error_; }

 private:
  // The slot of the next value. Pointers to open containers stay valid: only the innermost one grows.
  Json* slot() {
    if (open_.empty()) return &root_;
    if (Json::Array* array = open_.back()->array()) return &array->emplace_back();
    return &open_.back()->object()->back().second;
  }
  template <class T>
  bool put(T value) {
    slot()->set(std::move(value));
    return true;
  }
  template <class T>
  bool open(T container) {
    if (open_.size() == kMaxDepth) {
      error_ = "nested deeper than " + std::to_string(kMaxDepth) + " levels";
      return false;
    }
    Json* place = slot();
    place->set(std::move(container));
    open_.push_back(place);
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  Json root_;
  std::vector<Json*> open_;
  std::string error_;
};

Error wrong_type(const Json& value, std::string_view path, std::string_view key, std::string_view wanted) {
  return invalid(std::string(path) + "." + std::string(key) + " is " + value.describe() + "; " +
                 std::string(wanted) + " is needed");
}

}  // namespace

const Json* Json::find(std::string_view key) const {
  const Object* members = object();
  if (!members) return nullptr;
  for (auto it = members->rbegin(); it != members->rend(); ++it) {
    if (it->first == key) return &it->second;
  }
  return nullptr;
}

std::string Json::describe() const {
  if (is_null()) return "null";
  if (boolean()) return *boolean() ? "true" : "false";
  if (integer()) return std::to_string(*integer());
  if (real()) return std::to_string(*real());
  if (array()) return "[...]";
  if (object()) return "{...}";
  std::string text = "\"";
  for (const char c : string()->substr(0, 56))
    text += static_cast<uint8_t>(c) < 0x20 ? '?' : c;
  // A cut must not leave a partial character.
  while (string()->size() > 56 && (static_cast<uint8_t>(text.back()) & 0xC0) == 0x80)
    text.pop_back();
  if (string()->size() > 56 && static_cast<uint8_t>(text.back()) >= 0xC0) text.pop_back();
  return text + (string()->size() > 56 ? "...\"" : "\"");
}

Result<Json> parse_json(std::string_view text, std::string_view what) {
  TreeBuilder builder;
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &builder)) {
    return invalid(std::string(what) + ": " +
                   (builder.error().empty() ? std::string("not valid JSON") : builder.error()));
  }
  return builder.take();
}

Result<bool> bool_field(const Json& object, std::string_view path, std::string_view key, bool fallback) {
  const Json* value = object.find(key);
  if (!value || value->is_null()) return fallback;
  if (!value->boolean()) return wrong_type(*value, path, key, "true or false");
  return *value->boolean();
}

Result<std::string> string_field(const Json& object, std::string_view path, std::string_view key,
                                 std::string_view fallback) {
  const Json* value = object.find(key);
  if (!value || value->is_null()) return std::string(fallback);
  if (!value->string()) return wrong_type(*value, path, key, "a string");
  return *value->string();
}

}  // namespace fovea::text
