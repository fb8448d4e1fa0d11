#include "server/api_keys.h"

#include <algorithm>

#include "server/text.h"

namespace fovea::server {
Result<ApiKeys> ApiKeys::create(const std::vector<std::string>& keys) {
  ApiKeys out;
  for (const std::string& key : keys) {
    const bool printable = std::ranges::all_of(key, [](char c) { return c > ' ' && c < '\x7f'; });
    if (key.empty() || key.size() > kLongest || !printable)  // never the key itself: it would be in a log
      return invalid("an API key has " + std::to_string(key.size()) + " bytes; allowed are 1 to " +
                     std::to_string(kLongest) + " printable ASCII characters without spaces");
    out.keys_.push_back(pad(key));
  }
  return out;
}

ApiKeys::Padded ApiKeys::pad(std::string_view key) {
  Padded padded;
  padded.length = key.size();
  std::ranges::copy(key.substr(0, kLongest), padded.bytes.begin());
  return padded;
}

bool ApiKeys::has(std::string_view key) const {
  const Padded given = pad(key);
  bool found = false;
  for (const Padded& known : keys_) {
    // volatile: the compiler may not leave the loop at the first difference.
    volatile uint8_t difference = 0;
    for (size_t i = 0; i < kLongest; ++i)
      difference = static_cast<uint8_t>(difference | (given.bytes[i] ^ known.bytes[i]));
    found |= (difference == 0) & (given.length == known.length);
  }
  return found;
}

bool ApiKeys::allows(std::string_view authorization) const {
  if (open()) return true;
  const size_t space = authorization.find(' ');
  if (space == std::string_view::npos) return false;
  return same_letters(authorization.substr(0, space), "bearer") && has(trimmed(authorization.substr(space)));
}

}  // namespace fovea::server
