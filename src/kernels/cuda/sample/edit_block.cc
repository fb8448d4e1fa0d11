#include "kernels/cuda/sample/edit_block.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"

namespace fovea::cuda {
namespace {

uint32_t mask_words(int32_t vocab) {
  return (static_cast<uint32_t>(vocab) + 31) / 32;
}

bool penalises(const EditSpec& spec) {
  return spec.repetition_penalty != 1 || spec.frequency_penalty != 0 || spec.presence_penalty != 0;
}

/// Tokens before the last of the longest bad word, rounded up to a power of two.
uint32_t recent_tokens(const EditSpec& spec) {
  size_t longest = 1;
  for (const std::vector<int32_t>& word : spec.bad_words)
    longest = std::max(longest, word.size());
  return longest == 1 ? 0 : std::bit_ceil(static_cast<uint32_t>(longest - 1));
}

/// The header with all offsets and sizes. Lists have room for all tokens given, those outside of the
/// vocabulary included.
EditBlock lay_out(const EditSpec& spec, int32_t vocab) {
  EditBlock block{};
  uint32_t at = sizeof(EditBlock) / 4;
  const auto place = [&](size_t words) {
    const uint32_t begin = at;
    at += static_cast<uint32_t>(words);
    return words > 0 ? begin : 0;
  };
  block.ends = place(spec.min_tokens > 0 ? spec.ends.size() : 0);
  block.suppressed = place(spec.suppressed.size());
  block.suppressed_first = place(spec.suppressed_first.size());
  block.bias = place(2 * spec.bias.size());
  if (!spec.bad_words.empty()) {
    size_t words = spec.bad_words.size() + 1;
    for (const std::vector<int32_t>& word : spec.bad_words)
      words += word.size();
    block.bad_words = place(words);
  }
  const uint32_t recent = recent_tokens(spec);
  block.recent = place(recent);
  block.recent_mask = recent > 0 ? recent - 1 : 0;
  block.allowed = place(spec.allowed.empty() ? 0 : mask_words(vocab));
  block.penalises = penalises(spec);
  block.prompt = place(block.penalises && spec.repetition_penalty != 1 ? mask_words(vocab) : 0);
  at = (at + 3) / 4 * 4;  // the device reads 4 counts at a time
  block.counts = place(block.penalises ? (static_cast<size_t>(vocab) + 1) / 2 : 0);
  block.words = (at + 3) / 4 * 4;
  block.vocab = vocab;
  return block;
}

/// Writes a block's lists.
class Writer {
 public:
  Writer(std::span<uint32_t> words, int32_t vocab) : words_(words), vocab_(static_cast<uint32_t>(vocab)) {}

  bool inside(int32_t token) const { return static_cast<uint32_t>(token) < vocab_; }

  uint32_t tokens(uint32_t at, std::span<const int32_t> tokens) {
    uint32_t count = 0;
    if (at == 0) return 0;
    for (const int32_t token : tokens)
      if (inside(token)) words_[at + count++] = static_cast<uint32_t>(token);
    return count;
  }

  uint32_t bias(uint32_t at, std::span<const TokenBias> bias) {
    uint32_t count = 0;
    for (const TokenBias& b : bias) {
      if (!inside(b.token)) continue;
      words_[at + 2 * count] = static_cast<uint32_t>(b.token);
      words_[at + 2 * count++ + 1] = std::bit_cast<uint32_t>(b.bias);
    }
    return count;
  }

  uint32_t bad_words(uint32_t at, std::span<const std::vector<int32_t>> bad_words) {
    uint32_t count = 0, next = at + static_cast<uint32_t>(bad_words.size()) + 1;
    if (at == 0) return 0;
    for (const std::vector<int32_t>& word : bad_words) {
      if (word.empty() || !inside(word.back())) continue;
      words_[at + count++] = next;
      for (const int32_t token : word)
        words_[next++] = static_cast<uint32_t>(token);
    }
    words_[at + count] = next;
    return count;
  }

  void mark(uint32_t mask, int32_t token) {
    if (mask != 0 && inside(token)) words_[mask + static_cast<uint32_t>(token) / 32] |= 1u << (token % 32);
  }

  void count(uint32_t counts, int32_t token) {
    if (counts == 0 || !inside(token)) return;
    auto* const count = reinterpret_cast<unsigned char*>(&words_[counts]) + 2 * static_cast<size_t>(token);
    uint16_t value = 0;
    std::memcpy(&value, count, sizeof value);
    if (value < 0xffff) ++value;
    std::memcpy(count, &value, sizeof value);
  }

  void set(uint32_t at, int32_t token) { words_[at] = static_cast<uint32_t>(token); }

 private:
  std::span<uint32_t> words_;
  uint32_t vocab_;
};

}  // namespace

bool needs_edit_block(const EditSpec& spec) {
  return penalises(spec) || !spec.bad_words.empty() || (spec.min_tokens > 0 && !spec.ends.empty()) ||
         !spec.suppressed.empty() || !spec.suppressed_first.empty() || !spec.bias.empty() ||
         !spec.allowed.empty() || spec.forced_last.has_value();
}

int64_t edit_block_bytes(const EditSpec& spec, int32_t vocab) {
  return int64_t{lay_out(spec, vocab).words} * 4;
}

void build_edit_block(const EditSpec& spec, int32_t vocab, std::span<const int32_t> tokens, size_t prompt_len,
                      std::span<uint32_t> words) {
  EditBlock block = lay_out(spec, vocab);
  FOVEA_CHECK(words.size() >= block.words && prompt_len <= tokens.size());
  std::fill(words.begin(), words.begin() + block.words, 0u);
  Writer writer(words, vocab);
  block.prompt_len = static_cast<uint32_t>(prompt_len);
  block.min_tokens = spec.min_tokens;
  block.forced_last = spec.forced_last && spec.max_tokens > 0 ? *spec.forced_last : -1;
  block.forced_at = static_cast<uint32_t>(std::max(spec.max_tokens - 1, 0));
  block.repetition_penalty = spec.repetition_penalty;
  block.frequency_penalty = spec.frequency_penalty;
  block.presence_penalty = spec.presence_penalty;
  block.num_ends = writer.tokens(block.ends, spec.ends);
  block.num_suppressed = writer.tokens(block.suppressed, spec.suppressed);
  block.num_suppressed_first = writer.tokens(block.suppressed_first, spec.suppressed_first);
  block.num_bias = writer.bias(block.bias, spec.bias);
  block.num_bad_words = writer.bad_words(block.bad_words, spec.bad_words);
  for (const int32_t token : spec.allowed)
    writer.mark(block.allowed, token);
  for (const int32_t token : tokens.first(prompt_len))
    writer.mark(block.prompt, token);
  const auto answer = tokens.subspan(prompt_len);
  for (size_t j = 0; j < answer.size(); ++j) {
    writer.count(block.counts, answer[j]);
    if (block.recent != 0)
      writer.set(block.recent + (static_cast<uint32_t>(j) & block.recent_mask), answer[j]);
  }
  std::memcpy(words.data(), &block, sizeof block);
}

}  // namespace fovea::cuda
