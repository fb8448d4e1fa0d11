#pragma once
// Drops rows without wanted logits after the last attention.
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <span>

#include "base/check.h"

namespace fovea {

/// A matrix [rows, width], contiguous.
struct RowMatrix {
  float* data;
  int64_t width;
};

/// Moves rows `kept` (strictly ascending, below `rows`) of each matrix to its front, in order; returns their
/// number.
inline int64_t keep_rows(std::span<const int32_t> kept, int64_t rows,
                         std::initializer_list<RowMatrix> matrices) {
  int64_t to = 0;
  for (const int32_t from : kept) {
    FOVEA_CHECK(from >= to && from < rows);  // rows only move towards the front
    if (from != to)
      for (const RowMatrix& m : matrices)
        std::memcpy(m.data + to * m.width, m.data + from * m.width,
                    static_cast<size_t>(m.width) * sizeof(float));
    ++to;
  }
  return to;
}

}  // namespace fovea
