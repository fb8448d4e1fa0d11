#pragma once
// Operations of a tree on strips. Plain loops, which compilers vectorise, except for transcendental
// functions.
#include "flex/cpu_kernels.h"
#include "kernels/cpu/simd.h"

namespace fovea::FOVEA_SIMD_NAMESPACE {

using flex::Buffer;
using flex::kStrip;
using flex::Op;
using flex::StripOp;
using flex::Type;

/// 2^x, about 2 ulp: x = n + r with |r| <= 1/2.
FOVEA_INLINE Vec exp2(Vec x) {
  const Vec n = round(max(set1(-150.0f), min(set1(129.0f), x)));
  return select_less(x, set1(-150.0f), zero(), scale2(exp((x - n) * set1(0.693147180559945309f)), n));
}

template <class F>
FOVEA_INLINE void map_vectors(const float* a, float* to, F f) {
  for (int i = 0; i < kStrip; i += Vec::kLanes)
    store(to + i, f(load(a + i)));
}

template <class To, class A, class F>
FOVEA_INLINE void map(const A* __restrict a, To* __restrict to, F f) {
  for (int i = 0; i < kStrip; ++i)
    to[i] = f(a[i]);
}
template <class To, class A, class F>
FOVEA_INLINE void map(const A* __restrict a, const A* __restrict b, To* __restrict to, F f) {
  for (int i = 0; i < kStrip; ++i)
    to[i] = f(a[i], b[i]);
}

FOVEA_INLINE int32_t wrapped(uint32_t x) {
  return static_cast<int32_t>(x);
}
FOVEA_INLINE uint32_t bits(int32_t x) {
  return static_cast<uint32_t>(x);
}
/// The quotient of 32-bit integers, rounded down; in doubles, whose quotient rounds to no other integer.
FOVEA_INLINE int64_t floor_quotient(int32_t a, int32_t b) {
  return static_cast<int64_t>(__builtin_floor(static_cast<double>(a) / static_cast<double>(b)));
}
FOVEA_INLINE int32_t truncate(float x) {
  if (x != x) return 0;
  if (x >= 2147483648.0f) return INT32_MAX;
  return x < -2147483648.0f ? INT32_MIN : static_cast<int32_t>(x);
}

FOVEA_INLINE void run_integer(Op op, const int32_t* a, const int32_t* b, int32_t* to) {
  switch (op) {
    case Op::negate: return map(a, to, [](int32_t x) { return wrapped(0u - bits(x)); });
    case Op::bit_not: return map(a, to, [](int32_t x) { return ~x; });
    case Op::absolute: return map(a, to, [](int32_t x) { return x < 0 ? wrapped(0u - bits(x)) : x; });
    case Op::add: return map(a, b, to, [](int32_t x, int32_t y) { return wrapped(bits(x) + bits(y)); });
    case Op::subtract: return map(a, b, to, [](int32_t x, int32_t y) { return wrapped(bits(x) - bits(y)); });
    case Op::multiply: return map(a, b, to, [](int32_t x, int32_t y) { return wrapped(bits(x) * bits(y)); });
    case Op::floor_divide:
      return map(a, b, to, [](int32_t x, int32_t y) {
        return y == 0 ? 0 : wrapped(static_cast<uint32_t>(floor_quotient(x, y)));
      });
    case Op::modulo:
      return map(a, b, to, [](int32_t x, int32_t y) {
        return y == 0 ? 0 : wrapped(bits(x) - static_cast<uint32_t>(floor_quotient(x, y)) * bits(y));
      });
    case Op::shift_left:
      return map(a, b, to, [](int32_t x, int32_t y) { return wrapped(bits(x) << (y & 31)); });
    case Op::shift_right: return map(a, b, to, [](int32_t x, int32_t y) { return x >> (y & 31); });
    case Op::logical_and:
    case Op::bit_and: return map(a, b, to, [](int32_t x, int32_t y) { return x & y; });
    case Op::logical_or:
    case Op::bit_or: return map(a, b, to, [](int32_t x, int32_t y) { return x | y; });
    case Op::bit_xor: return map(a, b, to, [](int32_t x, int32_t y) { return x ^ y; });
    case Op::minimum: return map(a, b, to, [](int32_t x, int32_t y) { return y < x ? y : x; });
    case Op::maximum: return map(a, b, to, [](int32_t x, int32_t y) { return x < y ? y : x; });
    case Op::less: return map(a, b, to, [](int32_t x, int32_t y) { return x < y ? 1 : 0; });
    case Op::less_equal: return map(a, b, to, [](int32_t x, int32_t y) { return x <= y ? 1 : 0; });
    case Op::equal: return map(a, b, to, [](int32_t x, int32_t y) { return x == y ? 1 : 0; });
    case Op::not_equal: return map(a, b, to, [](int32_t x, int32_t y) { return x != y ? 1 : 0; });
    case Op::logical_not: return map(a, to, [](int32_t x) { return x ^ 1; });
    case Op::to_integer: return map(a, to, [](int32_t x) { return x; });
    default: return;
  }
}

FOVEA_INLINE void run_real(Op op, const float* a, const float* b, float* to) {
  switch (op) {
    case Op::negate: return map(a, to, [](float x) { return -x; });
    case Op::absolute: return map(a, to, [](float x) { return __builtin_fabsf(x); });
    case Op::exp2: return map_vectors(a, to, [](Vec x) { return exp2(x); });
    case Op::tanh: return map_vectors(a, to, [](Vec x) { return tanh(x); });
    case Op::log2: return map(a, to, [](float x) { return __builtin_log2f(x); });
    case Op::sqrt: return map(a, to, [](float x) { return __builtin_sqrtf(x); });
    case Op::add: return map(a, b, to, [](float x, float y) { return x + y; });
    case Op::subtract: return map(a, b, to, [](float x, float y) { return x - y; });
    case Op::multiply: return map(a, b, to, [](float x, float y) { return x * y; });
    case Op::divide: return map(a, b, to, [](float x, float y) { return x / y; });
    case Op::minimum: return map(a, b, to, [](float x, float y) { return y < x ? y : x; });
    case Op::maximum: return map(a, b, to, [](float x, float y) { return x < y ? y : x; });
    default: return;
  }
}

FOVEA_INLINE void compare_real(Op op, const float* a, const float* b, int32_t* to) {
  switch (op) {
    case Op::less: return map(a, b, to, [](float x, float y) { return x < y ? 1 : 0; });
    case Op::less_equal: return map(a, b, to, [](float x, float y) { return x <= y ? 1 : 0; });
    case Op::equal: return map(a, b, to, [](float x, float y) { return x == y ? 1 : 0; });
    default: return map(a, b, to, [](float x, float y) { return x != y ? 1 : 0; });
  }
}

FOVEA_INLINE int64_t clamped(int32_t i, int32_t size) {
  return i < 0 ? 0 : i < size ? i : size - 1;
}

template <class From, class To>
FOVEA_INLINE void read_buffer(const Buffer& buffer, const int32_t* row, const int32_t* column, To* to) {
  const From* data = static_cast<const From*>(buffer.data);
  for (int i = 0; i < kStrip; ++i) {
    const int64_t first = row == nullptr ? 0 : clamped(row[i], buffer.rows) * buffer.stride;
    const From x = data[first + clamped(column[i], buffer.columns)];
    if constexpr (sizeof(From) == 1)
      to[i] = x != 0 ? 1 : 0;
    else
      to[i] = x;
  }
}

inline void run_strip(const StripOp* ops, size_t count, const Buffer* buffers, std::byte* file) {
  const auto integers = [file](int i) {
    return reinterpret_cast<int32_t*>(file + static_cast<size_t>(i) * flex::kStripBytes);
  };
  const auto reals = [file](int i) {
    return reinterpret_cast<float*>(file + static_cast<size_t>(i) * flex::kStripBytes);
  };
  for (const StripOp* o = ops; o < ops + count; ++o) {
    const bool real = o->operand_type == Type::real;
    // Operations on one operand have no b.
    const int b = o->b < 0 ? o->a : o->b;
    switch (o->op) {
      case Op::read1:
      case Op::read2: {
        const int32_t* row = o->op == Op::read1 ? nullptr : integers(o->a);
        const int32_t* column = integers(o->op == Op::read1 ? o->a : o->b);
        const Buffer& from = buffers[o->buffer];
        if (real)
          read_buffer<float>(from, row, column, reals(o->to));
        else if (o->operand_type == Type::integer)
          read_buffer<int32_t>(from, row, column, integers(o->to));
        else
          read_buffer<uint8_t>(from, row, column, integers(o->to));
        break;
      }
      case Op::to_real:
        map(integers(o->a), reals(o->to), [](int32_t x) { return static_cast<float>(x); });
        break;
      case Op::select: {
        // Bits of either type.
        const int32_t *c = integers(o->a), *yes = integers(o->b), *no = integers(o->c);
        int32_t* to = integers(o->to);
        for (int i = 0; i < kStrip; ++i)
          to[i] = c[i] != 0 ? yes[i] : no[i];
        break;
      }
      case Op::less:
      case Op::less_equal:
      case Op::equal:
      case Op::not_equal:
        if (real)
          compare_real(o->op, reals(o->a), reals(b), integers(o->to));
        else
          run_integer(o->op, integers(o->a), integers(b), integers(o->to));
        break;
      default:
        if (real && o->op == Op::to_integer)
          map(reals(o->a), integers(o->to), [](float x) { return truncate(x); });
        else if (real)
          run_real(o->op, reals(o->a), reals(b), reals(o->to));
        else
          run_integer(o->op, integers(o->a), integers(b), integers(o->to));
    }
  }
}

}  // namespace fovea::FOVEA_SIMD_NAMESPACE
