#include <optional>

#include "base/printable.h"
#include "grammar/regex.h"
#include "grammar/rule_set.h"
#include "grammar/written_grammar.h"
#include "text/utf8.h"

namespace fovea::grammar {
namespace {

constexpr size_t kMaxText = 1 << 20;

bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
         c == '.';
}

class GbnfParser {
 public:
  GbnfParser(Expressions& expressions, std::string_view text) : x_(expressions), text_(text) {}

  Status parse(RuleSet& rules) {
    if (text_.size() > kMaxText || !text::is_valid_utf8(text_))
      return invalid("the grammar is larger than 1 MiB or not valid UTF-8");
    for (skip(); at_ < text_.size(); skip()) {
      const std::string name = read_name();
      skip();
      if (name.empty() || !take("::=")) return fail("a rule must begin with its name and ::=");
      const size_t rule = rules.number(name);
      if (rules.defined(rule)) return fail("the rule " + name + " is defined twice");
      FOVEA_TRY(body, alternatives(rules, 0));
      if (at_ < text_.size() && text_[at_] == ')') return fail("a ) has no (");
      rules.define(rule, std::move(body));
    }
    return {};
  }

 private:
  Error fail(const std::string& why) const {
    size_t line = 1;
    for (size_t i = 0; i < at_ && i < text_.size(); ++i)
      line += text_[i] == '\n';
    return invalid("the grammar has an error in line " + std::to_string(line) + ": " + why);
  }
  bool take(std::string_view what) {
    if (!text_.substr(at_).starts_with(what)) return false;
    at_ += what.size();
    return true;
  }
  void skip() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
        ++at_;
      } else {
        return;
      }
    }
  }
  std::string read_name() {
    const size_t start = at_;
    while (at_ < text_.size() && is_name(text_[at_]))
      ++at_;
    return std::string(text_.substr(start, at_ - start));
  }
  /// Whether the next name begins another rule.
  bool at_rule() {
    const size_t start = at_;
    const bool name = !read_name().empty();
    skip();
    const bool rule = name && text_.substr(at_).starts_with("::=");
    at_ = start;
    return rule;
  }

  Result<RuleNode> alternatives(RuleSet& rules, int depth) {
    if (depth > RuleSet::kMaxDepth) return fail("groups nest deeper than 200 levels");
    std::vector<RuleNode> all;
    do {
      FOVEA_TRY(part, sequence(rules, depth));
      all.push_back(std::move(part));
      skip();
    } while (take("|"));
    return RuleNode::of(RuleNode::Kind::choice, std::move(all));
  }

  Result<RuleNode> sequence(RuleSet& rules, int depth) {
    std::vector<RuleNode> parts;
    for (skip(); at_ < text_.size() && text_[at_] != '|' && text_[at_] != ')' && !at_rule(); skip()) {
      FOVEA_TRY(part, element(rules, depth));
      FOVEA_RETURN_IF_ERROR(repeats(part));
      parts.push_back(std::move(part));
    }
    return RuleNode::of(RuleNode::Kind::sequence, std::move(parts));
  }

  Result<RuleNode> element(RuleSet& rules, int depth) {
    const char c = text_[at_];
    if (c == '"' || c == '\'') {
      FOVEA_TRY(text, quoted(c));
      return RuleNode::of(x_.literal(text));
    }
    if (c == '[' || c == '.') return char_class();
    if (take("(")) {
      FOVEA_TRY(inner, alternatives(rules, depth + 1));
      if (!take(")")) return fail("a ( has no )");
      return inner;
    }
    const std::string name = read_name();
    if (name.empty()) return fail("\"" + printable(text_.substr(at_, 8)) + "\" is not expected here");
    RuleNode node;
    node.kind = RuleNode::Kind::rule;
    node.rule = rules.number(name);
    return node;
  }

  /// The regular expression's class has the same form.
  Result<RuleNode> char_class() {
    const size_t start = at_;
    if (!take(".")) {
      for (++at_; at_ < text_.size() && text_[at_] != ']'; ++at_)
        at_ += text_[at_] == '\\';
      if (!take("]")) return fail("a [ has no ]");
    }
    RegexOptions options;
    options.dot_all = true;
    const auto set = compile_regex(x_, text_.substr(start, at_ - start), options);
    if (!set) return fail(set.error().message);
    return RuleNode::of(*set);
  }

  Result<std::string> quoted(char mark) {
    std::string out;
    for (++at_; at_ < text_.size() && text_[at_] != mark; ++at_) {
      if (text_[at_] != '\\') {
        out += text_[at_];
        continue;
      }
      if (++at_ == text_.size()) break;
      switch (text_[at_]) {
        case 'n': out += '\n'; break;
        case 'r': out += '\r'; break;
        case 't': out += '\t'; break;
        case 'b': out += '\b'; break;
        case 'f': out += '\f'; break;
        case 'x':
        case 'u':
        case 'U': {
          const size_t digits = text_[at_] == 'x' ? 2 : text_[at_] == 'u' ? 4 : 8;
          uint32_t value = 0;
          for (size_t i = 1; i <= digits; ++i) {
            const char c = at_ + i < text_.size() ? text_[at_ + i] : ' ';
            const auto d = std::string_view("0123456789abcdef").find(c >= 'A' && c <= 'F' ? c + 32 : c);
            if (d == std::string_view::npos || value > 0x10FFFF) return fail("an escape needs more digits");
            value = value * 16 + static_cast<uint32_t>(d);
          }
          at_ += digits;
          text::append_utf8(value, out);
          break;
        }
        default: out += text_[at_];
      }
    }
    if (at_ == text_.size()) return fail("a literal has no end");
    ++at_;
    return out;
  }

  std::optional<uint32_t> number() {
    uint32_t value = 0;
    const size_t start = at_;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9' && value < 1'000'000; ++at_)
      value = value * 10 + static_cast<uint32_t>(text_[at_] - '0');
    return at_ == start ? std::nullopt : std::optional(value);
  }

  Status repeats(RuleNode& part) {
    while (at_ < text_.size()) {
      if (take("*")) {
        part = RuleNode::times(std::move(part), 0, kNoLimit);
      } else if (take("+")) {
        part = RuleNode::times(std::move(part), 1, kNoLimit);
      } else if (take("?")) {
        part = RuleNode::times(std::move(part), 0, 1);
      } else if (take("{")) {
        skip();
        const auto least = number();
        auto most = least;
        skip();
        if (take(",")) {
          skip();
          most = number();
          skip();
        }
        if (!take("}") || (!least && !most) || (least && most && *least > *most))
          return fail("a repeat must be {n}, {n,} or {n,m}");
        part = RuleNode::times(std::move(part), least.value_or(0), most.value_or(kNoLimit));
      } else {
        return {};
      }
    }
    return {};
  }

  Expressions& x_;
  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

Result<Symbol> add_gbnf(Grammar& grammar, std::string_view text) {
  RuleSet rules;
  FOVEA_RETURN_IF_ERROR(GbnfParser(grammar.expressions(), text).parse(rules));
  return rules.add_to(grammar, "root");
}

Result<Symbol> add_written_grammar(Grammar& grammar, std::string_view text) {
  return text.find("::=") != std::string_view::npos ? add_gbnf(grammar, text) : add_lark(grammar, text);
}

}  // namespace fovea::grammar
