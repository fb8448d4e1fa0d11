// Compiles schemas and says which texts they allow, for json_schema_suite.py. A line of the input is a JSON
// object
// {"schema": TEXT, "texts": [TEXT]}; a line of the output is an error, or 0 and 1 for the texts.
#include <iostream>
#include <string>

#include "grammar/compile.h"
#include "text/json_value.h"

int main() {
  using namespace fovea;
  const auto trie = std::make_shared<grammar::TokenTrie>(
      256, [](int32_t id) { return std::string(1, static_cast<char>(id)); }, [](int32_t) { return false; },
      std::vector<int32_t>());
  for (std::string line; std::getline(std::cin, line);) {
    const auto input = text::parse_json(line, "the line");
    if (!input || !input->find("schema") || !input->find("texts")) return 2;
    grammar::ConstraintSpec spec;
    spec.kind = grammar::ConstraintSpec::Kind::json_schema;
    spec.text = *input->find("schema")->string();
    const auto constraint = grammar::compile_constraint(spec, trie);
    if (!constraint) {
      std::cout << "error: " << constraint.error().message << std::endl;
      continue;
    }
    std::string verdicts;
    for (const text::Json& text : *input->find("texts")->array())
      verdicts += (*constraint)->allows(*text.string()) ? '1' : '0';
    std::cout << verdicts << std::endl;
  }
  return 0;
}
