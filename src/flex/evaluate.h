#pragma once
// The value of an expression for one (query, key), by definition: what kernels are tested against.
#include <cstdint>
#include <span>
#include <vector>

#include "flex/tree.h"

namespace fovea::flex {

/// Element (row, column) with both indices clamped to the buffer.
double read(const Buffer& buffer, Type element, int64_t row, int64_t column);

/// The variables' values.
struct Point {
  int32_t b = 0, h = 0, q = 0, k = 0, qlen = 0, klen = 0;
  double score = 0;
};

/// The value of one operation on operands in fp64 (`Real` double) or fp32; integers and booleans are exact in
/// both. Not for literals, variables and reads.
template <class Real>
double apply(Op op, Type operand_type, double a, double b, double c);

/// The tree's value; a boolean is 0 or 1. Buffers in the order of the types that the tree was parsed with.
template <class Real>
double evaluate(const Tree& tree, std::span<const BufferType> types, std::span<const Buffer> buffers,
                const Point& point);

}  // namespace fovea::flex
