#include "grammar/compile.h"

#include <array>

#include "base/json_depth.h"
#include "base/printable.h"
#include "grammar/regex.h"
#include "grammar/structural_tag.h"
#include "grammar/written_grammar.h"
#include "text/utf8.h"

namespace fovea::grammar {
namespace {

constexpr size_t kMaxChoices = 100'000, kMaxSchema = 4 << 20;

Result<Symbol> add_choices(Grammar& grammar, const std::vector<std::string>& choices) {
  if (choices.empty() || choices.size() > kMaxChoices)
    return invalid("a choice has " + std::to_string(choices.size()) + " texts; it must have 1 to " +
                   std::to_string(kMaxChoices));
  std::vector<Expr> all;
  for (const std::string& choice : choices) {
    if (choice.empty() || !text::is_valid_utf8(choice))
      return invalid("a choice has \"" + printable(choice) +
                     "\"; its texts must be valid UTF-8 and not empty");
    all.push_back(grammar.expressions().literal(choice));
  }
  return grammar.terminal(grammar.expressions().either(all));
}

Result<Symbol> add_opening(Grammar& grammar, const ConstraintSpec& spec, const TokenTrie& trie) {
  Expressions& x = grammar.expressions();
  FOVEA_TRY(white, compile_regex(x, spec.json.white_space, {}));
  std::vector<Expr> all;
  for (const std::string& text : spec.choices)
    all.push_back(text_expression(x, trie, text));
  return grammar.terminal(x.concat(std::array{white, x.either(all), Expressions::kAnything}));
}

Result<Symbol> add(Grammar& grammar, const ConstraintSpec& spec, const TokenTrie& trie) {
  using Kind = ConstraintSpec::Kind;
  switch (spec.kind) {
    case Kind::json_object: return add_json_object(grammar, spec.json);
    case Kind::choice: return add_choices(grammar, spec.choices);
    case Kind::opening: return add_opening(grammar, spec, trie);
    case Kind::grammar: return add_written_grammar(grammar, spec.text);
    case Kind::regex: {
      FOVEA_TRY(text, compile_regex(grammar.expressions(), spec.text, {}));
      return grammar.terminal(text);
    }
    case Kind::json_schema:
    case Kind::structural_tag: break;
  }
  const bool schema = spec.kind == Kind::json_schema;
  const std::string what = schema ? "the schema" : "the structural tag";
  if (spec.text.size() > kMaxSchema) return invalid(what + " is larger than 4 MiB");
  FOVEA_TRY(json, text::parse_json(spec.text, what));
  return schema ? add_json_schema(grammar, json, spec.json)
                : add_structural_tag(grammar, json, spec.json, trie);
}

}  // namespace

std::string ConstraintSpec::key() const {
  std::string key = std::to_string(static_cast<int>(kind)) + (json.strict ? "s" : "-") +
                    std::to_string(json.white_space.size()) + ":" + json.white_space + text;
  for (const std::string& choice : choices)
    key += std::to_string(choice.size()) + ":" + choice;
  return key;
}

Result<std::shared_ptr<Constraint>> compile_constraint(const ConstraintSpec& spec,
                                                       std::shared_ptr<const TokenTrie> trie) {
  Grammar grammar;
  FOVEA_TRY(start, add(grammar, spec, *trie));
  grammar.set_start(start);
  FOVEA_RETURN_IF_ERROR(grammar.finish());
  return std::make_shared<Constraint>(std::move(grammar), std::move(trie));
}

}  // namespace fovea::grammar
