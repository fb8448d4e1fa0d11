#include <map>
#include <optional>

#include "base/printable.h"
#include "grammar/regex.h"
#include "grammar/rule_set.h"
#include "grammar/written_grammar.h"
#include "text/utf8.h"

namespace fovea::grammar {
namespace {

/// Lark's common.lark, as regular expressions.
constexpr std::pair<std::string_view, std::string_view> kCommon[] = {
    {"DIGIT", "[0-9]"},
    {"HEXDIGIT", "[0-9A-Fa-f]"},
    {"INT", "[0-9]+"},
    {"SIGNED_INT", "[+-]?[0-9]+"},
    {"DECIMAL", "[0-9]+\\.[0-9]*|\\.[0-9]+"},
    {"FLOAT", "[0-9]+[eE][+-]?[0-9]+|([0-9]+\\.[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)?"},
    {"SIGNED_FLOAT", "[+-]?([0-9]+[eE][+-]?[0-9]+|([0-9]+\\.[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)?)"},
    {"NUMBER", "[0-9]+([eE][+-]?[0-9]+)?|([0-9]+\\.[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)?"},
    {"SIGNED_NUMBER", "[+-]?([0-9]+([eE][+-]?[0-9]+)?|([0-9]+\\.[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)?)"},
    {"ESCAPED_STRING", "\"([^\"\\\\\\n]|\\\\[^\\n])*\""},
    {"LCASE_LETTER", "[a-z]"},
    {"UCASE_LETTER", "[A-Z]"},
    {"LETTER", "[A-Za-z]"},
    {"WORD", "[A-Za-z]+"},
    {"CNAME", "[_A-Za-z][_A-Za-z0-9]*"},
    {"WS_INLINE", "[ \\t]+"},
    {"WS", "[ \\t\\f\\r\\n]+"},
    {"CR", "\\r"},
    {"LF", "\\n"},
    {"NEWLINE", "(\\r?\\n)+"},
    {"SH_COMMENT", "#[^\\n]*"},
    {"CPP_COMMENT", "//[^\\n]*"},
};

bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

class LarkParser {
 public:
  LarkParser(Expressions& expressions, std::string_view text) : x_(expressions), text_(text) {}

  Status parse(RuleSet& rules) {
    if (text_.size() > 1 << 20 || !text::is_valid_utf8(text_))
      return invalid("the grammar is larger than 1 MiB or not valid UTF-8");
    for (skip_lines(); at_ < text_.size(); skip_lines()) {
      if (take("%")) {
        FOVEA_RETURN_IF_ERROR(directive(rules));
        continue;
      }
      while (take("?") || take("!")) {
      }
      const std::string name = read_name();
      if (name.empty()) return fail("a rule must begin with its name and a colon");
      if (take(".")) (void)number();  // a priority
      skip();
      if (take("{")) return fail("templates are not supported");
      if (!take(":")) return fail("a colon must follow the name " + name);
      const size_t rule = rules.number(name);
      if (rules.defined(rule)) return fail("the rule " + name + " is defined twice");
      in_terminal_ = is_terminal(name);
      FOVEA_TRY(body, alternatives(rules, 0));
      rules.define(rule, std::move(body));
    }
    if (ignored_.empty()) return {};
    // What is ignored may follow each terminal, and come first.
    rules.define(rules.number(kIgnored),
                 RuleNode::times(RuleNode::of(RuleNode::Kind::choice, ignored_), 0, kNoLimit));
    return {};
  }

  static constexpr const char* kIgnored = "%ignored";
  bool ignores() const { return !ignored_.empty(); }
  /// A first pass finds %ignore, which may stand behind the rules that it applies to.
  void expect_ignored(bool yes) { with_ignored_ = yes; }

