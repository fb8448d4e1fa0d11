#pragma once
// Structural tags: free text with structured parts between tags (vLLM's and XGrammar's form).
#include "fovea/result.h"
#include "grammar/grammar.h"
#include "grammar/json_schema.h"
#include "grammar/token_trie.h"

namespace fovea::grammar {

/// The text; what is the text of a special token is matched by that token only.
Expr text_expression(Expressions& x, const TokenTrie& trie, std::string_view text);

/// {"type": "structural_tag", "format": FORMAT}, or the older {"structures": [{"begin", "schema", "end"}],
/// "triggers": [...]}. A FORMAT's type is const_string, json_schema, regex, grammar, any_text, sequence, or,
/// optional, star, plus, repeat, tag, triggered_tags or tags_with_separator. Text that is a special token of
/// the vocabulary is matched by that token only.
Result<Symbol> add_structural_tag(Grammar& grammar, const text::Json& tag, const JsonOptions& options,
                                  const TokenTrie& trie);

}  // namespace fovea::grammar
