#include "flex/interval.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace fovea::flex {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kLeast = -2147483648.0, kMost = 2147483647.0;

Interval join(const Interval& a, const Interval& b) {
  return {std::min(a.lo, b.lo), std::max(a.hi, b.hi), a.nan || b.nan};
}
Interval boolean(bool can_be_false, bool can_be_true) {
  return {can_be_false ? 0.0 : 1.0, can_be_true ? 1.0 : 0.0};
}
Interval any_real() {
  return {-kInf, kInf, true};
}

/// Results of fp32 arithmetic, a few ulp off, whose exact values are in [lo, hi].
Interval rounded(double lo, double hi, bool nan) {
  if (std::isnan(lo) || std::isnan(hi)) return any_real();
  constexpr double kRelative = 2e-6, kSmallest = 1e-37, kLargest = 3.4e38;
  if (std::isfinite(lo)) lo -= std::abs(lo) * kRelative + kSmallest;
  if (std::isfinite(hi)) hi += std::abs(hi) * kRelative + kSmallest;
  if (lo > kLargest) lo = kLargest;  // may still be finite, or have overflowed
  if (hi < -kLargest) hi = -kLargest;
  if (hi > kLargest) hi = kInf;
  if (lo < -kLargest) lo = -kInf;
  return {lo, hi, nan};
}

/// Integers whose exact values are in [lo, hi]: all of them if they may wrap.
Interval wrapped(double lo, double hi) {
  if (lo < kLeast || hi > kMost) return {kLeast, kMost};
  return {lo, hi};
}

template <class F>
Interval corners(const Interval& a, const Interval& b, F f) {
  const double x[] = {f(a.lo, b.lo), f(a.lo, b.hi), f(a.hi, b.lo), f(a.hi, b.hi)};
  for (const double value : x)
    if (std::isnan(value)) return any_real();
  return {*std::ranges::min_element(x), *std::ranges::max_element(x), a.nan || b.nan};
}

/// All ones below the highest bit of x.
double ones(double x) {
  return static_cast<double>(std::bit_ceil(static_cast<uint64_t>(x) + 1) - 1);
}

Interval integer_bits(Op op, const Interval& a, const Interval& b) {
  if (a.lo >= 0 && b.lo >= 0) {
    if (op == Op::bit_and) return {0, std::min(a.hi, b.hi)};
    const double most = ones(std::max(a.hi, b.hi));
    return {op == Op::bit_or ? std::max(a.lo, b.lo) : 0, most};
  }
  // x & mask with mask >= 0 is between 0 and the mask, whatever x is.
  if (op == Op::bit_and && (a.lo >= 0 || b.lo >= 0)) return {0, a.lo >= 0 ? a.hi : b.hi};
  return {kLeast, kMost};
}

double floor_quotient(double a, double b) {
  return std::floor(a / b);  // exact: the operands have 32 bits
}

Interval floor_divide(const Interval& a, const Interval& b) {
  if (b.lo <= 0) {
    if (b.hi < 0) {
      const Interval x = corners(a, b, floor_quotient);
      return wrapped(x.lo, x.hi);
    }
    const double most = std::max(std::abs(a.lo), std::abs(a.hi));
    return wrapped(-most, most);
  }
  const Interval x = corners(a, b, floor_quotient);
  return wrapped(x.lo, x.hi);
}

Interval modulo(const Interval& a, const Interval& b) {
  if (b.single() && b.lo > 0) {
    const double first = std::floor(a.lo / b.lo), last = std::floor(a.hi / b.lo);
    if (first == last) return {a.lo - first * b.lo, a.hi - first * b.lo};
    return {0, b.lo - 1};
  }
  if (b.lo > 0) return a.lo >= 0 ? Interval{0, std::min(a.hi, b.hi - 1)} : Interval{0, b.hi - 1};
  // The remainder has the divisor's sign and is smaller; 0 for a divisor of 0.
  return {std::min(0.0, b.lo + 1), std::max(0.0, b.hi - 1)};
}