 private:
  Error fail(const std::string& why) const {
    size_t line = 1;
    for (size_t i = 0; i < at_ && i < text_.size(); ++i)
      line += text_[i] == '\n';
    return invalid("the grammar has an error in line " + std::to_string(line) + ": " + why);
  }
  static bool is_terminal(const std::string& name) {
    for (const char c : name)
      if (c != '_') return c >= 'A' && c <= 'Z';
    return false;
  }
  bool take(std::string_view what) {
    if (!text_.substr(at_).starts_with(what)) return false;
    at_ += what.size();
    return true;
  }
  /// Blanks and comments of a line.
  void skip() {
    while (at_ < text_.size()) {
      if (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\r')
        ++at_;
      else if (text_.substr(at_).starts_with("//") || text_[at_] == '#')
        at_ = std::min(text_.find('\n', at_), text_.size());
      else
        return;
    }
  }
  void skip_lines() {
    for (skip(); at_ < text_.size() && text_[at_] == '\n'; skip())
      ++at_;
  }
  std::string read_name() {
    const size_t start = at_;
    while (at_ < text_.size() && is_name(text_[at_]))
      ++at_;
    return std::string(text_.substr(start, at_ - start));
  }
  std::optional<uint32_t> number() {
    uint32_t value = 0;
    const size_t start = at_;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9' && value < 1'000'000; ++at_)
      value = value * 10 + static_cast<uint32_t>(text_[at_] - '0');
    return at_ == start ? std::nullopt : std::optional(value);
  }

  Status directive(RuleSet& rules) {
    const std::string word = read_name();
    skip();
    if (word == "ignore") {
      in_terminal_ = true;
      FOVEA_TRY(what, alternatives(rules, 0));
      ignored_.push_back(std::move(what));
      return {};
    }
    if (word != "import") return fail("%" + printable(word) + " is not supported");
    const std::string module = read_name();
    if (module != "common" || !take(".")) return fail("only %import common.NAME is supported");
    std::vector<std::string> names;
    names.push_back(read_name());
    std::string alias = names[0];
    skip();
    if (take("->")) {
      skip();
      alias = read_name();
    }
    for (const auto& [name, pattern] : kCommon) {
      if (name != names[0]) continue;
      FOVEA_TRY(text, compile_regex(x_, pattern, {}));
      rules.define(rules.number(alias), RuleNode::of(text));
      return {};
    }
    return fail("common." + printable(names[0]) + " is not known");
  }

  Result<RuleNode> alternatives(RuleSet& rules, int depth) {
    if (depth > RuleSet::kMaxDepth) return fail("groups nest deeper than 200 levels");
    std::vector<RuleNode> all;
    while (true) {
      FOVEA_TRY(part, sequence(rules, depth));
      all.push_back(std::move(part));
      const size_t here = at_;
      skip_lines();
      if (take("|")) continue;
      if (depth == 0) at_ = here;
      break;
    }
    return RuleNode::of(RuleNode::Kind::choice, std::move(all));
  }

  Result<RuleNode> sequence(RuleSet& rules, int depth) {
    std::vector<RuleNode> parts;
    while (true) {
      if (depth > 0)
        skip_lines();
      else
        skip();
      if (at_ == text_.size() || std::string_view("|)]\n").find(text_[at_]) != std::string_view::npos) break;
      if (take("->")) {  // an alias
        skip();
        (void)read_name();
        continue;
      }
      FOVEA_TRY(part, element(rules, depth));
      FOVEA_RETURN_IF_ERROR(repeats(part));
      parts.push_back(std::move(part));
    }
    return RuleNode::of(RuleNode::Kind::sequence, std::move(parts));
  }

  /// A terminal in a rule: what is ignored may follow.
  RuleNode terminal(RuleSet& rules, RuleNode node) const {
    if (in_terminal_ || !with_ignored_) return node;
    RuleNode ignored;
    ignored.kind = RuleNode::Kind::rule;
    ignored.rule = rules.number(kIgnored);
    std::vector<RuleNode> parts;
    parts.push_back(std::move(node));
    parts.push_back(std::move(ignored));
    return RuleNode::of(RuleNode::Kind::sequence, std::move(parts));
  }

  Result<RuleNode> element(RuleSet& rules, int depth) {
    const char c = text_[at_];
    if (c == '"') {
      FOVEA_TRY(text, literal());
      return terminal(rules, RuleNode::of(text));
    }
    if (c == '/') {
      FOVEA_TRY(text, regex());
      return terminal(rules, RuleNode::of(text));
    }
    if (take("(")) {
      FOVEA_TRY(inner, alternatives(rules, depth + 1));
      if (!take(")")) return fail("a ( has no )");
      return inner;
    }
    if (take("[")) {
      FOVEA_TRY(inner, alternatives(rules, depth + 1));
      if (!take("]")) return fail("a [ has no ]");
      return RuleNode::times(std::move(inner), 0, 1);
    }
    const std::string name = read_name();
    if (name.empty()) return fail("\"" + printable(text_.substr(at_, 8)) + "\" is not expected here");
    RuleNode node;
    node.kind = RuleNode::Kind::rule;
    node.rule = rules.number(name);
    return is_terminal(name) ? terminal(rules, std::move(node)) : std::move(node);
  }

  Result<std::string> quoted() {
    std::string out;
    for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_) {
      if (text_[at_] == '\\' && at_ + 1 < text_.size()) {
        const char c = text_[++at_];
        out += c == 'n' ? '\n' : c == 't' ? '\t' : c == 'r' ? '\r' : c == 'f' ? '\f' : c;
      } else {
        out += text_[at_];
      }
    }
    if (at_ == text_.size()) return fail("a literal has no end");
    ++at_;
    return out;
  }

