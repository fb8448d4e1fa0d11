#include "grammar/regex.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>

#include "base/printable.h"
#include "grammar/character_names.h"
#include "text/utf8.h"

namespace fovea::grammar {
namespace {

constexpr int kMaxDepth = 200;
constexpr size_t kMaxPattern = 64 << 10;
constexpr uint32_t kMaxRepeat = 1 << 20;

struct Node {
  enum class Kind : uint8_t { text, concat, either, repeat, begin, end, ahead } kind = Kind::concat;
  Expr text = Expressions::kEmpty;
  std::vector<Node> parts;
  uint32_t least = 0, most = 0;
  bool negative = false;  // of a lookahead
};

CodePoints line_ends() {
  CodePoints set('\n', '\n');
  return set.add('\r', '\r').add(0x2028, 0x2029);
}

class PatternParser {
 public:
  PatternParser(Expressions& expressions, std::string_view pattern, const RegexOptions& options)
      : x_(expressions), pattern_(pattern), options_(options) {}

  Result<Node> parse() {
    if (pattern_.size() > kMaxPattern)
      return fail("it has " + std::to_string(pattern_.size()) + " bytes; at most " +
                  std::to_string(kMaxPattern) + " are allowed");
    if (!text::is_valid_utf8(pattern_)) return fail("it is not valid UTF-8");
    if (const auto length = flags(")")) at_ += *length;
    FOVEA_TRY(node, alternatives(0));
    if (at_ < pattern_.size()) return fail("it has a ) without a (");
    return node;
  }

  Error fail(const std::string& why) const {
    return invalid("the regular expression " + quoted(pattern_) + " can't be used at byte " +
                   std::to_string(at_) + ": " + why);
  }

 private:
  static std::string quoted(std::string_view text) {
    return "\"" + printable(text.substr(0, 60)) + (text.size() > 60 ? "...\"" : "\"");
  }
  bool more() const { return at_ < pattern_.size(); }
  char peek() const { return pattern_[at_]; }
  bool take(std::string_view text) {
    if (!pattern_.substr(at_).starts_with(text)) return false;
    at_ += text.size();
    return true;
  }
  Node of(const CodePoints& set) const {
    Node node;
    node.kind = Node::Kind::text;
    node.text = expression_of(x_, options_.ignore_case ? set.any_case() : set, options_.spelling);
    return node;
  }
  uint32_t character() {
    const text::Utf8Char c = text::decode_utf8(pattern_.substr(at_));
    at_ += c.length;
    return c.code_point;
  }

  Result<Node> alternatives(int depth) {
    if (depth > kMaxDepth) return fail("it nests deeper than " + std::to_string(kMaxDepth) + " levels");
    Node either;
    either.kind = Node::Kind::either;
    do {
      FOVEA_TRY(part, sequence(depth));
      either.parts.push_back(std::move(part));
    } while (take("|"));
    if (either.parts.size() > 1) return either;
    Node only = std::move(either.parts.front());
    return only;
  }

  Result<Node> sequence(int depth) {
    Node concat;
    while (more() && peek() != '|' && peek() != ')') {
      FOVEA_TRY(item, atom(depth));
      FOVEA_RETURN_IF_ERROR(repeats(item));
      concat.parts.push_back(std::move(item));
    }
    return concat;
  }

  Status repeats(Node& item) {
    for (bool any = false; more(); any = true) {
      uint32_t least = 0, most = kNoLimit;
      const size_t start = at_;
      if (take("+")) {
        least = 1;
      } else if (take("?")) {
        most = 1;
      } else if (!take("*")) {
        if (peek() != '{') return {};
        FOVEA_TRY(counted, count(least, most));
        if (!counted) return {};
      }
      if (any) {
        at_ = start;
        return fail("a repeat follows a repeat; put the first into a group");
      }
      if (take("+")) return fail("possessive repeats are not supported; leave the + out");
      (void)take("?");  // a lazy repeat has the same language
      if (item.kind == Node::Kind::begin || item.kind == Node::Kind::end || item.kind == Node::Kind::ahead)
        return fail("an assertion can't be repeated");
      Node repeat;
      repeat.kind = Node::Kind::repeat;
      repeat.least = least;
      repeat.most = most;
      repeat.parts.push_back(std::move(item));
      item = std::move(repeat);
    }
    return {};
  }

  std::optional<uint32_t> number() {
    uint32_t value = 0;
    const size_t start = at_;
    for (; more() && '0' <= peek() && peek() <= '9' && value <= kMaxRepeat; ++at_)
      value = value * 10 + static_cast<uint32_t>(peek() - '0');
    return at_ == start ? std::nullopt : std::optional(value);
  }

