#pragma once
// Source-tree files embedded in a program: cmake/FoveaEmbed.cmake defines `embedded_files()` in the given
// namespace.
#include <cstddef>
#include <span>
#include <string_view>

namespace fovea {

struct EmbeddedFile {
  std::string_view name;    ///< without folders
  std::string_view text;    ///< its bytes
  std::string_view sha256;  ///< 64 hexadecimal digits
};

}  // namespace fovea