Interval shift(Op op, const Interval& a, const Interval& b) {
  if (!b.single())
    return op == Op::shift_right ? Interval{std::min(a.lo, 0.0), std::max(a.hi, 0.0)}
                                 : Interval{kLeast, kMost};
  const double factor = std::ldexp(1.0, static_cast<int>(static_cast<int64_t>(b.lo) & 31));
  if (op == Op::shift_left) return wrapped(a.lo * factor, a.hi * factor);
  return {std::floor(a.lo / factor), std::floor(a.hi / factor)};
}

Interval absolute(const Interval& a) {
  const double most = std::max(std::abs(a.lo), std::abs(a.hi));
  const double least = a.lo <= 0 && a.hi >= 0 ? 0 : std::min(std::abs(a.lo), std::abs(a.hi));
  return {least, most, a.nan};
}

Interval integer_op(Op op, const Interval& a, const Interval& b) {
  switch (op) {
    case Op::negate: return wrapped(-a.hi, -a.lo);
    case Op::bit_not: return {-a.hi - 1, -a.lo - 1};
    case Op::absolute: {
      const Interval x = absolute(a);
      return wrapped(x.lo, x.hi);
    }
    case Op::add: return wrapped(a.lo + b.lo, a.hi + b.hi);
    case Op::subtract: return wrapped(a.lo - b.hi, a.hi - b.lo);
    case Op::multiply: {
      const Interval x = corners(a, b, [](double p, double q) { return p * q; });
      return wrapped(x.lo, x.hi);
    }
    case Op::floor_divide: return floor_divide(a, b);
    case Op::modulo: return modulo(a, b);
    case Op::shift_left:
    case Op::shift_right: return shift(op, a, b);
    case Op::bit_and:
    case Op::bit_or:
    case Op::bit_xor: return integer_bits(op, a, b);
    default: return {kLeast, kMost};
  }
}

/// exp2, log2, tanh and sqrt rise.
Interval rising(Op op, const Interval& a) {
  const auto f = [op](double x) { return apply<double>(op, Type::real, x, 0, 0); };
  if ((op == Op::log2 || op == Op::sqrt) && a.lo < 0) {
    if (a.hi < 0) return any_real();
    return rounded(op == Op::log2 ? -kInf : 0.0, f(a.hi), true);
  }
  Interval x = rounded(f(a.lo), f(a.hi), a.nan);
  if (op == Op::log2) x.lo -= 1e-6, x.hi += 1e-6;  // near 1 the error is absolute
  return x;
}

Interval real_op(Op op, const Interval& a, const Interval& b) {
  const bool nan = a.nan || b.nan;
  switch (op) {
    case Op::negate: return {-a.hi, -a.lo, nan};
    case Op::absolute: return absolute(a);
    case Op::exp2:
    case Op::log2:
    case Op::tanh:
    case Op::sqrt: return rising(op, a);
    case Op::add: return rounded(a.lo + b.lo, a.hi + b.hi, nan || std::isinf(a.lo) || std::isinf(a.hi));
    case Op::subtract: return rounded(a.lo - b.hi, a.hi - b.lo, nan || std::isinf(a.lo) || std::isinf(a.hi));
    case Op::multiply: {
      const auto zero_times_infinity = [](const Interval& x, const Interval& y) {
        return x.lo <= 0 && x.hi >= 0 && (std::isinf(y.lo) || std::isinf(y.hi));
      };
      if (zero_times_infinity(a, b) || zero_times_infinity(b, a)) return any_real();
      const Interval x = corners(a, b, [](double p, double q) { return p * q; });
      return rounded(x.lo, x.hi, x.nan);
    }
    case Op::divide: {
      if (b.lo <= 0 && b.hi >= 0) return any_real();
      const Interval x = corners(a, b, [](double p, double q) { return p / q; });
      return rounded(x.lo, x.hi, x.nan);
    }
    default: return any_real();
  }
}

