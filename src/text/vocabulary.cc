#include "text/vocabulary.h"

#include <algorithm>

namespace fovea::text {

Result<int32_t> parse_token_id(const Json& value, const std::string& path) {
  const int64_t* id = value.integer();
  if (!id || *id < 0 || *id > Vocabulary::kMaxId) {
    return invalid(path + " is " + value.describe() + "; an integer from 0 to " +
                   std::to_string(Vocabulary::kMaxId) + " is needed");
  }
  return static_cast<int32_t>(*id);
}

Result<Vocabulary> Vocabulary::parse(const Json& vocab, std::string_view path) {
  const Json::Object* entries = vocab.object();
  if (!entries) return invalid(std::string(path) + " must be an object of token: id");
  if (entries->empty()) return invalid(std::string(path) + " is empty");
  Vocabulary out;
  size_t bytes = 0;
  int32_t largest = 0;
  for (const auto& [token, value] : *entries) {
    const int64_t* id = value.integer();
    if (!id || *id < 0 || *id > kMaxId) {
      return parse_token_id(value, std::string(path) + "." + Json(token).describe()).error();
    }
    bytes += token.size();
    largest = std::max(largest, static_cast<int32_t>(*id));
  }
  // One spare byte, so that data() of an empty token is not null.
  out.storage_.resize(bytes + 1);
  out.tokens_.resize(static_cast<size_t>(largest) + 1);
  out.ids_.reserve(entries->size());
  char* next = out.storage_.data();
  for (const auto& [token, value] : *entries) {
    const auto id = static_cast<int32_t>(*value.integer());
    std::string_view& slot = out.tokens_[static_cast<size_t>(id)];
    if (slot.data()) {
      return invalid(std::string(path) + ": " + Json(token).describe() + " and " +
                     Json(std::string(slot)).describe() + " both have id " + std::to_string(id));
    }
    slot = {next, token.size()};
    next = std::copy(token.begin(), token.end(), next);
    if (!out.ids_.emplace(slot, id).second) {
      return invalid(std::string(path) + ": token " + Json(token).describe() + " appears twice");
    }
  }
  return out;
}

}  // namespace fovea::text