  /// {n}, {n,}, {n,m} or {,m}; false = the brace is a literal.
  Result<bool> count(uint32_t& least, uint32_t& most) {
    const size_t start = at_++;
    auto low = number();
    std::optional<uint32_t> high = low;
    const bool comma = take(",");
    if (comma) high = number();
    // {,m} as in Python; in a schema's pattern, which is JavaScript's, it is text.
    if (!low && high && options_.spelling != Spelling::json) low = 0;
    if (!low || !take("}")) {
      at_ = start;
      return false;
    }
    least = *low;
    most = high ? *high : kNoLimit;
    if (least > kMaxRepeat || (most != kNoLimit && most > kMaxRepeat))
      return fail("a repeat counts at most to " + std::to_string(kMaxRepeat));
    if (least > most) return fail("a repeat's first number is larger than its second");
    return true;
  }

  Result<Node> atom(int depth) {
    Node node;
    if (take("(")) return group(depth);
    if (take("[")) {
      FOVEA_TRY(set, character_class());
      return of(set);
    }
    if (take("^")) {
      node.kind = Node::Kind::begin;
      return node;
    }
    if (take("$")) {
      node.kind = Node::Kind::end;
      return node;
    }
    if (take(".")) return of(options_.dot_all ? CodePoints::all() : line_ends().inverted());
    if (peek() == '*' || peek() == '+' || peek() == '?')
      return fail(std::string("nothing precedes ") + peek());
    if (take("\\A")) {
      node.kind = Node::Kind::begin;
      return node;
    }
    if (take("\\z") || take("\\Z")) {
      node.kind = Node::Kind::end;
      return node;
    }
    if (take("\\")) {
      FOVEA_TRY(set, escape(false));
      return of(set);
    }
    const uint32_t c = character();
    return of({c, c});
  }

  /// Sets the options of "(?FLAGS" before `end`, behind which the pattern goes on: bytes up to there;
  /// nullopt = there are no such flags.
  std::optional<size_t> flags(std::string_view end) {
    std::string_view text = pattern_.substr(at_);
    if (end == ")" && text.starts_with("(")) text.remove_prefix(1);
    if (!text.starts_with("?")) return std::nullopt;
    text.remove_prefix(1);
    RegexOptions options = options_;
    bool on = true, any = false;
    for (; !text.empty() && !text.starts_with(end); text.remove_prefix(1)) {
      if (text[0] == 'i')
        options.ignore_case = on;
      else if (text[0] == 's')
        options.dot_all = on;
      else if (text[0] == '-' && on)
        on = false;
      else
        return std::nullopt;
      any = true;
    }
    if (!any || !text.starts_with(end)) return std::nullopt;
    options_ = options;
    return pattern_.size() - text.size() + end.size() - at_;
  }

  Result<Node> group(int depth) {
    Node node;
    const RegexOptions outer = options_;
    if (take("?=") || take("?!")) {
      node.kind = Node::Kind::ahead;
      node.negative = pattern_[at_ - 1] == '!';
    } else if (take("?<=") || take("?<!")) {
      return fail("lookbehind is not supported");
    } else if (take("?<") || take("?P<")) {
      const size_t end = pattern_.find('>', at_);
      if (end == std::string_view::npos) return fail("a group's name has no >");
      at_ = end + 1;
    } else if (const auto length = flags(":")) {
      at_ += *length;
    } else if (take("?") && !take(":")) {
      return fail("this kind of group is not supported");
    }
    FOVEA_TRY(inner, alternatives(depth + 1));
    options_ = outer;
    if (!take(")")) return fail("a ( has no )");
    if (node.kind != Node::Kind::ahead) return inner;
    node.parts.push_back(std::move(inner));
    return node;
  }

  std::optional<uint32_t> hex(size_t digits) {
    uint32_t value = 0;
    if (at_ + digits > pattern_.size()) return std::nullopt;
    for (const char c : pattern_.substr(at_, digits)) {
      const auto d = std::string_view("0123456789abcdef").find(c >= 'A' && c <= 'F' ? c + 32 : c);
      if (d == std::string_view::npos) return std::nullopt;
      value = value * 16 + static_cast<uint32_t>(d);
    }
    at_ += digits;
    return value;
  }

  /// After the backslash.
  Result<CodePoints> escape(bool in_class) {
    if (!more()) return fail("it ends with a \\");
    const uint32_t c = character();
    if (auto set = class_escape(c)) return *std::move(set);
    const auto one = [](uint32_t code_point) { return CodePoints(code_point, code_point); };
    switch (c) {
      case 't': return one('\t');
      case 'n': return one('\n');
      case 'r': return one('\r');
      case 'f': return one('\f');
      case 'v': return one('\v');
      case '0': return one(0);
      case 'b':
        if (in_class) return one('\b');
        return fail("\\b is not supported");
      case 'c':
        if (more() && ((peek() >= 'a' && peek() <= 'z') || (peek() >= 'A' && peek() <= 'Z')))
          return one(character() % 32);
        return fail("\\c needs a letter");
      case 'x':
        if (const auto value = hex(2)) return one(*value);
        return fail("\\x needs two hexadecimal digits");
      case 'u': return unicode_escape();
      case 'p':
      case 'P': return property(c == 'P');
      default: break;
    }
    if (c >= '1' && c <= '9') return fail("back references are not supported");
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
      return fail(std::string("\\") + static_cast<char>(c) + " is not a known escape");
    return one(c);
  }

