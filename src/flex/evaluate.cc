#include "flex/evaluate.h"

#include <algorithm>
#include <cmath>

namespace fovea::flex {
namespace {

/// Two's complement wrap of an exact integer result below 2^63.
double wrap(int64_t x) {
  return static_cast<int32_t>(static_cast<uint32_t>(static_cast<uint64_t>(x)));
}

int64_t floor_divide(int64_t a, int64_t b) {
  if (b == 0) return 0;
  const int64_t q = a / b;
  return q - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

double integer_op(Op op, int64_t a, int64_t b) {
  switch (op) {
    case Op::negate: return wrap(-a);
    case Op::bit_not: return wrap(~a);
    case Op::absolute: return wrap(a < 0 ? -a : a);
    case Op::add: return wrap(a + b);
    case Op::subtract: return wrap(a - b);
    case Op::multiply: return wrap(a * b);
    case Op::floor_divide: return wrap(floor_divide(a, b));
    case Op::modulo: return wrap(b == 0 ? 0 : a - floor_divide(a, b) * b);
    case Op::shift_left: return wrap(static_cast<int64_t>(static_cast<uint64_t>(a) << (b & 31)));
    case Op::shift_right: return wrap(a >> (b & 31));
    case Op::bit_and: return wrap(a & b);
    case Op::bit_or: return wrap(a | b);
    case Op::bit_xor: return wrap(a ^ b);
    default: return 0;
  }
}

template <class Real>
double real_op(Op op, Real a, Real b) {
  switch (op) {
    case Op::negate: return -a;
    case Op::absolute: return std::fabs(a);
    case Op::exp2: return std::exp2(a);
    case Op::log2: return std::log2(a);
    case Op::tanh: return std::tanh(a);
    case Op::sqrt: return std::sqrt(a);
    case Op::add: return a + b;
    case Op::subtract: return a - b;
    case Op::multiply: return a * b;
    case Op::divide: return a / b;
    default: return 0;
  }
}

double to_integer(double x) {
  if (std::isnan(x)) return 0;
  return std::trunc(std::clamp(x, -2147483648.0, 2147483647.0));
}

}  // namespace

double read(const Buffer& buffer, Type element, int64_t row, int64_t column) {
  row = std::clamp<int64_t>(row, 0, buffer.rows - 1);
  column = std::clamp<int64_t>(column, 0, buffer.columns - 1);
  const int64_t at = row * buffer.stride + column;
  switch (element) {
    case Type::boolean: return static_cast<const uint8_t*>(buffer.data)[at] != 0 ? 1 : 0;
    case Type::integer: return static_cast<const int32_t*>(buffer.data)[at];
    case Type::real: return static_cast<const float*>(buffer.data)[at];
  }
  return 0;
}

template <class Real>
double apply(Op op, Type operand_type, double a, double b, double c) {
  switch (op) {
    case Op::to_integer: return to_integer(a);
    case Op::to_real: return static_cast<double>(static_cast<Real>(a));
    case Op::logical_not: return a == 0 ? 1 : 0;
    case Op::logical_and: return a != 0 && b != 0 ? 1 : 0;
    case Op::logical_or: return a != 0 || b != 0 ? 1 : 0;
    case Op::less: return a < b ? 1 : 0;
    case Op::less_equal: return a <= b ? 1 : 0;
    case Op::equal: return a == b ? 1 : 0;
    case Op::not_equal: return a != b ? 1 : 0;
    case Op::minimum: return b < a ? b : a;
    case Op::maximum: return a < b ? b : a;
    case Op::select: return a != 0 ? b : c;
    default: break;
  }
  if (operand_type == Type::real)
    return static_cast<double>(real_op(op, static_cast<Real>(a), static_cast<Real>(b)));
  return integer_op(op, static_cast<int64_t>(a), static_cast<int64_t>(b));
}

template <class Real>
double evaluate(const Tree& tree, std::span<const BufferType> types, std::span<const Buffer> buffers,
                const Point& point) {
  std::vector<double> values(tree.nodes().size());
  const double variables[kVariables] = {static_cast<double>(point.b),
                                        static_cast<double>(point.h),
                                        static_cast<double>(point.q),
                                        static_cast<double>(point.k),
                                        static_cast<double>(point.qlen),
                                        static_cast<double>(point.klen),
                                        static_cast<double>(static_cast<Real>(point.score))};
  const auto value = [&](int i) { return i < 0 ? 0.0 : values[static_cast<size_t>(i)]; };
  for (size_t i = 0; i < values.size(); ++i) {
    const Node& n = tree.nodes()[i];
    const auto at = static_cast<size_t>(n.index);
    const double a = value(n.a), b = value(n.b);
    switch (n.op) {
      case Op::literal:
        values[i] = n.type == Type::real ? static_cast<double>(static_cast<Real>(n.value)) : n.value;
        break;
      case Op::variable: values[i] = variables[at]; break;
      case Op::read1: values[i] = read(buffers[at], types[at].element, 0, static_cast<int64_t>(a)); break;
      case Op::read2:
        values[i] = read(buffers[at], types[at].element, static_cast<int64_t>(a), static_cast<int64_t>(b));
        break;
      default:
        values[i] = apply<Real>(n.op, tree.node(n.op == Op::select ? n.b : n.a).type, a, b, value(n.c));
    }
  }
  return value(tree.root());
}

template double apply<float>(Op, Type, double, double, double);
template double apply<double>(Op, Type, double, double, double);
template double evaluate<float>(const Tree&, std::span<const BufferType>, std::span<const Buffer>,
                                const Point&);
template double evaluate<double>(const Tree&, std::span<const BufferType>, std::span<const Buffer>,
                                 const Point&);

}  // namespace fovea::flex
