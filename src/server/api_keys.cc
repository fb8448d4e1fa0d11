#include "server/api_keys.h"

#include <algorithm>

#include "fovea/result.h"
#include "server/text.h"

namespace fovea::server {
Result<ApiKeys> ApiKeys::create(const std::vector<std::string>& keys) {
  ApiKeys out;
  for (const std::string& key : keys) {
    const bool printable = std::ranges::all_of(key, [](char c) { return c > ' ' && c < '\x7f'; });
    if (key.empty() || key.size() > kLongest || !printable)  // errors may be logged: omit the key
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

size_t ApiKeys::index_of(std::string_view key) const {
  const Padded given = pad(key);
  size_t found = kNone;
  for (size_t k = 0; k < keys_.size(); ++k) {
    // volatile: the compiler may not leave the loop at the first difference.
    volatile uint8_t difference = 0;
    for (size_t i = 0; i < kLongest; ++i)
      difference = static_cast<uint8_t>(difference | (given.bytes[i] ^ keys_[k].bytes[i]));
    // kNone has all bits set: `&` with a mask selects the index without a branch.
    const size_t same = size_t{difference == 0} & size_t{given.length == keys_[k].length};
    const size_t mask = size_t{0} - same;
    found = (found & ~mask) | (k & mask);
  }
  return found;
}

size_t ApiKeys::find(std::string_view authorization) const {
  const size_t space = authorization.find(' ');
  if (space == std::string_view::npos || !same_letters(authorization.substr(0, space), "bearer"))
    return kNone;
  return index_of(trimmed(authorization.substr(space)));
}

}  // namespace fovea::server