  Result<CodePoints> unicode_escape() {
    if (take("{")) {
      const size_t end = pattern_.find('}', at_);
      const auto value =
          end == std::string_view::npos || end == at_ || end - at_ > 6 ? std::nullopt : hex(end - at_);
      if (!value || *value > kLastCodePoint || !take("}")) return fail("\\u{...} needs a character's number");
      return CodePoints(*value, *value);
    }
    const auto value = hex(4);
    if (!value) return fail("\\u needs four hexadecimal digits");
    if (*value < 0xD800 || *value > 0xDFFF) return CodePoints(*value, *value);
    const auto low = *value < 0xDC00 && take("\\u") ? hex(4) : std::nullopt;
    if (!low || *low < 0xDC00 || *low > 0xDFFF) return fail("a surrogate stands alone");
    const uint32_t c = 0x10000 + ((*value - 0xD800) << 10) + (*low - 0xDC00);
    return CodePoints(c, c);
  }

  Result<CodePoints> property(bool inverted) {
    std::string name;
    if (take("{")) {
      const size_t end = pattern_.find('}', at_);
      if (end == std::string_view::npos) return fail("\\p{ has no }");
      name = pattern_.substr(at_, end - at_);
      at_ = end + 1;
    } else if (more()) {
      name = std::string(1, peek());
      ++at_;
    }
    const auto set = characters_of_property(name);
    if (!set) return fail("\\p{" + printable(name) + "} is not a general category of Unicode");
    return inverted ? set->inverted() : *set;
  }

  static std::optional<CodePoints> class_escape(uint32_t c) {
    CodePoints set;
    switch (c) {
      case 'd':
      case 'D': set.add('0', '9'); break;
      case 'w':
      case 'W': set.add('0', '9').add('A', 'Z').add('_', '_').add('a', 'z'); break;
      case 's':
      case 'S':
        set.add('\t', '\r').add(' ', ' ').add(0xA0, 0xA0).add(0x1680, 0x1680).add(0x2000, 0x200A);
        set.add(0x2028, 0x2029).add(0x202F, 0x202F).add(0x205F, 0x205F).add(0x3000, 0x3000);
        set.add(0xFEFF, 0xFEFF);
        break;
      default: return std::nullopt;
    }
    return c == 'D' || c == 'W' || c == 'S' ? set.inverted() : set;
  }

  /// After the opening bracket.
  Result<CodePoints> character_class() {
    const bool inverted = take("^");
    CodePoints set;
    while (more() && peek() != ']') {
      if (pattern_.substr(at_).starts_with("[:") &&
          pattern_.find(":]", at_ + 2) == pattern_.find(':', at_ + 2) &&
          pattern_.find(":]", at_ + 2) != std::string_view::npos)
        return fail("[:NAME:] is not supported; use \\p{...} or ranges");
      bool single = true;
      FOVEA_TRY(first, class_atom(single));
      if (!single || !pattern_.substr(at_).starts_with("-") || pattern_.substr(at_).starts_with("-]")) {
        set.add(first);
        continue;
      }
      ++at_;
      if (!more()) break;
      FOVEA_TRY(last, class_atom(single));
      const uint32_t low = first.ranges().front().first, high = last.ranges().front().first;
      if (!single || low > high) return fail("a range of a class ends before it begins");
      set.add(low, high);
    }
    if (!take("]")) return fail("a [ has no ]");
    if (options_.ignore_case) set = set.any_case();
    return inverted ? set.inverted() : set;
  }

  Result<CodePoints> class_atom(bool& single) {
    if (!take("\\")) {
      const uint32_t c = character();
      return CodePoints(c, c);
    }
    FOVEA_TRY(set, escape(true));
    single = set.ranges().size() == 1 && set.ranges().front().first == set.ranges().front().second;
    return set;
  }

  Expressions& x_;
  std::string_view pattern_;
  RegexOptions options_;
  size_t at_ = 0;
};

/// What one alternative matches, and whether it only does so at the text's begin or end.
struct Piece {
  bool begin = false, end = false;
  Expr text = Expressions::kEmpty;
};
using Pieces = std::vector<Piece>;

class Lowering {
 public:
  Lowering(Expressions& expressions, const RegexOptions& options, const PatternParser& parser)
      : x_(expressions),
        parser_(parser),
        around_(options.search ? x_.star(expression_of(x_, CodePoints::all(), options.spelling))
                               : Expressions::kEmpty) {}

