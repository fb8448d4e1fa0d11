// An arbitrary request body, read as each of the five kinds: it is refused in OpenAI's format, or the output
// printed for it, whatever the bytes of its tokens, is valid JSON.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "server/openai/request.h"
#include "server/openai/response.h"
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
  const text::Json json = check_json(error_json(error));
  const text::Json* inner = json.find("error");
  if (error.status != 400 || error.message.empty() || error.message.size() > 1000 || !inner) std::abort();
  for (const char* key : {"message", "type", "param", "code"})
    if (!inner->find(key)) std::abort();
}

void check_events(std::string_view events) {
  while (!events.empty()) {
    const size_t end = events.find("\n\n");
    if (!events.starts_with("data: ") || end == std::string_view::npos) std::abort();
    const std::string_view data = events.substr(6, end - 6);
    if (data != "[DONE]") check_json(data);
    events.remove_prefix(end + 2);
  }
}

/// An answer made from the body's own bytes.
RequestOutput output_of(std::string_view body) {
  RequestOutput out;
  out.text = body.substr(0, 64);
  out.stop_reason = body.substr(0, 2);
  out.finish = FinishReason::stop;
  out.token_ids = {0, 1, 2};
  for (const int32_t id : out.token_ids)
    out.logprobs.push_back({{id, -1, 1}, {{id + 1, -0.5f, 1}, {id, -1, 2}}});
  return out;
}

void check_outputs(std::string_view body, const GenerationRequest& request, ApiKind kind) {
  const auto bytes = [body](int32_t id) {
    return std::string(body.substr(static_cast<size_t>(id) % body.size(), 3));
  };
  const TokenText words{bytes, request.return_tokens_as_ids};
  const ResponseHead head{kind, "id", request.model, 1};
  const RequestOutput out = output_of(body);
  Choice choice;
  choice.text = out.text;
  choice.token_ids = choice.prompt_ids = out.token_ids;
  choice.logprobs = out.logprobs;
  choice.prompt_logprobs = {out.logprobs[0], out.logprobs[1]};
  choice.wants_logprobs = request.sampling.logprobs.has_value();
  choice.echoed = request.echo;
  choice.stop_reason = out.stop_reason;
  choice.stop_token = out.stop_token;
  check_json(response_json(head, {&choice, 1}, {}, request, words));
  StreamWriter writer(head, request, words);
  check_events(writer.first(0, choice.prompt_ids));
  check_events(writer.echo(1, out.text));
  check_events(writer.delta(1, out, {}));
  check_events(writer.last({}));
}

void check_chat(const ChatRequest& chat) {
  if (!check_json(chat.messages).array()) std::abort();
  if (!chat.documents.empty()) check_json(chat.documents);
  if (!chat.template_kwargs.empty() && !check_json(chat.template_kwargs).object()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  if (const auto completion = parse_completion(body, {})) {
    if (completion->prompts.empty()) std::abort();
    check_outputs(body, completion->common, ApiKind::completion);
  } else {
    check_error(completion.error());
  }
  if (const auto chat =
          parse_chat_completion(body, {.max_logprobs = -1, .unknown = UnknownFields::ignored})) {
    check_chat(chat->chat);
    check_outputs(body, chat->common, ApiKind::chat);
  } else {
    check_error(chat.error());
  }
  if (const auto embedding = parse_embedding(body); !embedding) check_error(embedding.error());
  if (const auto tokenize = parse_tokenize(body); !tokenize)
    check_error(tokenize.error());
  else if (tokenize->prompt.has_value() == tokenize->chat.has_value())
    std::abort();
  if (const auto detokenize = parse_detokenize(body); !detokenize) check_error(detokenize.error());
  return 0;
}
