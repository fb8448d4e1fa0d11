#include "server/openai/request.h"

#include <algorithm>

#include "engine/validate_sampling.h"
#include "server/openai/constraint_fields.h"
#include "server/openai/generation_fields.h"
#include "server/openai/messages.h"
#include "server/openai/rerank.h"
#include "server/openai/transcription.h"

namespace fovea::openai {
namespace {

using text::Json;

constexpr int kDefaultCompletionTokens = 16;  // OpenAI's and vLLM's

ApiError prompt_error(const std::string& path, const std::string& is) {
  return bad_request(
      path + " is " + is +
          "; it must be a string, a list of strings, a list of token ids, or a list of such lists",
      path);
}

ApiResult<Prompt> read_prompt(const Json& value, const std::string& path) {
  if (value.string()) return Prompt(*value.string());
  FOVEA_TRY(ids, read_id_list(value, path));
  if (ids.empty()) return bad_request(path + " is []; it needs at least one token id", path);
  return Prompt(std::move(ids));
}

/// Reads a string, a list of strings, a list of ids, or a list of lists of ids.
ApiResult<std::vector<Prompt>> read_prompts(Fields& fields, const char* literal, size_t most) {
  const std::string key = literal;
  const Json* value = fields.find(literal);
  if (!value) return prompt_error(key, "missing");
  if (!value->string() && !value->array()) return prompt_error(key, shown(*value));
  std::vector<Prompt> prompts;
  if (value->string()) {
    prompts.emplace_back(*value->string());
    return prompts;
  }
  const Json::Array& list = *value->array();
  if (list.empty()) return prompt_error(key, "[]");
  const bool of_strings = list[0].string() != nullptr;
  if (!of_strings && !list[0].array()) {
    FOVEA_TRY(prompt, read_prompt(*value, key));
    prompts.push_back(std::move(prompt));
    return prompts;
  }
  if (list.size() > most)
    return bad_request(key + " has " + std::to_string(list.size()) + " entries; at most " +
                           std::to_string(most) + " are allowed in a request",
                       key);
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string path = key + "[" + std::to_string(i) + "]";
    if (of_strings != (list[i].string() != nullptr))
      return bad_request(
          path + " is " + shown(list[i]) + "; all entries must be strings, or all lists of token ids", path);
    FOVEA_TRY(prompt, read_prompt(list[i], path));
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

void read_completion_lengths(Fields& fields, GenerationRequest& out) {
  SamplingParams& sampling = out.sampling;
  const bool scores = out.echo && sampling.logprobs;
  int most = 0;
  out.max_tokens_given = fields.read("max_tokens", most, 0);
  if (out.max_tokens_given && most == 0 && !scores)
    fields.fail(
        "max_tokens",
        "max_tokens is 0; it must be 1 or more (0 only with echo and logprobs, which scores the prompt)");
  if (out.max_tokens_given) sampling.max_tokens = most;
  if (!sampling.max_tokens) sampling.max_tokens = kDefaultCompletionTokens;
  if (scores && out.stream)
    fields.fail("echo", "echo with logprobs is not available with stream = true; set stream to false");
}

void read_chat_lengths(Fields& fields, GenerationRequest& out) {
  int most = 0, older = 0;
  const bool given = fields.read("max_completion_tokens", most, 1);
  const bool older_given = fields.read("max_tokens", older, 1);
  if (given && older_given && most != older)
    fields.fail("max_tokens", "max_tokens is " + std::to_string(older) + " and max_completion_tokens is " +
                                  std::to_string(most) + "; they mean the same: give one of them");
  out.max_tokens_given = given || older_given;
  if (out.max_tokens_given) out.sampling.max_tokens = given ? most : older;
}

/// Reads "logprobs" (true) and "top_logprobs" (K).
void read_chat_logprobs(Fields& fields, int max_logprobs, ChatCompletionRequest& out) {
  bool on = false;
  int top = 0;
  fields.read("logprobs", on);
  out.common.sampling.logprobs.reset();
  out.top_logprobs = fields.read("top_logprobs", top, -1);
  if (top != 0 && !on) fields.fail("top_logprobs", "top_logprobs needs logprobs = true beside it");
  constexpr int kAnyVocabulary = INT32_MAX;
  if (const Status status =
          validate_logprobs("top_logprobs", top, {kAnyVocabulary, kAnyVocabulary, max_logprobs});
      !status)
    fields.fail("top_logprobs", status.error().message);
  if (on) out.common.sampling.logprobs = top;
}

void read_modalities(Fields& fields) {
  std::vector<std::string> modalities;
  if (!fields.read_strings("modalities", modalities, 8)) return;
  for (const std::string& modality : modalities)
    if (modality != "text")
      fields.fail("modalities",
                  "modalities has " + shown(Json(modality)) + "; this server answers with \"text\" only");
}

/// The body's fields, read by `read(fields, out)`.
template <class Request, class Read>
ApiResult<Request> parse(std::string_view body, UnknownFields unknown, const Read& read) {
  FOVEA_TRY(json, parse_body(body));
  Fields fields(json);
  Request out;
  read(fields, out);
  fields.close();
  if (auto error = fields.outcome(unknown)) return *std::move(error);
  out.ignored = fields.unknown();
  return out;
}

void read_completion(Fields& fields, const ParseOptions& options, CompletionRequest& out) {
  if (auto prompts = read_prompts(fields, "prompt", static_cast<size_t>(options.most_prompts)))
    out.prompts = *std::move(prompts);
  else
    fields.fail(prompts.error());
  read_generation(fields, options.defaults, out.common);
  out.common.sampling.logprobs.reset();
  if (int count = 0; fields.read("logprobs", count, -1)) out.common.sampling.logprobs = count;
  read_completion_lengths(fields, out.common);
}

void read_chat_completion(Fields& fields, const ParseOptions& options, ChatCompletionRequest& out) {
  out.common.add_special_tokens = false;
  read_chat(fields, out.chat);
  read_tools(fields, out.tools);
  if (out.tools.choice != ToolRequest::Choice::none) out.chat.tools = out.tools.tools;
  read_generation(fields, options.defaults, out.common);
  const bool calls =
      out.tools.choice == ToolRequest::Choice::required || out.tools.choice == ToolRequest::Choice::named;
  // response_format is the form of a text, which such an answer does not have.
  if (out.common.sampling.constraint && calls && !is_form_of_text(*out.common.sampling.constraint))
    fields.fail("tool_choice",
                "tool_choice asks for calls, and the request also asks for a form of the answer; "
                "leave one of them out");
  fields.read("include_reasoning", out.common.include_reasoning);
  fields.read("separate_reasoning", out.common.splits_reasoning);     // SGLang's
  if (std::string format; fields.read("reasoning_format", format)) {  // llama.cpp's
    if (format != "none" && format != "auto" && format != "deepseek")
      fields.refuse("reasoning_format", Json(format), R"("none", "auto" or "deepseek")");
    out.common.splits_reasoning = out.common.splits_reasoning && format != "none";
  }
  read_chat_lengths(fields, out.common);
  read_chat_logprobs(fields, options.max_logprobs, out);
  read_modalities(fields);
  if (out.common.echo)
    fields.fail("echo", "echo is true; chats have no echo: use /v1/completions, or leave it out");
}

void read_embedding(Fields& fields, EmbeddingRequest& out) {
  fields.read("model", out.model);
  if (auto inputs = read_prompts(fields, "input", kMostPrompts))
    out.inputs = *std::move(inputs);
  else
    fields.fail(inputs.error());
  if (std::string format; fields.read("encoding_format", format)) {
    out.base64 = format == "base64";
    if (!out.base64 && format != "float")
      fields.refuse("encoding_format", Json(format), R"("float" or "base64")");
  }
  if (int dimensions = 0; fields.read("dimensions", dimensions, 1)) out.dimensions = dimensions;
  int truncated = 0;
  out.truncate = fields.read("truncate_prompt_tokens", truncated, -1, -1);
}

void read_tokenize(Fields& fields, TokenizeRequest& out) {
  fields.read("model", out.model);
  const bool is_chat = fields.find("messages") != nullptr;
  if (is_chat == (fields.find("prompt") != nullptr))
    fields.fail("prompt", is_chat ? "prompt and messages are both given; give one of them"
                                  : "prompt is missing; give a string \"prompt\", or a chat's \"messages\"");
  if (is_chat) {
    out.add_special_tokens = false;
    read_chat(fields, out.chat.emplace());
    ToolRequest tools;
    read_tools(fields, tools);
    if (tools.choice != ToolRequest::Choice::none) out.chat->tools = tools.tools;
  } else if (std::string prompt; fields.read("prompt", prompt)) {
    out.prompt = std::move(prompt);
  }
  fields.read("add_special_tokens", out.add_special_tokens);
  fields.read("return_token_strs", out.return_token_strs);
}

void read_detokenize(Fields& fields, DetokenizeRequest& out) {
  fields.read("model", out.model);
  if (!fields.read_ids("tokens", out.tokens))
    fields.fail("tokens", "tokens is missing; it must be a list of token ids");
}

}  // namespace

ApiResult<CompletionRequest> parse_completion(std::string_view body, const ParseOptions& options) {
  auto out = parse<CompletionRequest>(body, options.unknown, [&](Fields& fields, CompletionRequest& request) {
    read_completion(fields, options, request);
  });
  if (!out) return out;
  if (auto error = check_generation(out->common, options.max_logprobs)) return *std::move(error);
  return out;
}

ApiResult<ChatCompletionRequest> parse_chat_completion(std::string_view body, const ParseOptions& options) {
  auto out = parse<ChatCompletionRequest>(body, options.unknown,
                                          [&](Fields& fields, ChatCompletionRequest& request) {
                                            read_chat_completion(fields, options, request);
                                          });
  if (!out) return out;
  if (auto error = check_generation(out->common, options.max_logprobs)) return *std::move(error);
  return out;
}

ApiResult<EmbeddingRequest> parse_embedding(std::string_view body, UnknownFields unknown) {
  return parse<EmbeddingRequest>(body, unknown, read_embedding);
}

ApiResult<TokenizeRequest> parse_tokenize(std::string_view body, UnknownFields unknown) {
  return parse<TokenizeRequest>(body, unknown, read_tokenize);
}

ApiResult<DetokenizeRequest> parse_detokenize(std::string_view body, UnknownFields unknown) {
  return parse<DetokenizeRequest>(body, unknown, read_detokenize);
}

std::vector<ReadFields> read_fields() {
  const Json::Object none;
  const Json empty(none);
  std::vector<ReadFields> all;
  const auto add = [&](std::string_view path, auto&& request, const auto& read) {
    Fields fields(empty);
    read(fields, request);
    std::vector<std::string_view> names = fields.asked();
    std::ranges::sort(names);
    names.erase(std::unique(names.begin(), names.end()), names.end());
    all.push_back({path, std::move(names)});
  };
  const ParseOptions options;
  add("/v1/chat/completions", ChatCompletionRequest(),
      [&](Fields& fields, auto& out) { read_chat_completion(fields, options, out); });
  add("/v1/completions", CompletionRequest(),
      [&](Fields& fields, auto& out) { read_completion(fields, options, out); });
  add("/v1/embeddings", EmbeddingRequest(), read_embedding);
  all.push_back({"/v1/rerank", rerank_fields()});
  all.push_back({"/v1/score", score_fields()});
  const auto form = transcription_fields();
  for (const char* path : {"/v1/audio/transcriptions", "/v1/audio/translations"})
    all.push_back({path, {form.begin(), form.end()}});
  add("/tokenize", TokenizeRequest(), read_tokenize);
  add("/detokenize", DetokenizeRequest(), read_detokenize);
  return all;
}

}  // namespace fovea::openai
