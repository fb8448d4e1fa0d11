#include "engine/logits_processor.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace fovea {
namespace {

constexpr float kMasked = -std::numeric_limits<float>::infinity();
constexpr std::string_view kSpace = " \t\n\v\f\r";

std::vector<int32_t> distinct(std::vector<int32_t> ids) {
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

/// Ids from `logits.size()` on pad the vocabulary and are never sampled: skipped.
void write(std::span<float> logits, int32_t token, float value, std::vector<LogitsProcessor::Edit>& edits) {
  const auto at = static_cast<size_t>(token);
  if (at >= logits.size()) return;
  edits.push_back({token, logits[at]});
  logits[at] = value;
}

}  // namespace

Result<std::vector<std::vector<int32_t>>> tokenize_bad_words(const std::vector<std::string>& words,
                                                             const Tokenizer& tokenizer) {
  std::vector<std::vector<int32_t>> sequences;
  EncodeOptions options;
  options.add_special_tokens = false;
  for (const std::string& word : words) {
    const std::string bare = word.substr(std::min(word.find_first_not_of(kSpace), word.size()));
    FOVEA_TRY(plain, tokenizer.encode(bare, options));
    FOVEA_TRY(spaced, tokenizer.encode(" " + bare, options));
    if (plain.empty())
      return invalid("bad_words has \"" + word + "\", which has no tokens in this model; remove it");
    const bool other = spaced.size() == plain.size() && spaced.front() != plain.front();
    sequences.push_back(std::move(plain));
    if (other) sequences.push_back(std::move(spaced));
  }
  return sequences;
}

LogitsProcessor::LogitsProcessor(const SamplingParams& params, std::vector<std::vector<int32_t>> bad_words,
                                 std::span<const int32_t> end_tokens, const DecoderForcing* forcing,
                                 size_t max_tokens)
    : penalises_(params.repetition_penalty != 1 || params.frequency_penalty != 0 ||
                 params.presence_penalty != 0),
      min_tokens_(static_cast<size_t>(params.min_tokens)),
      max_tokens_(max_tokens),
      forcing_(forcing),
      force_last_(forcing != nullptr && !params.ignore_eos),
      repetition_(params.repetition_penalty),
      frequency_(params.frequency_penalty),
      presence_(params.presence_penalty),
      bias_(params.logit_bias),
      bad_words_(std::move(bad_words)),
      timestamps_(params.timestamps),
      counts_(params.repetition_penalty != 1) {
  if (params.allowed_token_ids) allowed_ = distinct(*params.allowed_token_ids);
  if (min_tokens_ > 0) {
    ends_ = params.stop_token_ids;
    ends_.insert(ends_.end(), end_tokens.begin(), end_tokens.end());
    ends_ = distinct(std::move(ends_));
  }
  const bool forces = forcing && !(forcing->suppressed.empty() && forcing->suppressed_first.empty());
  active_ = forces || penalises_ || !ends_.empty() || !bias_.empty() || !bad_words_.empty() || timestamps_;
}

cuda::EditSpec LogitsProcessor::edit_spec(std::vector<cuda::TokenBias>& bias) const {
  bias.clear();
  for (const LogitBias& b : bias_)
    bias.push_back({b.token_id, b.bias});
  cuda::EditSpec spec;
  spec.bad_words = bad_words_;
  spec.ends = ends_;
  spec.min_tokens = static_cast<int32_t>(min_tokens_);
  if (forcing_) {
    spec.suppressed = forcing_->suppressed;
    spec.suppressed_first = forcing_->suppressed_first;
    if (force_last_) spec.forced_last = forcing_->last;
  }
  spec.bias = bias;
  spec.repetition_penalty = repetition_;
  spec.frequency_penalty = frequency_;
  spec.presence_penalty = presence_;
  spec.allowed = allowed_;
  spec.max_tokens = static_cast<int32_t>(max_tokens_);
  return spec;
}

void LogitsProcessor::apply(std::span<const int32_t> tokens, size_t prompt_len, std::span<float> logits,
                            std::vector<Edit>& edits) {
  const auto answer = tokens.subspan(prompt_len);
  apply_bad_words(answer, logits, edits);
  if (answer.size() < min_tokens_)
    for (const int32_t token : ends_)
      write(logits, token, kMasked, edits);
  if (forcing_) {
    for (const int32_t token : forcing_->suppressed)
      write(logits, token, kMasked, edits);
    if (answer.empty())
      for (const int32_t token : forcing_->suppressed_first)
        write(logits, token, kMasked, edits);
  }
  for (const LogitBias& b : bias_)
    if (const auto at = static_cast<size_t>(b.token_id); at < logits.size())
      write(logits, b.token_id, logits[at] + b.bias, edits);
  if (penalises_) {
    counts_.update(tokens, prompt_len);
    apply_penalties(logits, edits);
  }
  if (timestamps_) apply_timestamps(answer, logits, edits);
}

void LogitsProcessor::apply_bad_words(std::span<const int32_t> answer, std::span<float> logits,
                                      std::vector<Edit>& edits) const {
  for (const std::vector<int32_t>& word : bad_words_) {
    const size_t before = word.size() - 1;
    if (before <= answer.size() && std::equal(word.begin(), word.end() - 1, answer.last(before).begin()))
      write(logits, word.back(), kMasked, edits);
  }
}

void LogitsProcessor::apply_penalties(std::span<float> logits, std::vector<Edit>& edits) const {
  constexpr float kMax = std::numeric_limits<float>::max();
  for (const auto& [token, answered] : counts_.entries()) {
    if (static_cast<size_t>(token) >= logits.size()) continue;
    float x = logits[static_cast<size_t>(token)];
    if (x == kMasked) continue;
    x = x > 0 ? x / repetition_ : x * repetition_;
    if (answered > 0) {
      x -= frequency_ * static_cast<float>(answered);
      x -= presence_;
    }
    write(logits, token, std::clamp(x, -kMax, kMax), edits);  // a tiny divisor would make it infinite
  }
}

void LogitsProcessor::apply_timestamps(std::span<const int32_t> answer, std::span<float> logits,
                                       std::vector<Edit>& edits) const {
  const int32_t first = timestamps_->first, end = static_cast<int32_t>(logits.size());
  const auto exclude = [&](int32_t from, int32_t to) {
    for (int32_t id = from; id < std::min(to, end); ++id)
      if (logits[static_cast<size_t>(id)] != kMasked) write(logits, id, kMasked, edits);
  };
  exclude(timestamps_->off, timestamps_->off + 1);
  const auto is_time = [first](int32_t id) { return id >= first; };
  const bool last = !answer.empty() && is_time(answer.back());
  const bool opened = last && (answer.size() < 2 || is_time(answer[answer.size() - 2]));
  if (opened)
    exclude(first, end);
  else if (last)
    exclude(0, timestamps_->text_end);
  if (answer.empty()) {
    exclude(0, first);
    exclude(first + timestamps_->most_initial + 1, end);
  } else if (const auto newest = std::find_if(answer.rbegin(), answer.rend(), is_time);
             newest != answer.rend()) {
    exclude(first, last && !opened ? *newest : *newest + 1);
  }
  const auto text = logits.first(static_cast<size_t>(std::min(first, end)));
  const auto times = logits.subspan(text.size());
  const float most = times.empty() ? kMasked : *std::max_element(times.begin(), times.end());
  if (most == kMasked || text.empty()) return;
  double sum = 0;
  for (const float x : times)
    sum += std::exp(static_cast<double>(x) - static_cast<double>(most));
  const float best_text = *std::max_element(text.begin(), text.end());
  if (static_cast<double>(most) + std::log(sum) > static_cast<double>(best_text)) exclude(0, first);
}

void LogitsProcessor::undo(std::span<float> logits, std::vector<Edit>& edits) {
  for (; !edits.empty(); edits.pop_back())  // last to first: a token may have been written more than once
    logits[static_cast<size_t>(edits.back().token)] = edits.back().before;
}

}  // namespace fovea
