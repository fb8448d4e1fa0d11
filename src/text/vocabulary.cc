#include "text/vocabulary.h"

#include <algorithm>
#include <charconv>

#include "fovea/result.h"
#include "text/utf8.h"

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
  std::vector<Entry> list;
  list.reserve(entries->size());
  for (const auto& [token, value] : *entries) {
    const int64_t* id = value.integer();
    if (!id || *id < 0 || *id > kMaxId) {
      return parse_token_id(value, std::string(path) + "." + Json(token).describe()).error();
    }
    list.push_back({token, static_cast<int32_t>(*id)});
  }
  return build(list, path);
}

Result<Vocabulary> Vocabulary::build(const std::vector<Entry>& entries, std::string_view path) {
  Vocabulary out;
  size_t bytes = 0;
  int32_t largest = -1;
  for (const Entry& entry : entries) {
    bytes += entry.token.size();
    largest = std::max(largest, entry.id);
  }
  // One spare byte, so that data() of an empty token is not null.
  out.storage_.resize(bytes + 1);
  out.tokens_.resize(static_cast<size_t>(largest) + 1);
  out.ids_.reserve(entries.size());
  char* next = out.storage_.data();
  for (const auto& [token, id] : entries) {
    std::string_view& slot = out.tokens_[static_cast<size_t>(id)];
    if (slot.data()) {
      return invalid(std::string(path) + ": " + Json(std::string(token)).describe() + " and " +
                     Json(std::string(slot)).describe() + " both have id " + std::to_string(id));
    }
    slot = {next, token.size()};
    next = std::copy(token.begin(), token.end(), next);
    if (!out.ids_.emplace(slot, id).second) {
      return invalid(std::string(path) + ": token " + Json(std::string(token)).describe() + " appears twice");
    }
  }
  return out;
}

size_t Vocabulary::longest(bool in_characters) const {
  size_t longest = 0;
  for (const std::string_view token : tokens_)
    longest = std::max(longest, in_characters ? count_code_points(token) : token.size());
  return longest;
}

std::array<int32_t, 256> Vocabulary::byte_token_ids() const {
  constexpr char kHex[] = "0123456789ABCDEF";
  std::array<int32_t, 256> out;
  for (size_t byte = 0; byte < out.size(); ++byte) {
    const char spelling[] = {'<', '0', 'x', kHex[byte >> 4], kHex[byte & 15], '>'};
    out[byte] = find({spelling, sizeof spelling}).value_or(-1);
  }
  return out;
}

std::optional<uint8_t> byte_of_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  uint8_t value = 0;
  const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, value, 16);
  if (error != std::errc() || end != token.data() + 5) return std::nullopt;
  return value;
}

}  // namespace fovea::text