Interval compare(Op op, const Interval& a, const Interval& b) {
  const bool nan = a.nan || b.nan;
  switch (op) {
    case Op::less: return boolean(nan || a.hi >= b.lo, a.lo < b.hi);
    case Op::less_equal: return boolean(nan || a.hi > b.lo, a.lo <= b.hi);
    default: break;
  }
  const bool can_be_equal = a.lo <= b.hi && b.lo <= a.hi;
  const bool can_differ = nan || !(a.lo == a.hi && b.lo == b.hi && a.lo == b.lo);
  return op == Op::equal ? boolean(can_differ, can_be_equal) : boolean(can_be_equal, can_differ);
}

Interval operation(Op op, Type operand_type, const Interval& a, const Interval& b, const Interval& c) {
  switch (op) {
    case Op::to_integer: {
      const Interval x = {std::trunc(std::clamp(a.lo, kLeast, kMost)),
                          std::trunc(std::clamp(a.hi, kLeast, kMost))};
      return a.nan ? join(x, {0, 0}) : x;
    }
    case Op::to_real:
      return operand_type == Type::integer && std::max(-a.lo, a.hi) > 16777216.0 ? rounded(a.lo, a.hi, false)
                                                                                 : a;
    case Op::logical_not: return {1 - a.hi, 1 - a.lo};
    case Op::logical_and: return {std::min(a.lo, b.lo), std::min(a.hi, b.hi)};
    case Op::logical_or: return {std::max(a.lo, b.lo), std::max(a.hi, b.hi)};
    case Op::less:
    case Op::less_equal:
    case Op::equal:
    case Op::not_equal: return compare(op, a, b);
    case Op::minimum:
      if (a.nan || b.nan) return join(a, b);
      return {std::min(a.lo, b.lo), std::min(a.hi, b.hi)};
    case Op::maximum:
      if (a.nan || b.nan) return join(a, b);
      return {std::max(a.lo, b.lo), std::max(a.hi, b.hi)};
    case Op::select:
      if (a.lo == a.hi) return a.lo != 0 ? b : c;
      return join(b, c);
    default: break;
  }
  return operand_type == Type::real ? real_op(op, a, b) : integer_op(op, a, b);
}

}  // namespace

BufferBounds::BufferBounds(const Buffer& buffer, Type element) : buffer_(buffer), element_(element) {
  blocks_ = (buffer.columns + kBlock - 1) / kBlock;
  levels_ = std::bit_width(static_cast<uint64_t>(blocks_));
  table_.resize(static_cast<size_t>(buffer.rows * levels_ * blocks_));
  for (int64_t row = 0; row < buffer.rows; ++row) {
    Interval* level = table_.data() + row * levels_ * blocks_;
    for (int64_t block = 0; block < blocks_; ++block)
      level[block] =
          row_bounds(row, block * kBlock, std::min<int64_t>((block + 1) * kBlock, buffer.columns) - 1);
    for (int64_t l = 1; l < levels_; ++l, level += blocks_) {
      const int64_t half = int64_t{1} << (l - 1);
      for (int64_t block = 0; block < blocks_; ++block)
        level[blocks_ + block] = join(level[block], level[std::min(block + half, blocks_ - 1)]);
    }
    const Interval all = of(row, row, 0, buffer.columns - 1);
    whole_ = row == 0 ? all : join(whole_, all);
  }
}

/// Bounds of columns [first, last] of a row, one by one.
Interval BufferBounds::row_bounds(int64_t row, int64_t first, int64_t last) const {
  Interval bounds = {kInf, -kInf, false};
  for (int64_t column = first; column <= last; ++column) {
    const double x = read(buffer_, element_, row, column);
    if (std::isnan(x)) {
      bounds.nan = true;
      continue;
    }
    bounds.lo = std::min(bounds.lo, x);
    bounds.hi = std::max(bounds.hi, x);
  }
  if (bounds.lo > bounds.hi) return any_real();  // only NaN
  return bounds;
}

