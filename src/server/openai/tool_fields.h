#pragma once
// Tools in chat requests: what the template gets, and what calls are constrained to.
#include <map>
#include <string>
#include <vector>

#include "server/openai/request_body.h"

namespace fovea::openai {

struct ToolRequest {
  enum class Choice : uint8_t { none, automatic, required, named };
  std::string tools;  ///< a JSON list for the template; "" = none are given
  Choice choice = Choice::none;
  std::string named;     ///< Choice::named: the tool
  bool parallel = true;  ///< several calls in an answer
  /// JSON schemas: of the list of calls that Choice::required wants, of the named tool's arguments.
  std::string calls_schema, arguments_schema;
  std::map<std::string, std::map<std::string, std::string>> types;  ///< AnswerFormat::types
  struct Function {
    std::string name, schema;  ///< schema: of the arguments, JSON
    size_t index = 0;          ///< in the request's list
  };
  std::vector<Function> forced;  ///< Choice::required, named: those that may be called
};

/// Reads "tools", "tool_choice" and "parallel_tool_calls".
void read_tools(Fields& fields, ToolRequest& out);

}  // namespace fovea::openai
