#pragma once
// How a model writes tool calls and reasoning: by flags, or as its chat template shows.
#include <functional>
#include <optional>
#include <string>

#include "fovea/engine.h"
#include "server/openai/request.h"

namespace fovea::server {

struct AnswerFormats {
  openai::ToolFormat tools = openai::ToolFormat::none;
  std::string think_begin, think_end;  ///< "" = no reasoning
  /// The template renders a system message behind others as a turn of its own.
  bool system_turns_anywhere = false;
};

using Render = std::function<Result<std::string>(const ChatRequest&)>;

/// `tools`, `reasoning`: ServiceConfig's names. `render`: the model's chat template, null = it has none.
/// Renders a conversation with a call and reasoning to see how the template writes them. Error: an unknown
/// name.
Result<AnswerFormats> find_answer_formats(const Render& render, const std::string& tools,
                                          const std::string& reasoning);

/// Sets the variables of the template that `chat` does not set; `defaults`: a JSON object, "" = none.
void add_template_defaults(const std::string& defaults, ChatRequest& chat);

/// Why a request's tools can't be served.
std::optional<openai::ApiError> check_tools(const AnswerFormats& formats, const openai::ToolRequest& tools);

/// The error of a constraint that can't be used, with the field's name; for schemas of tools, with the
/// tool's.
openai::ApiError constraint_error(const OutputConstraint& constraint, openai::ApiError error);

/// How the answers to `prompt` are split, and what a tool choice constrains them to.
void apply_formats(const AnswerFormats& formats, const openai::ToolRequest& tools, const std::string& prompt,
                   openai::GenerationRequest& request);

}  // namespace fovea::server
