// An arbitrary body, read as a request of each API with conversations: it is refused in one short line, or
// its messages are JSON of the form that chat templates take, and calls are followed by their results only.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "fovea/result.h"
#include "server/anthropic/request.h"
#include "server/anthropic/writer.h"
#include "server/ollama/request.h"
#include "server/openai/json_writer.h"
#include "server/responses/request.h"
#include "server/responses/writer.h"
#include "text/json_value.h"

namespace {

using namespace fovea;
using namespace fovea::openai;

text::Json check_json(std::string_view json) {
  auto parsed = text::parse_json(json, "output");
  if (!parsed) std::abort();
  return *std::move(parsed);
}

void check_error(const ApiError& error) {
  check_json(error_json(error));
  if (error.status != 400 || error.message.empty() || error.message.size() > 1000) std::abort();
}

void check_messages(const ConversationRequest& request, bool anywhere) {
  const text::Json messages = check_json(messages_json(place_system_turns(request.turns, anywhere)));
  if (!messages.array()) std::abort();
  std::string before;
  for (const text::Json& message : *messages.array()) {
    const std::string* role = message.find("role") ? message.find("role")->string() : nullptr;
    const text::Json* content = message.find("content");
    if (!role || !content || !content->string()) std::abort();
    // Neighbours of one role are one message, except for tools' results.
    if (*role == before && *role != "tool") std::abort();
    before = *role;
    if (const text::Json* calls = message.find("tool_calls"))
      for (const text::Json& call : *calls->array())
        if (!call.find("function")->find("arguments")->object()) std::abort();
  }
}

void check(const ConversationRequest& request) {
  for (const bool anywhere : {false, true})
    check_messages(request, anywhere);
  if (!request.chat.template_kwargs.empty() && !check_json(request.chat.template_kwargs).object())
    std::abort();
  if (!request.chat.tools.empty() && !check_json(request.chat.tools).array()) std::abort();
  for (const std::string& name : request.ignored)
    for (const char c : name)
      if (c < 0x20 || c >= 0x7F || c == ',') std::abort();  // a header has them
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  for (const bool counts : {false, true}) {
    const auto message = anthropic::parse_messages(body, {}, counts);
    if (message)
      check(*message);
    else
      check_error(message.error());
  }
  if (const auto response = responses::parse_responses(body, {})) {
    check(response->conversation);
    Choice choice;
    choice.finish = FinishReason::length;
    check_json(responses::make_responses_writer({"1", "m", 1}, response->echo, response->conversation.common)
                   ->whole({&choice, 1}, {}));
  } else {
    check_error(response.error());
  }
  for (const auto& chat : {ollama::parse_chat(body, {}), ollama::parse_generate(body, {})}) {
    if (chat)
      check(chat->conversation);
    else
      check_error(chat.error());
  }
  return 0;
}
