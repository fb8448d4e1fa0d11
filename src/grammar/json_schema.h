#pragma once
// JSON Schema (draft 2020-12, and what drafts 4 to 7 spell differently) to a grammar of the JSON texts that
// are valid. Properties come in the schema's order, others behind them. Every keyword is enforced or refused
// with its path; annotations (title, description, default, examples, ...) mean nothing.
#include <string>

#include "fovea/result.h"
#include "grammar/grammar.h"
#include "text/json_value.h"

namespace fovea::grammar {

struct JsonOptions {
  /// A regular expression for the white space between tokens. The default allows a blank, or a line end with
  /// an indentation: bounded, since weak models may otherwise never end.
  std::string white_space = "( |\\n[ \\t]{0,64})?";
  /// Objects without additionalProperties have no others: OpenAI's strict mode.
  bool strict = false;
};

/// The symbol of the valid texts. Errors: a keyword that can't be enforced, or that is unknown; a $ref that
/// leads nowhere; a schema that refers to itself without a level between.
Result<Symbol> add_json_schema(Grammar& grammar, const text::Json& schema, const JsonOptions& options);
/// Any JSON object.
Result<Symbol> add_json_object(Grammar& grammar, const JsonOptions& options);

}  // namespace fovea::grammar
