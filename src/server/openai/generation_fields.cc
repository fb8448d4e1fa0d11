#include "server/openai/generation_fields.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "engine/validate_sampling.h"
#include "server/openai/constraint_fields.h"

namespace fovea::openai {
namespace {

using text::Json;

constexpr size_t kMaxTexts = 1024;  // strings in a list; the engine has lower limits
constexpr float kMaxBias = 100;
constexpr float kMaxTemperature = 2;  // OpenAI's limit

void read_bias(Fields& fields, SamplingParams& out) {
  const Json* value = fields.find("logit_bias");
  if (!value) return;
  if (!value->object()) {
    fields.refuse("logit_bias", *value, R"(an object of token ids and numbers, as {"13": -100})");
    return;
  }
  out.logit_bias.clear();
  for (const auto& [key, bias] : *value->object()) {
    LogitBias b;
    const char* end = key.data() + key.size();
    const auto got = std::from_chars(key.data(), end, b.token_id);
    if (got.ec != std::errc() || got.ptr != end || b.token_id < 0) {
      fields.fail("logit_bias", "logit_bias has the key " + shown(Json(key)) +
                                    "; keys must be token ids, as in {\"13\": -100}");
      return;
    }
    const double number = bias.integer() ? static_cast<double>(*bias.integer())
                          : bias.real()  ? *bias.real()
                                         : 0;
    if (!bias.integer() && !bias.real()) {
      fields.fail("logit_bias", "logit_bias of token " + std::to_string(b.token_id) + " is " + shown(bias) +
                                    "; it must be a number from -100 to 100");
      return;
    }
    b.bias = std::clamp(static_cast<float>(std::clamp(number, -1e6, 1e6)), -kMaxBias, kMaxBias);
    out.logit_bias.push_back(b);
  }
}

void read_sampling(Fields& fields, SamplingParams& out) {
  read_temperature(fields, out);
  fields.read("top_p", out.top_p);
  fields.read("top_k", out.top_k, -1);
  fields.read("min_p", out.min_p);
  fields.read("repetition_penalty", out.repetition_penalty);
  fields.read("frequency_penalty", out.frequency_penalty);
  fields.read("presence_penalty", out.presence_penalty);
  read_bias(fields, out);
  if (std::vector<int32_t> allowed; fields.read_ids("allowed_token_ids", allowed))
    out.allowed_token_ids = std::move(allowed);
  fields.read_strings("bad_words", out.bad_words, kMaxTexts);
  fields.read_seed("seed", out.seed);
  fields.read("n", out.n, 1, kMaxChoices);
  fields.read("min_tokens", out.min_tokens, 0);
  fields.read_string_or_strings("stop", out.stop, kMaxTexts);
  fields.read_ids("stop_token_ids", out.stop_token_ids);
  fields.read("ignore_eos", out.ignore_eos);
  fields.read("skip_special_tokens", out.skip_special_tokens);
  fields.read("include_stop_str_in_output", out.include_stop_str_in_output);
}

void read_stream(Fields& fields, GenerationRequest& out) {
  fields.read("stream", out.stream);
  const Json* value = fields.find("stream_options");
  if (!value) return;
  Fields options(*value, "stream_options");
  options.read("include_usage", out.include_usage);
  options.read("continuous_usage_stats", out.continuous_usage);
  out.continuous_usage = out.continuous_usage && out.include_usage;  // as vLLM
  options.close();
  fields.join(options);
  if (!out.stream)
    fields.fail("stream_options",
                "stream_options is only allowed with stream = true; set stream, or leave it out");
}

/// The engine's messages begin with the name of the field, which becomes the error's `param`.
ApiError named(const Error& error) {
  constexpr std::string_view kName = "abcdefghijklmnopqrstuvwxyz_";
  return bad_request(error.message, error.message.substr(0, error.message.find_first_not_of(kName)));
}

}  // namespace

void read_temperature(Fields& fields, SamplingParams& out) {
  fields.read("temperature", out.temperature);
  if (out.temperature > kMaxTemperature)
    if (const Json* given = fields.find("temperature")) fields.refuse("temperature", *given, "0 to 2");
}

void read_generation(Fields& fields, const SamplingParams& defaults, GenerationRequest& out) {
  out.sampling = defaults;
  fields.read("model", out.model);
  read_sampling(fields, out.sampling);
  read_stream(fields, out);
  if (int count = 0; fields.read("prompt_logprobs", count, -1)) out.prompt_logprobs = count;
  fields.read("priority", out.priority, std::numeric_limits<int>::min());
  if (fields.read("cache_salt", out.cache_salt) && out.cache_salt.empty())
    fields.fail("cache_salt",
                "cache_salt is empty; give a secret of those who share the cache, or leave it out");
  fields.read("return_token_ids", out.return_token_ids);
  fields.read("return_tokens_as_token_ids", out.return_tokens_as_ids);
  fields.read("echo", out.echo);
  fields.read("add_special_tokens", out.add_special_tokens);
  bool spaces = true;
  if (fields.read("spaces_between_special_tokens", spaces) && !spaces)
    fields.fail(
        "spaces_between_special_tokens",
        "spaces_between_special_tokens is false; this server's tokenizers put none there: leave it out");
  out.sampling.constraint = read_constraint(fields);
}

std::optional<ApiError> check_generation(const GenerationRequest& request, int max_logprobs) {
  constexpr int kAnyVocabulary = std::numeric_limits<int>::max();
  const SamplingLimits limits{kAnyVocabulary, kAnyVocabulary, max_logprobs};
  if (const Status status = validate_sampling(request.sampling, limits); !status)
    return named(status.error());
  if (const Status status = validate_logprobs("prompt_logprobs", request.prompt_logprobs, limits); !status)
    return named(status.error());
  if (request.prompt_logprobs && request.stream)
    return bad_request("prompt_logprobs is not available with stream = true; set stream to false",
                       "prompt_logprobs");
  return {};
}

}  // namespace fovea::openai
