#pragma once
// Files of the source tree that a program carries: cmake/FoveaEmbed.cmake defines `embedded_files()` in the
// namespace that it is given.
#include <cstddef>
#include <span>
#include <string_view>

namespace fovea {

struct EmbeddedFile {
  std::string_view name;    ///< without folders
  std::string_view text;    ///< its bytes
  std::string_view sha256;  ///< of the bytes, 64 hexadecimal digits
};

}  // namespace fovea
