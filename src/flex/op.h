#pragma once
// The operations and types of expressions, and the arrays that they read. No heavy headers: kernels include
// it.
#include <cstdint>

namespace fovea::flex {

/// int is 32 bits in two's complement and wraps; real is fp32 in kernels and fp64 in evaluate().
enum class Type : uint8_t { boolean, integer, real };

/// X(name, operands). Leaves: a literal has Node::value; a variable's Node::index is a Variable. read1 and
/// read2 read buffer Node::index at a, or at row a and column b, clamped. to_integer truncates, saturates,
/// and gives 0 for NaN. floor_divide and modulo round down, as in Python, and give 0 for a divisor of 0.
/// Shifts use the low five bits of b; the right shift is signed. minimum is b < a ? b : a, maximum a < b ? b
/// : a, select a ? b : c.
#define FOVEA_FLEX_OPS(X) \
  X(literal, 0)           \
  X(variable, 0)          \
  X(read1, 1)             \
  X(read2, 2)             \
  X(to_integer, 1)        \
  X(to_real, 1)           \
  X(negate, 1)            \
  X(bit_not, 1)           \
  X(logical_not, 1)       \
  X(absolute, 1)          \
  X(exp2, 1)              \
  X(log2, 1)              \
  X(tanh, 1)              \
  X(sqrt, 1)              \
  X(add, 2)               \
  X(subtract, 2)          \
  X(multiply, 2)          \
  X(divide, 2)            \
  X(floor_divide, 2)      \
  X(modulo, 2)            \
  X(shift_left, 2)        \
  X(shift_right, 2)       \
  X(bit_and, 2)           \
  X(bit_or, 2)            \
  X(bit_xor, 2)           \
  X(minimum, 2)           \
  X(maximum, 2)           \
  X(less, 2)              \
  X(less_equal, 2)        \
  X(equal, 2)             \
  X(not_equal, 2)         \
  X(logical_and, 2)       \
  X(logical_or, 2)        \
  X(select, 3)

enum class Op : uint8_t {
#define X(name, operands) name,
  FOVEA_FLEX_OPS(X)
#undef X
};

/// A buffer's contents: rows x columns elements (1-D: one row), rows `stride` elements apart. integer: int32,
/// real: fp32, boolean: bytes, not 0 = true.
struct Buffer {
  const void* data = nullptr;
  int32_t rows = 1, columns = 0;  ///< at least 1 each
  int64_t stride = 0;
};

}  // namespace fovea::flex
