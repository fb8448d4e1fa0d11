#include "server/openai/response.h"

#include "server/openai/answer_json.h"
#include "server/openai/json_writer.h"
#include "server/openai/logprobs_json.h"

namespace fovea::openai {
namespace {

class ResponseWriter {
 public:
  ResponseWriter(const ResponseHead& head, const GenerationRequest& request, const TokenText& words)
      : head_(head), request_(request), words_(words) {}

  std::string write(std::span<const Choice> choices, const Usage& usage) {
    out_ = "{\"id\":";
    append_string(out_, head_.id);
    out_ += is_chat() ? ",\"object\":\"chat.completion\"" : ",\"object\":\"text_completion\"";
    out_ += ",\"created\":";
    append_integer(out_, head_.created);
    out_ += ",\"model\":";
    append_string(out_, head_.model);
    out_ += ",\"choices\":[";
    for (size_t i = 0; i < choices.size(); ++i) {
      if (i) out_ += ',';
      append_choice(choices[i]);
    }
    out_ += "],\"usage\":";
    append_usage(out_, usage);
    append_metrics(out_, usage);
    if (is_chat() && !choices.empty()) append_prompt(choices[0]);  // a chat has one prompt
    out_ += '}';
    return std::move(out_);
  }

 private:
  bool is_chat() const { return head_.kind == ApiKind::chat; }

  void append_choice(const Choice& choice) {
    out_ += "{\"index\":";
    append_integer(out_, choice.index);
    out_ += is_chat() ? ",\"message\":{\"role\":\"assistant\",\"content\":" : ",\"text\":";
    if (choice.text.empty() && !choice.calls.empty())
      out_ += "null";
    else
      append_string(out_, choice.text);
    if (is_chat()) append_parts(choice);
    out_ += ",\"logprobs\":";
    append_logprobs(choice);
    out_ += ",\"finish_reason\":";
    if (choice.finish == FinishReason::stop && !choice.calls.empty() && !choice.ends_in_call)
      out_ += "\"tool_calls\"";
    else
      append_finish(out_, choice.finish);
    out_ += ",\"stop_reason\":";
    append_stop_reason(out_, choice.stop_reason, choice.stop_token, request_.sampling);
    if (request_.return_token_ids) {
      out_ += ",\"token_ids\":";
      append_ids(out_, choice.token_ids);
    }
    if (!is_chat()) append_prompt(choice);
    out_ += '}';
  }

  void append_parts(const Choice& choice) {
    out_ += ",\"refusal\":null";
    if (!choice.reasoning.empty()) {
      for (const char* name :
           {",\"reasoning\":", ",\"reasoning_content\":"}) {  // vLLM's new name, and the older
        out_ += name;
        append_string(out_, choice.reasoning);
      }
    }
    if (!choice.calls.empty()) {
      out_ += ',';
      append_calls(out_, choice.calls, false);
    }
    out_ += '}';
  }

  void append_logprobs(const Choice& choice) {
    if (!choice.wants_logprobs) {
      out_ += "null";
    } else if (is_chat()) {
      append_chat_logprobs(out_, choice.logprobs, words_);
    } else {
      CompletionLogprobs logprobs(words_, choice.echoed ? 0 : choice.text_offset);
      if (choice.echoed) {
        if (!choice.prompt_ids.empty()) logprobs.add_first(choice.prompt_ids[0]);
        for (const TokenLogprobs& token : choice.prompt_logprobs)
          logprobs.add(token);
      }
      for (const TokenLogprobs& token : choice.logprobs)
        logprobs.add(token);
      logprobs.append_to(out_);
    }
  }

  void append_prompt(const Choice& choice) {
    if (request_.prompt_logprobs) {
      out_ += ",\"prompt_logprobs\":";
      append_prompt_logprobs(out_, choice.prompt_ids, choice.prompt_logprobs, words_);
    }
    if (request_.return_token_ids) {
      out_ += ",\"prompt_token_ids\":";
      append_ids(out_, choice.prompt_ids);
    }
  }

  const ResponseHead& head_;
  const GenerationRequest& request_;
  const TokenText& words_;
  std::string out_;
};

}  // namespace

std::string response_json(const ResponseHead& head, std::span<const Choice> choices, const Usage& usage,
                          const GenerationRequest& request, const TokenText& words) {
  return ResponseWriter(head, request, words).write(choices, usage);
}

}  // namespace fovea::openai
