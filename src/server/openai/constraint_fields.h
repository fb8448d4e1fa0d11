#pragma once
// Structured output in requests: response_format, and the fields of vLLM, SGLang and llama.cpp.
#include <memory>

#include "fovea/engine.h"
#include "server/openai/request_body.h"

namespace fovea::openai {

/// The constraint that a request asks for, null = none. Errors go to `fields`: a field of the wrong form, and
/// two fields that both ask for one.
std::shared_ptr<const OutputConstraint> read_constraint(Fields& fields);

/// The fields that it reads.
std::span<const std::string_view> constraint_fields();

/// Whether the constraint comes from a field of OpenAI's, Anthropic's or Ollama's API: the form of an
/// answer's text, if it has one. Others, such as guided_json, are of the whole answer.
bool is_form_of_text(const OutputConstraint& constraint);

}  // namespace fovea::openai
