#pragma once
// Client API keys, compared in constant time.
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/result_fwd.h"

namespace fovea::server {

class ApiKeys {
 public:
  /// The longest key, in bytes.
  static constexpr size_t kLongest = 256;

  /// Keys of 1 to kLongest printable ASCII characters without spaces; others could not be sent in a header.
  static Result<ApiKeys> create(const std::vector<std::string>& keys);

  /// No keys are configured: every client is allowed.
  bool open() const { return keys_.empty(); }
  /// `authorization`: the header's value, "Bearer KEY". Always compares all bytes of every key.
  bool allows(std::string_view authorization) const { return open() || find(authorization) != kNone; }
  /// The index of the key, from 0; kNone = no match.
  size_t find(std::string_view authorization) const;
  static constexpr size_t kNone = static_cast<size_t>(-1);

 private:
  struct Padded {
    std::array<uint8_t, kLongest> bytes = {};
    size_t length = 0;
  };
  static Padded pad(std::string_view key);
  size_t index_of(std::string_view key) const;

  std::vector<Padded> keys_;
};

}  // namespace fovea::server
