#include "engine/validate_sampling.h"

#include <cmath>
#include <cstdio>
#include <unordered_set>

#include "engine/sampler.h"
#include "text/utf8.h"

namespace fovea {
namespace {

constexpr size_t kMaxStops = 64, kMaxStopTokens = 1024;
constexpr size_t kMaxBiases = 1024;  // vLLM's
constexpr size_t kMaxBadWords = 1024;
constexpr size_t kMaxTextBytes = 1024;  // of a stop string or a bad word
constexpr float kMaxPenalty = 2, kMaxBias = 100;

std::string number(float x) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", static_cast<double>(x));
  return text;
}

/// "NAME is VALUE; it must be ALLOWED"
Error refuse(const std::string& name, const std::string& value, const std::string& allowed) {
  return invalid(name + " is " + value + "; it must be " + allowed);
}

Status check_count(const std::string& name, const std::string& what, size_t count, size_t most) {
  if (count <= most) return {};
  return invalid(name + " has " + std::to_string(count) + " " + what + "; at most " + std::to_string(most) +
                 " are allowed");
}

Status check_id(const std::string& name, int32_t id, int vocab_size) {
  if (id >= 0 && id < vocab_size) return {};
  return invalid(name + " has " + std::to_string(id) + "; this model's ids are 0 to " +
                 std::to_string(vocab_size - 1));
}

Status check_penalty(const std::string& name, float value) {
  if (value >= -kMaxPenalty && value <= kMaxPenalty) return {};
  return refuse(name, number(value), "-2 to 2 (0 = off)");
}

Status check_texts(const std::string& name, const std::vector<std::string>& texts, size_t most) {
  FOVEA_RETURN_IF_ERROR(check_count(name, "strings", texts.size(), most));
  for (const std::string& text : texts) {
    if (text.find_first_not_of(name == "stop" ? "" : " \t\n\v\f\r") == std::string::npos)
      return invalid(name + " has an empty string; remove it");
    if (text.size() > kMaxTextBytes)
      return invalid(name + " has a string of " + std::to_string(text.size()) + " bytes; at most " +
                     std::to_string(kMaxTextBytes) + " are allowed");
    if (!text::is_valid_utf8(text)) return invalid(name + " has a string that is not valid UTF-8");
  }
  return {};
}

Status check_filters(const SamplingParams& p) {
  if (!std::isfinite(p.temperature) || p.temperature < 0)
    return refuse("temperature", number(p.temperature), "a finite number, 0 or more");
  if (!(p.top_p > 0 && p.top_p <= 1))
    return refuse("top_p", number(p.top_p), "above 0 and at most 1 (1 = off)");
  if (!(p.min_p >= 0 && p.min_p <= 1)) return refuse("min_p", number(p.min_p), "0 (off) to 1");
  if (p.top_k < -1) return refuse("top_k", std::to_string(p.top_k), "1 or more, or 0 or -1 for off");
  if (!(std::isfinite(p.repetition_penalty) && p.repetition_penalty > 0))
    return refuse("repetition_penalty", number(p.repetition_penalty), "a finite number above 0 (1 = off)");
  FOVEA_RETURN_IF_ERROR(check_penalty("frequency_penalty", p.frequency_penalty));
  return check_penalty("presence_penalty", p.presence_penalty);
}

Status check_lengths(const SamplingParams& p) {
  if (p.max_tokens && *p.max_tokens < 0)
    return refuse("max_tokens", std::to_string(*p.max_tokens), "1 or more");
  if (p.min_tokens < 0) return refuse("min_tokens", std::to_string(p.min_tokens), "0 or more");
  if (p.max_tokens && p.min_tokens > *p.max_tokens)
    return refuse("min_tokens", std::to_string(p.min_tokens),
                  "at most max_tokens, which is " + std::to_string(*p.max_tokens));
  if (p.n < 1 || p.n > kMaxChoices)
    return refuse("n", std::to_string(p.n), "1 to " + std::to_string(kMaxChoices));
  if (p.n > 1 && p.temperature < kGreedyTemperature)
    return invalid("n is " + std::to_string(p.n) + " with temperature " + number(p.temperature) +
                   ": all answers would be the same; give a temperature above 0, or n = 1");
  if (p.n > 1 && p.max_tokens == 0)
    return invalid("n is " + std::to_string(p.n) + " with max_tokens 0: there is one prompt; give n = 1");
  return {};
}

Status check_tokens(const SamplingParams& p, const SamplingLimits& limits) {
  FOVEA_RETURN_IF_ERROR(check_count("stop_token_ids", "ids", p.stop_token_ids.size(), kMaxStopTokens));
  for (const int32_t id : p.stop_token_ids)
    FOVEA_RETURN_IF_ERROR(check_id("stop_token_ids", id, limits.vocab_size));
  FOVEA_RETURN_IF_ERROR(check_count("logit_bias", "tokens", p.logit_bias.size(), kMaxBiases));
  std::unordered_set<int32_t> biased;
  for (const LogitBias& b : p.logit_bias) {
    FOVEA_RETURN_IF_ERROR(check_id("logit_bias", b.token_id, limits.sampled_vocab));
    const std::string name = "logit_bias of token " + std::to_string(b.token_id);
    if (!(b.bias >= -kMaxBias && b.bias <= kMaxBias)) return refuse(name, number(b.bias), "-100 to 100");
    if (!biased.insert(b.token_id).second) return invalid(name + " is given twice; give each token once");
  }
  if (!p.allowed_token_ids) return {};
  const auto& allowed = *p.allowed_token_ids;
  if (allowed.empty())
    return invalid(
        "allowed_token_ids is empty, which leaves nothing to draw; give at least one id, or leave it out");
  FOVEA_RETURN_IF_ERROR(
      check_count("allowed_token_ids", "ids", allowed.size(), static_cast<size_t>(limits.sampled_vocab)));
  for (const int32_t id : allowed)
    FOVEA_RETURN_IF_ERROR(check_id("allowed_token_ids", id, limits.sampled_vocab));
  return {};
}

Status check_timestamps(const SamplingParams& p, const SamplingLimits& limits) {
  if (!p.timestamps) return {};
  const TimestampRules& rules = *p.timestamps;
  if (rules.most_initial < 0)
    return refuse("timestamps.most_initial", std::to_string(rules.most_initial), "0 or more");
  for (const int32_t id : {rules.first, rules.text_end, rules.off})
    FOVEA_RETURN_IF_ERROR(check_id("timestamps", id, limits.sampled_vocab));
  return {};
}

}  // namespace

