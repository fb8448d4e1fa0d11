#include "text/jinja_parser.h"

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <utility>

#include "text/jinja_expressions.h"

namespace fovea::text::jinja {
namespace {

using St = Statement::Type;

class Parser : ExpressionParser {
 public:
  explicit Parser(std::string_view source) : ExpressionParser(source) {}

  Block run() { return parse_block({}); }

 private:
  bool at_tag(std::initializer_list<std::string_view> words) const {
    return now().type == Type::block_begin && ahead(1).type == Type::name &&
           std::find(words.begin(), words.end(), ahead(1).text) != words.end();
  }

  // Statements up to a tag of `ends`, which is not consumed; with no ends, up to the end of the template.
  Block parse_block(std::initializer_list<std::string_view> ends) {
    const Deeper deeper(*this);
    Block block;
    while (!at_tag(ends)) {
      const int64_t offset = now().offset;
      if (now().type == Type::text) {
        block.emplace_back();
        block.back().text = take().text;
      } else if (now().type == Type::output_begin) {
        take();
        block.emplace_back();
        block.back().type = St::output;
        block.back().offset = offset;
        block.back().value = parse_tuple(offset, true, false);
        expect(Type::output_end, "'}}'");
      } else if (now().type == Type::block_begin) {
        take();
        parse_statement(block);
      } else if (ends.size() == 0) {
        break;
      } else {
        unexpected(std::string("'{% ") + std::string(*(ends.end() - 1)) + " %}'");
      }
    }
    return block;
  }

  // Consumes the tag "{% word %}" that ends a block.
  void take_end_tag() {
    take();
    take();
    expect_block_end();
  }

  void parse_statement(Block& block) {
    if (now().type != Type::name) unexpected("a statement");
    const Token word = take();
    Statement statement;
    statement.offset = word.offset;
    if (word.text == "if") {
      parse_if(statement);
    } else if (word.text == "for") {
      parse_for(statement);
    } else if (word.text == "set") {
      parse_set(statement);
    } else if (word.text == "macro") {
      parse_macro(statement);
    } else if (word.text == "call") {
      parse_call_block(statement);
    } else if (word.text == "filter") {
      parse_filter_block(statement);
    } else if (word.text == "with") {
      parse_with(statement);
    } else if (word.text == "break" || word.text == "continue") {
      if (loops_ == 0) fail(word.offset, std::string("'") + word.text + "' outside of a loop");
      statement.type = word.text == "break" ? St::loop_break : St::loop_continue;
      expect_block_end();
    } else if (word.text == "generation") {
      // Marks the model's output for training; for rendering it is only a scope.
      expect_block_end();
      statement.type = St::scope;
      statement.body = parse_body_outside_loops("endgeneration");
    } else if (word.text == "do") {
      statement.type = St::evaluate;
      statement.value = parse_tuple(statement.offset, true, false);
      expect_block_end();
    } else {
      refuse_statement(word);
    }
    block.push_back(std::move(statement));
  }

  [[noreturn]] static void refuse_statement(const Token& word) {
    constexpr std::string_view kOfFiles[] = {"include", "import", "from", "extends", "block"};
    const bool of_files =
        std::find(std::begin(kOfFiles), std::end(kOfFiles), word.text) != std::end(kOfFiles);
    fail(word.offset,
         (of_files ? "statement '" + word.text +
                         "' joins templates, and a chat template is one text; put what it needs into it"
                   : "unknown statement '" + word.text.substr(0, 40) + "'") +
             "; supported: if, for, set, macro, call, filter, with, do, break, continue, " +
             "generation, raw");
  }

  void parse_if(Statement& statement) {
    statement.type = St::branch;
    while (true) {
      auto condition = parse_tuple(statement.offset, false, false);
      expect_block_end();
      Block body = parse_block({"elif", "else", "endif"});
      statement.branches.emplace_back(std::move(condition), std::move(body));
      take();
      const std::string word = take().text;
      if (word == "elif") continue;
      expect_block_end();
      if (word == "else") {
        statement.otherwise = parse_block({"endif"});
        take_end_tag();
      }
      return;
    }
  }

  std::string expect_target_name() {
    for (const char* word : {"true", "false", "none", "True", "False", "None"}) {
      if (is_word(word)) fail(now().offset, std::string("'") + word + "' is a constant and can't be set");
    }
    return expect_name();
  }

  Target parse_target(bool with_member) {
    const int64_t offset = now().offset;
    std::vector<Target> parts;
    bool has_comma = false;
    do {
      Target part;
      part.offset = now().offset;
      if (take_op("(")) {
        const Deeper deeper(*this);
        part = parse_target(false);
        expect_op(")");
      } else {
        part.name = expect_target_name();
        if (with_member && take_op(".")) part.member = expect_name();
      }
      parts.push_back(std::move(part));
      if (!is_op(",")) break;
      take();
      has_comma = true;
    } while (now().type == Type::name || is_op("("));
    if (parts.size() == 1 && !has_comma) return std::move(parts.front());
    Target target;
    target.offset = offset;
    target.parts = std::move(parts);
    return target;
  }

