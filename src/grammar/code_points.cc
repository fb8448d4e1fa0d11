#include "grammar/code_points.h"

#include <algorithm>
#include <array>
#include <string>

#include "text/utf8.h"

namespace fovea::grammar {
namespace {

constexpr uint32_t kFirstSurrogate = 0xD800, kLastSurrogate = 0xDFFF;

struct Utf8 {
  std::array<uint8_t, 4> bytes{};
  int length = 0;
};

Utf8 utf8_of(uint32_t c) {
  std::string text;
  text::append_utf8(c, text);
  Utf8 out;
  for (const char byte : text)
    out.bytes[static_cast<size_t>(out.length++ & 3)] = static_cast<uint8_t>(byte);
  return out;
}

/// The characters from `first` to `last`, whose UTF-8 has `length` bytes, from byte `at` on.
Expr between(Expressions& x, const Utf8& first, const Utf8& last, int at) {
  const uint8_t a = first.bytes[static_cast<size_t>(at)], b = last.bytes[static_cast<size_t>(at)];
  if (at + 1 == first.length) return x.range(a, b);
  Utf8 low = first, high = last;
  for (int i = at + 1; i < first.length; ++i) {
    low.bytes[static_cast<size_t>(i)] = 0x80;
    high.bytes[static_cast<size_t>(i)] = 0xBF;
  }
  if (a == b) return x.concat(x.byte(a), between(x, first, last, at + 1));
  std::vector<Expr> parts;
  parts.push_back(x.concat(x.byte(a), between(x, first, high, at + 1)));
  if (b - a > 1)
    parts.push_back(x.concat(x.range(static_cast<uint8_t>(a + 1), static_cast<uint8_t>(b - 1)),
                             between(x, low, high, at + 1)));
  parts.push_back(x.concat(x.byte(b), between(x, low, last, at + 1)));
  return x.either(parts);
}

Expr utf8_expression(Expressions& x, const CodePoints& set) {
  constexpr std::array<uint32_t, 5> kBounds = {0, 0x80, 0x800, 0x10000, 0x110000};
  CodePoints surrogates(kFirstSurrogate, kLastSurrogate);
  std::vector<Expr> parts;
  for (const auto& [first, last] : set.without(surrogates).ranges()) {
    for (size_t i = 0; i + 1 < kBounds.size(); ++i) {
      const uint32_t low = std::max(first, kBounds[i]), high = std::min(last, kBounds[i + 1] - 1);
      if (low <= high) parts.push_back(between(x, utf8_of(low), utf8_of(high), 0));
    }
  }
  return x.either(parts);
}

/// The letter of a short escape; 0 = there is none.
char short_escape(uint32_t c) {
  switch (c) {
    case '"': return '"';
    case '\\': return '\\';
    case '\b': return 'b';
    case '\f': return 'f';
    case '\n': return 'n';
    case '\r': return 'r';
    case '\t': return 't';
    default: return 0;
  }
}

Expr hex_digit(Expressions& x, uint32_t value) {
  ByteSet set;
  set.set(static_cast<uint8_t>("0123456789abcdef"[value]));
  set.set(static_cast<uint8_t>("0123456789ABCDEF"[value]));
  return x.bytes(set);
}

Expr json_expression(Expressions& x, const CodePoints& set) {
  CodePoints escaped(0, 0x1F);
  escaped.add('"', '"').add('\\', '\\');
  std::vector<Expr> parts{utf8_expression(x, set.without(escaped))};
  ByteSet letters;
  for (const auto& [first, last] : set.intersected(escaped).ranges())
    for (uint32_t c = first; c <= last; ++c) {
      if (const char letter = short_escape(c))
        letters.set(static_cast<uint8_t>(letter));
      else
        parts.push_back(x.concat(std::array{x.literal("\\u00"), hex_digit(x, c >> 4), hex_digit(x, c & 15)}));
    }
  if (letters.any()) parts.push_back(x.concat(x.byte('\\'), x.bytes(letters)));
  return x.either(parts);
}

}  // namespace

CodePoints& CodePoints::add(uint32_t first, uint32_t last) {
  if (first > last) return *this;
  const auto from = std::ranges::lower_bound(ranges_, first == 0 ? 0 : first - 1, {},
                                             [](const auto& range) { return range.second; });
  auto to = from;
  for (; to != ranges_.end() && to->first <= last + 1; ++to) {
    first = std::min(first, to->first);
    last = std::max(last, to->second);
  }
  ranges_.insert(ranges_.erase(from, to), {first, last});
  return *this;
}

CodePoints& CodePoints::add(const CodePoints& other) {
  for (const auto& [first, last] : other.ranges_)
    add(first, last);
  return *this;
}

CodePoints CodePoints::inverted() const {
  CodePoints out;
  uint32_t next = 0;
  for (const auto& [first, last] : ranges_) {
    if (first > next) out.ranges_.emplace_back(next, first - 1);
    next = last + 1;
  }
  if (next <= kLastCodePoint) out.ranges_.emplace_back(next, kLastCodePoint);
  return out;
}

CodePoints CodePoints::intersected(const CodePoints& other) const {
  return inverted().add(other.inverted()).inverted();
}

CodePoints CodePoints::without(const CodePoints& other) const {
  return intersected(other.inverted());
}

CodePoints CodePoints::any_case() const {
  CodePoints out = *this;
  for (const auto& [first, last] : intersected({'A', 'Z'}).ranges())
    out.add(first + 32, last + 32);
  for (const auto& [first, last] : intersected({'a', 'z'}).ranges())
    out.add(first - 32, last - 32);
  return out;
}

bool CodePoints::contains(uint32_t code_point) const {
  const auto at =
      std::ranges::lower_bound(ranges_, code_point, {}, [](const auto& range) { return range.second; });
  return at != ranges_.end() && at->first <= code_point;
}

Expr expression_of(Expressions& x, const CodePoints& set, Spelling spelling) {
  return spelling == Spelling::utf8 ? utf8_expression(x, set) : json_expression(x, set);
}

Expr literal_of(Expressions& x, std::string_view text, Spelling spelling) {
  if (spelling == Spelling::utf8) return x.literal(text);
  std::vector<Expr> parts;
  while (!text.empty()) {
    const text::Utf8Char c = text::decode_utf8(text);
    parts.push_back(c.code_point < 0x80 ? json_expression(x, {c.code_point, c.code_point})
                                        : x.literal(text.substr(0, c.length)));
    text.remove_prefix(c.length);
  }
  return x.concat(parts);
}

Expr any_json_character(Expressions& x) {
  ByteSet letters, digits, not_d, low, high;
  for (const char c : std::string_view("\"\\/bfnrt"))
    letters.set(static_cast<uint8_t>(c));
  for (const char c : std::string_view("0123456789abcdefABCDEF")) {
    digits.set(static_cast<uint8_t>(c));
    not_d.set(static_cast<uint8_t>(c), c != 'd' && c != 'D');
    low.set(static_cast<uint8_t>(c), c < '8');  // of the digits, which come before the letters
    high.set(static_cast<uint8_t>(c), c == '8' || c == '9' || c == 'a' || c == 'b' || c == 'A' || c == 'B');
  }
  ByteSet c_to_f;
  for (const char c : std::string_view("cdefCDEF"))
    c_to_f.set(static_cast<uint8_t>(c));
  ByteSet d;
  d.set('d').set('D');
  const Expr hex = x.bytes(digits);
  const auto hexes = [&](uint32_t count) { return x.repeat(hex, count, count); };
  const Expr plain = x.concat(x.bytes(not_d), hexes(3));
  const Expr below = x.concat(std::array{x.bytes(d), x.bytes(low), hexes(2)});
  const Expr pair = x.concat(std::array{x.bytes(d), x.bytes(high), hexes(2), x.literal("\\u"), x.bytes(d),
                                        x.bytes(c_to_f), hexes(2)});
  const Expr unicode = x.concat(x.byte('u'), x.either(std::array{plain, below, pair}));
  CodePoints escaped(0, 0x1F);
  escaped.add('"', '"').add('\\', '\\');
  return x.either(utf8_expression(x, escaped.inverted()),
                  x.concat(x.byte('\\'), x.either(x.bytes(letters), unicode)));
}

}  // namespace fovea::grammar
