#include "server/openai/conversation_fields.h"

#include <algorithm>

#include "server/openai/generation_fields.h"
#include "server/openai/json_writer.h"

namespace fovea::openai {
namespace {

using text::Json;

Json word(std::string text) {
  return Json(std::move(text));
}

void set_default(Json::Object& object, const char* name, Json value) {
  if (std::ranges::find(object, name, &std::pair<std::string, Json>::first) == object.end())
    object.emplace_back(name, std::move(value));
}

}  // namespace

ApiResult<ConversationRequest> parse_conversation(
    std::string_view body, const ParseOptions& options,
    const std::function<void(Fields&, ConversationRequest&)>& read) {
  auto json = parse_body(body);
  if (!json) return std::move(json).error();
  Fields fields(*json);
  ConversationRequest out;
  out.common.add_special_tokens = false;
  out.common.sampling = options.defaults;
  out.common.sampling.logprobs.reset();
  read(fields, out);
  fields.close(false);
  if (auto error = fields.outcome(UnknownFields::ignored)) return *std::move(error);
  out.ignored = fields.unknown();
  if (auto error = check_generation(out.common, options.max_logprobs)) return *std::move(error);
  return out;
}

void read_conversation_sampling(Fields& fields, GenerationRequest& out) {
  SamplingParams& sampling = out.sampling;
  read_temperature(fields, sampling);
  fields.read("top_p", sampling.top_p);
  fields.read("top_k", sampling.top_k, -1);
  fields.read("min_p", sampling.min_p);
  fields.read("repetition_penalty", sampling.repetition_penalty);
  fields.read("frequency_penalty", sampling.frequency_penalty);
  fields.read("presence_penalty", sampling.presence_penalty);
  fields.read_seed("seed", sampling.seed);
  fields.read("min_tokens", sampling.min_tokens, 0);
  fields.read("ignore_eos", sampling.ignore_eos);
}

Json function_tool(std::string name, const std::string* description, const Json* parameters) {
  Json::Object function{{"name", word(std::move(name))}};
  if (description) function.emplace_back("description", word(*description));
  function.emplace_back("parameters", parameters ? *parameters : Json(Json::Object{}));
  return Json(Json::Object{{"type", word("function")}, {"function", Json(std::move(function))}});
}

Json named_choice(std::string name) {
  return Json(Json::Object{{"type", word("function")},
                           {"function", Json(Json::Object{{"name", word(std::move(name))}})}});
}

void take_tools(Fields& fields, Json::Array tools, Json choice, bool parallel, ConversationRequest& out) {
  Json::Object members;
  if (!tools.empty()) members.emplace_back("tools", Json(std::move(tools)));
  if (!choice.is_null()) members.emplace_back("tool_choice", std::move(choice));
  members.emplace_back("parallel_tool_calls", Json(parallel));
  const Json object(std::move(members));
  const LookedFor elsewhere;  // these are not the request's own members
  Fields own(object);
  read_tools(own, out.tools);
  fields.join(own);
  if (out.tools.choice != ToolRequest::Choice::none) out.chat.tools = out.tools.tools;
}

void set_thinking(Json::Object& kwargs, bool on) {
  set_default(kwargs, "enable_thinking", Json(on));
  set_default(kwargs, "thinking", Json(on));
}

void set_effort(Json::Object& kwargs, std::string effort) {
  set_default(kwargs, "reasoning_effort", word(std::move(effort)));
}

void constrain_to_schema(GenerationRequest& out, std::string field, std::string schema, bool strict) {
  OutputConstraint constraint;
  constraint.name = std::move(field);
  constraint.kind = OutputConstraint::Kind::json_schema;
  constraint.text = std::move(schema);
  constraint.strict = strict;
  out.sampling.constraint = std::make_shared<const OutputConstraint>(std::move(constraint));
}

}  // namespace fovea::openai
