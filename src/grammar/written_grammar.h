#pragma once
// Grammars as text: GBNF (llama.cpp's; also what others call EBNF: `name ::= ...`) and Lark's form.
#include <string_view>

#include "fovea/result.h"
#include "grammar/grammar.h"

namespace fovea::grammar {

/// `root ::= ...` with "literals", [classes], (groups), alternatives, * + ? {n} {n,} {n,m} and # comments.
Result<Symbol> add_gbnf(Grammar& grammar, std::string_view text);

/// `start: ...` with rules, TERMINALS, "literals" (also "..."i and "a".."z"), /regular expressions/, groups,
/// [optional parts], alternatives, * + ? ~n ~n..m, %ignore, %import common.NAME and // comments. Every text
/// that the rules give is allowed; priorities and aliases mean nothing.
Result<Symbol> add_lark(Grammar& grammar, std::string_view text);

/// GBNF if it has ::=, else Lark.
Result<Symbol> add_written_grammar(Grammar& grammar, std::string_view text);

}  // namespace fovea::grammar