  void parse_for(Statement& statement) {
    statement.type = St::loop;
    if (is_word("loop")) fail(now().offset, "'loop' is the loop itself; use another name");
    statement.target = parse_target(false);
    if (!take_word("in")) unexpected("'in'");
    statement.value = parse_tuple(statement.offset, false, false);
    if (take_word("if")) statement.condition = parse_expression();
    statement.recursive = take_word("recursive");
    expect_block_end();
    ++loops_;
    statement.body = parse_block({"else", "endfor"});
    --loops_;
    if (ahead(1).text == "else") {
      take_end_tag();
      statement.otherwise = parse_block({"endfor"});
    }
    take_end_tag();
  }

  void parse_set(Statement& statement) {
    statement.target = parse_target(true);
    if (take_op("=")) {
      statement.type = St::assign;
      statement.value = parse_tuple(statement.offset, true, false);
      expect_block_end();
      return;
    }
    statement.type = St::assign_block;
    while (is_op("|")) {
      const int64_t offset = take().offset;
      statement.value = parse_filter(std::move(statement.value), offset);
    }
    expect_block_end();
    statement.body = parse_block({"endset"});
    take_end_tag();
  }

  void parse_parameters(Statement& statement) {
    expect_op("(");
    while (!is_op(")")) {
      Parameter parameter;
      const int64_t offset = now().offset;
      parameter.name = expect_target_name();
      const auto same = [&](const Parameter& other) { return other.name == parameter.name; };
      if (std::any_of(statement.parameters.begin(), statement.parameters.end(), same))
        fail(offset, "duplicate parameter '" + parameter.name + "'");
      if (take_op("=")) {
        parameter.fallback = parse_expression();
      } else if (parameter.name == "caller") {
        fail(offset, "parameter 'caller' needs a default: it is set by 'call' blocks");
      } else if (!statement.parameters.empty() && statement.parameters.back().fallback) {
        fail(now().offset, "parameter without a default after one with a default");
      }
      statement.parameters.push_back(std::move(parameter));
      if (!take_op(",")) break;
    }
    expect_op(")");
  }

  // A break or continue in this body can't refer to a loop outside it.
  Block parse_body_outside_loops(std::string_view end) {
    const int loops = loops_;
    loops_ = 0;
    Block body = parse_block({end});
    loops_ = loops;
    take_end_tag();
    return body;
  }

  // The body of a macro or call block, and which special names it reads.
  void parse_macro_body(Statement& statement, std::string_view end) {
    const bool varargs = std::exchange(reads_varargs_, false);
    const bool kwargs = std::exchange(reads_kwargs_, false);
    const bool caller = std::exchange(reads_caller_, false);
    statement.body = parse_body_outside_loops(end);
    statement.catches_positional = reads_varargs_;
    statement.catches_named = reads_kwargs_;
    statement.takes_caller = reads_caller_;
    reads_varargs_ |= varargs;
    reads_kwargs_ |= kwargs;
    reads_caller_ |= caller;
  }

  void parse_macro(Statement& statement) {
    statement.type = St::macro;
    statement.text = expect_target_name();
    parse_parameters(statement);
    expect_block_end();
    parse_macro_body(statement, "endmacro");
  }

  void parse_call_block(Statement& statement) {
    statement.type = St::call_block;
    if (is_op("(")) parse_parameters(statement);
    statement.value = parse_expression();
    if (statement.value->type != Ex::call) fail(statement.value->offset, "expected a call after 'call'");
    expect_block_end();
    parse_macro_body(statement, "endcall");
  }

  void parse_filter_block(Statement& statement) {
    statement.type = St::filter_block;
    statement.value = parse_filter(nullptr, now().offset);
    while (is_op("|")) {
      const int64_t offset = take().offset;
      statement.value = parse_filter(std::move(statement.value), offset);
    }
    expect_block_end();
    statement.body = parse_block({"endfilter"});
    take_end_tag();
  }

  void parse_with(Statement& statement) {
    statement.type = St::scope;
    while (now().type == Type::name) {
      Parameter parameter;
      parameter.name = expect_name();
      expect_op("=");
      parameter.fallback = parse_expression();
      statement.parameters.push_back(std::move(parameter));
      if (!take_op(",")) break;
    }
    expect_block_end();
    statement.body = parse_block({"endwith"});
    take_end_tag();
  }

  int loops_ = 0;
};

}  // namespace

Block parse_template(std::string_view source) {
  return Parser(source).run();
}

}  // namespace fovea::text::jinja
