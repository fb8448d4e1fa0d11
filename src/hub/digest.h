#pragma once
// SHA-1 and SHA-256 (FIPS 180-4), by which the hub names files.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "fovea/result_fwd.h"

namespace fovea::hub {

class Digest {
 public:
  enum class Kind : uint8_t { sha1, sha256 };
  explicit Digest(Kind kind);
  void add(std::string_view bytes);
  /// In hexadecimal. Call once.
  std::string hex();

 private:
  void block(const uint8_t* bytes);

  Kind kind_;
  uint32_t state_[8];
  uint64_t size_ = 0;
  uint8_t rest_[64];
};

/// The SHA-256 of a file, or with `as_git` the SHA-1 of it as a blob of git.
Result<std::string> file_digest(const std::string& path, bool as_git);

}  // namespace fovea::hub