  Result<Expr> whole(const Node& node) {
    FOVEA_TRY(pieces, lower(node, true, true));
    std::vector<Expr> all;
    for (const Piece& piece : pieces)
      all.push_back(x_.concat(piece.begin ? Expressions::kEmpty : around_, to_end(piece)));
    return x_.either(all);
  }

 private:
  Expr to_end(const Piece& piece) { return piece.end ? piece.text : x_.concat(piece.text, around_); }

  /// `first`, `last`: nothing precedes or follows the node.
  Result<Pieces> lower(const Node& node, bool first, bool last) {
    switch (node.kind) {
      case Node::Kind::text: return Pieces{{false, false, node.text}};
      case Node::Kind::begin:
        if (!first) return parser_.fail("^ is supported at the beginning only");
        return Pieces{{true, false, Expressions::kEmpty}};
      case Node::Kind::end:
        if (!last) return parser_.fail("$ is supported at the end only");
        return Pieces{{false, true, Expressions::kEmpty}};
      case Node::Kind::concat: return lower_sequence(node.parts, 0, first, last);
      case Node::Kind::either: {
        Pieces all;
        for (const Node& part : node.parts) {
          FOVEA_TRY(pieces, lower(part, first, last));
          for (const Piece& piece : pieces)
            merge(all, piece);
        }
        return all;
      }
      case Node::Kind::repeat: {
        FOVEA_TRY(pieces, lower(node.parts[0], false, false));
        if (pieces.empty()) return Pieces{{false, false, node.least == 0 ? Expressions::kEmpty : 0}};
        return Pieces{{false, false, x_.repeat(pieces[0].text, node.least, node.most)}};
      }
      case Node::Kind::ahead: break;
    }
    return parser_.fail("lookahead is supported only where the rest of the pattern follows it to its end");
  }

  void merge(Pieces& all, const Piece& piece) {
    for (Piece& other : all)
      if (other.begin == piece.begin && other.end == piece.end) {
        other.text = x_.either(other.text, piece.text);
        return;
      }
    all.push_back(piece);
  }

  Result<Pieces> lower_sequence(const std::vector<Node>& parts, size_t from, bool first, bool last) {
    std::vector<Pieces> of_parts;
    for (size_t i = from; i < parts.size(); ++i) {
      const Node& part = parts[i];
      if (part.kind == Node::Kind::ahead && last) {
        FOVEA_TRY(rest, look_ahead(parts, i, first));
        of_parts.push_back(std::move(rest));
        break;
      }
      const bool ends = last && std::all_of(parts.begin() + static_cast<std::ptrdiff_t>(i) + 1, parts.end(),
                                            [](const Node& n) { return n.kind == Node::Kind::end; });
      FOVEA_TRY(pieces, lower(part, first, ends));
      first = first && part.kind == Node::Kind::begin;
      of_parts.push_back(std::move(pieces));
    }
    Pieces all{Piece()};
    for (; !of_parts.empty(); of_parts.pop_back())  // from the right, as concat() is fast
      all = product(of_parts.back(), all);
    return all;
  }

  Pieces product(const Pieces& left, const Pieces& right) {
    Pieces out;
    for (const Piece& a : left)
      for (const Piece& b : right)
        merge(out, {a.begin || b.begin, a.end || b.end, x_.concat(a.text, b.text)});
    return out;
  }

  /// parts[at] is a lookahead: what follows it, to the end of the text, must begin like it.
  Result<Pieces> look_ahead(const std::vector<Node>& parts, size_t at, bool first) {
    FOVEA_TRY(rest, lower_sequence(parts, at + 1, first, true));
    FOVEA_TRY(seen, lower(parts[at].parts[0], false, true));
    std::vector<Expr> begins;
    for (const Piece& piece : seen)
      begins.push_back(piece.end ? piece.text : x_.concat(piece.text, Expressions::kAnything));
    Expr ahead = x_.either(begins);
    if (parts[at].negative) ahead = x_.negate(ahead);
    Pieces out;
    for (const Piece& piece : rest)
      merge(out, {piece.begin, true, x_.both(ahead, to_end(piece))});
    return out;
  }

  Expressions& x_;
  const PatternParser& parser_;
  Expr around_;
};

}  // namespace

Result<Expr> compile_regex(Expressions& expressions, std::string_view pattern, const RegexOptions& options) {
  PatternParser parser(expressions, pattern, options);
  FOVEA_TRY(node, parser.parse());
  FOVEA_TRY(whole, Lowering(expressions, options, parser).whole(node));
  if (expressions.overflown()) return parser.fail("it needs too much memory; make it shorter");
  return whole;
}

}  // namespace fovea::grammar