  Result<Expr> literal() {
    FOVEA_TRY(text, quoted());
    if (take("..")) {
      if (at_ == text_.size() || text_[at_] != '"') return fail("a range needs two literals");
      FOVEA_TRY(last, quoted());
      if (text.empty() || last.empty()) return fail("a range needs two characters");
      const uint32_t first = text::decode_utf8(text).code_point, end = text::decode_utf8(last).code_point;
      return expression_of(x_, {first, end}, Spelling::utf8);
    }
    if (!take("i")) return x_.literal(text);
    std::vector<Expr> parts;
    for (std::string_view rest = text; !rest.empty();) {
      const text::Utf8Char c = text::decode_utf8(rest);
      parts.push_back(expression_of(x_, CodePoints(c.code_point, c.code_point).any_case(), Spelling::utf8));
      rest.remove_prefix(c.length);
    }
    return x_.concat(parts);
  }

  Result<Expr> regex() {
    const size_t start = ++at_;
    for (; at_ < text_.size() && text_[at_] != '/' && text_[at_] != '\n'; ++at_)
      at_ += text_[at_] == '\\';
    if (at_ >= text_.size() || text_[at_] != '/') return fail("a regular expression has no end");
    std::string pattern;
    for (size_t i = start; i < at_; ++i)
      if (text_[i] != '\\' || text_[i + 1] != '/') pattern += text_[i];
    ++at_;
    RegexOptions options;
    for (; at_ < text_.size() && text_[at_] >= 'a' && text_[at_] <= 'z'; ++at_) {
      if (text_[at_] == 'i')
        options.ignore_case = true;
      else if (text_[at_] == 's')
        options.dot_all = true;
      else if (text_[at_] != 'u')
        return fail(std::string("the flag ") + text_[at_] + " of a regular expression is not supported");
    }
    const auto text = compile_regex(x_, pattern, options);
    if (!text) return fail(text.error().message);
    return *text;
  }

  Status repeats(RuleNode& part) {
    while (at_ < text_.size()) {
      if (take("*")) {
        part = RuleNode::times(std::move(part), 0, kNoLimit);
      } else if (take("+")) {
        part = RuleNode::times(std::move(part), 1, kNoLimit);
      } else if (take("?")) {
        part = RuleNode::times(std::move(part), 0, 1);
      } else if (take("~") || take(" ~")) {
        skip();
        const auto least = number();
        auto most = least;
        if (take("..")) most = number();
        if (!least || !most || *least > *most) return fail("a repeat must be ~n or ~n..m");
        part = RuleNode::times(std::move(part), *least, *most);
      } else {
        return {};
      }
    }
    return {};
  }

  Expressions& x_;
  std::string_view text_;
  size_t at_ = 0;
  bool in_terminal_ = false, with_ignored_ = false;
  std::vector<RuleNode> ignored_;
};

}  // namespace

Result<Symbol> add_lark(Grammar& grammar, std::string_view text) {
  bool ignores = false;
  {
    RuleSet rules;
    LarkParser first(grammar.expressions(), text);
    FOVEA_RETURN_IF_ERROR(first.parse(rules));
    ignores = first.ignores();
  }
  RuleSet rules;
  LarkParser parser(grammar.expressions(), text);
  parser.expect_ignored(ignores);
  FOVEA_RETURN_IF_ERROR(parser.parse(rules));
  if (!ignores) return rules.add_to(grammar, "start");
  std::vector<RuleNode> parts(2);
  parts[0].kind = parts[1].kind = RuleNode::Kind::rule;
  parts[0].rule = rules.number(LarkParser::kIgnored);
  parts[1].rule = rules.number("start");
  rules.define(rules.number("%start"), RuleNode::of(RuleNode::Kind::sequence, std::move(parts)));
  return rules.add_to(grammar, "%start");
}

}  // namespace fovea::grammar