Status validate_logprobs(const char* name, const std::optional<int>& wanted, const SamplingLimits& limits) {
  if (!wanted) return {};
  const std::string given = std::to_string(*wanted);
  if (*wanted < -1) return refuse(name, given, "0 or more, or -1 for the whole vocabulary");
  const int count = *wanted < 0 ? limits.vocab_size : *wanted;
  if (limits.max_logprobs >= 0 && count > limits.max_logprobs)
    return refuse(name, given,
                  "at most " + std::to_string(limits.max_logprobs) + " (--max-logprobs raises this)");
  if (count > limits.vocab_size)
    return refuse(name, given, "at most " + std::to_string(limits.vocab_size) + ", this model's vocabulary");
  return {};
}

Status validate_sampling(const SamplingParams& params, const SamplingLimits& limits) {
  FOVEA_RETURN_IF_ERROR(check_filters(params));
  FOVEA_RETURN_IF_ERROR(check_lengths(params));
  FOVEA_RETURN_IF_ERROR(check_texts("stop", params.stop, kMaxStops));
  FOVEA_RETURN_IF_ERROR(check_texts("bad_words", params.bad_words, kMaxBadWords));
  FOVEA_RETURN_IF_ERROR(check_tokens(params, limits));
  FOVEA_RETURN_IF_ERROR(check_timestamps(params, limits));
  return validate_logprobs("logprobs", params.logprobs, limits);
}

}  // namespace fovea
