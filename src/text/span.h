#pragma once
#include <cstddef>

namespace fovea::text {

/// Bytes [begin, end) of a text.
struct Span {
  size_t begin = 0;
  size_t end = 0;
  size_t size() const { return end - begin; }
  bool operator==(const Span&) const = default;
};

}  // namespace fovea::text
