#pragma once
// From what a client asks for to a constraint.
#include <memory>
#include <string>
#include <vector>

#include "fovea/result.h"
#include "grammar/constraint.h"
#include "grammar/json_schema.h"

namespace fovea::grammar {

struct ConstraintSpec {
  enum class Kind : uint8_t {
    json_object,     ///< any JSON object
    json_schema,     ///< text: the schema
    regex,           ///< text: a regular expression for the whole answer
    choice,          ///< choices: the possible answers
    grammar,         ///< text: GBNF or Lark
    structural_tag,  ///< text: JSON, see structural_tag.h
    opening,         ///< choices: what the answer begins with, behind json.white_space; then anything follows
  };
  Kind kind = Kind::json_object;
  std::string text;
  std::vector<std::string> choices;
  JsonOptions json;

  /// Equal for equal constraints.
  std::string key() const;
};

/// Errors are for the client: one line that names what can't be used.
Result<std::shared_ptr<Constraint>> compile_constraint(const ConstraintSpec& spec,
                                                       std::shared_ptr<const TokenTrie> trie);

}  // namespace fovea::grammar