Interval BufferBounds::of(int64_t row_first, int64_t row_last, int64_t first, int64_t last) const {
  row_first = std::clamp<int64_t>(row_first, 0, buffer_.rows - 1);
  row_last = std::clamp<int64_t>(row_last, 0, buffer_.rows - 1);
  first = std::clamp<int64_t>(first, 0, buffer_.columns - 1);
  last = std::clamp<int64_t>(last, 0, buffer_.columns - 1);
  if (row_last - row_first >= kMaxRows) return whole_;
  Interval bounds;
  for (int64_t row = row_first; row <= row_last; ++row) {
    // Whole blocks from the table, the columns before and after them one by one.
    const int64_t from = (first + kBlock - 1) / kBlock, to = (last + 1) / kBlock;
    Interval x;
    if (from >= to) {
      x = row_bounds(row, first, last);
    } else {
      const int64_t level = std::bit_width(static_cast<uint64_t>(to - from)) - 1;
      const Interval* table = table_.data() + (row * levels_ + level) * blocks_;
      x = join(table[from], table[to - (int64_t{1} << level)]);
      if (first < from * kBlock) x = join(x, row_bounds(row, first, from * kBlock - 1));
      if (last >= to * kBlock) x = join(x, row_bounds(row, to * kBlock, last));
    }
    bounds = row == row_first ? x : join(bounds, x);
  }
  return bounds;
}

Analysis::Analysis(const Tree& mask, std::span<const BufferType> types, std::span<const Buffer> buffers)
    : tree_(mask), place_(types.size(), -1) {
  for (const Node& n : mask.nodes()) {
    if (n.op != Op::read1 && n.op != Op::read2) continue;
    const auto at = static_cast<size_t>(n.index);
    if (place_[at] >= 0) continue;
    place_[at] = static_cast<int>(buffers_.size());
    buffers_.emplace_back(buffers[at], types[at].element);
  }
}

Interval Analysis::read(const Node& node, const Interval& a, const Interval& b) const {
  const BufferBounds& bounds = buffers_[static_cast<size_t>(place_[static_cast<size_t>(node.index)])];
  const auto lo = static_cast<int64_t>(a.lo), hi = static_cast<int64_t>(a.hi);
  if (node.op == Op::read1) return bounds.of(0, 0, lo, hi);
  return bounds.of(lo, hi, static_cast<int64_t>(b.lo), static_cast<int64_t>(b.hi));
}

Interval Analysis::bounds(const Region& region, Scratch& scratch) const {
  const Interval variables[kVariables] = {region.b,    region.h,    region.q,  region.k,
                                          region.qlen, region.klen, any_real()};
  const Interval none;
  const auto value = [&](int i) -> const Interval& { return i < 0 ? none : scratch[static_cast<size_t>(i)]; };
  for (size_t i = 0; i < scratch.size(); ++i) {
    const Node& n = tree_.nodes()[i];
    switch (n.op) {
      case Op::literal:
        // Exact, unless it is rounded to fp32.
        scratch[i] = n.type == Type::real && static_cast<double>(static_cast<float>(n.value)) != n.value
                         ? rounded(n.value, n.value, false)
                         : Interval{n.value, n.value};
        break;
      case Op::variable: scratch[i] = variables[n.index]; break;
      case Op::read1:
      case Op::read2: scratch[i] = read(n, value(n.a), value(n.b)); break;
      default:
        scratch[i] = operation(n.op, tree_.node(n.op == Op::select ? n.b : n.a).type, value(n.a), value(n.b),
                               value(n.c));
    }
  }
  return value(tree_.root());
}

Coverage Analysis::coverage(const Region& region, Scratch& scratch) const {
  const Interval x = bounds(region, scratch);
  if (x.lo != 0) return Coverage::full;
  return x.hi == 0 ? Coverage::empty : Coverage::partial;
}

}  // namespace fovea::flex
