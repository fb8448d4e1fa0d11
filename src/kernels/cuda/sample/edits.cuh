#pragma once
// LogitsProcessor on the device: one CTA's part of a row is edited in place, in the order and arithmetic of
// LogitsProcessor::apply().
#include "base/sample_math.h"
#include "kernels/cuda/sample/edit_block.h"
#include "kernels/cuda/sample/group.cuh"

namespace fovea::cuda::sampling {

constexpr float kNegInf = -__builtin_inff();

/// A CTA's part of a row: the logits of tokens `begin` to `begin` + `count` - 1.
struct Part {
  float* logits;
  int begin, count;

  __device__ bool holds(uint32_t token) const {
    return token - static_cast<uint32_t>(begin) < static_cast<uint32_t>(count);
  }
  __device__ float& at(uint32_t token) const { return logits[token - static_cast<uint32_t>(begin)]; }
};

__device__ inline void mask_tokens(const Part& part, const uint32_t* tokens, uint32_t count) {
  for (uint32_t i = threadIdx.x; i < count; i += blockDim.x)
    if (part.holds(tokens[i])) part.at(tokens[i]) = kNegInf;
}

/// Masks the last tokens of bad words whose other tokens end the answer of `answered` tokens.
__device__ inline void mask_bad_words(const Part& part, const EditBlock& block, const uint32_t* words,
                                      uint64_t answered) {
  const uint32_t* const offsets = words + block.bad_words;
  const uint32_t* const recent = words + block.recent;
  for (uint32_t i = threadIdx.x; i < block.num_bad_words; i += blockDim.x) {
    const uint32_t* const word = words + offsets[i];
    const uint32_t before = offsets[i + 1] - offsets[i] - 1;
    if (before > answered || !part.holds(word[before])) continue;
    bool matches = true;
    for (uint32_t j = 0; j < before && matches; ++j)
      matches = word[j] == recent[(answered - before + j) & block.recent_mask];
    if (matches) part.at(word[before]) = kNegInf;
  }
}

struct Penalties {
  float repetition = 1, frequency = 0, presence = 0;
};

/// A penalised logit, for tokens of the prompt or the answer; `count` of the answer.
__device__ inline float penalised(float x, const Penalties& p, uint32_t count) {
  using namespace sample_math;
  constexpr float kMax = 3.402823466e38f;
  x = x > 0 ? div(x, p.repetition) : mul(x, p.repetition);
  if (count > 0) {
    x = sub(x, mul(p.frequency, static_cast<float>(count)));
    x = sub(x, p.presence);
  }
  return x < -kMax ? -kMax : x > kMax ? kMax : x;
}

__device__ inline bool has_lists(const EditBlock& block) {
  return (block.num_bad_words | block.num_ends | block.num_suppressed | block.num_suppressed_first |
          block.num_bias) != 0;
}

/// Applies a request's lists: masks, then biases. Ends with a barrier.
__device__ inline void apply_lists(const Part& part, const EditBlock& block, const uint32_t* words,
                                   uint64_t answered) {
  if (block.num_bad_words > 0) mask_bad_words(part, block, words, answered);
  if (block.min_tokens > 0 && answered < static_cast<uint64_t>(block.min_tokens))
    mask_tokens(part, words + block.ends, block.num_ends);
  mask_tokens(part, words + block.suppressed, block.num_suppressed);
  if (answered == 0) mask_tokens(part, words + block.suppressed_first, block.num_suppressed_first);
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < block.num_bias; i += blockDim.x) {
    const uint32_t token = words[block.bias + 2 * i];
    if (part.holds(token))
      part.at(token) = sample_math::add(part.at(token), __uint_as_float(words[block.bias + 2 * i + 1]));
  }
  __syncthreads();
}

/// Bit masks, counts and penalties for one CTA's part, whose first token is a multiple of 32.
struct TokenEdits {
  const uint32_t *grammar = nullptr, *allowed = nullptr, *prompt = nullptr;  // null = all, all, none
  const uint16_t* counts = nullptr;                                          // null = no penalties
  Penalties penalties;

  __device__ TokenEdits(const uint32_t* words, const uint32_t* grammar_mask, int begin) {
    if (grammar_mask) grammar = grammar_mask + begin / 32;
    if (!words) return;
    const EditBlock& block = *reinterpret_cast<const EditBlock*>(words);
    if (block.allowed != 0) allowed = words + block.allowed + begin / 32;
    if (block.prompt != 0) prompt = words + block.prompt + begin / 32;
    if (block.counts != 0) counts = reinterpret_cast<const uint16_t*>(words + block.counts) + begin;
    penalties = {block.repetition_penalty, block.frequency_penalty, block.presence_penalty};
  }

  /// Edits the logits of the part's tokens i to i + 3, i a multiple of 4.
  __device__ void apply(float (&x)[4], int i) const {
    uint32_t kept = 15, seen = 0;
    uint2 pairs = {0, 0};
    if (grammar) kept &= grammar[i / 32] >> (i % 32);
    if (allowed) kept &= allowed[i / 32] >> (i % 32);
    if (prompt) seen = prompt[i / 32] >> (i % 32) & 15;
    if (counts) pairs = *reinterpret_cast<const uint2*>(counts + i);
    const uint32_t count[4] = {pairs.x & 0xffff, pairs.x >> 16, pairs.y & 0xffff, pairs.y >> 16};
    const bool penalises = (pairs.x | pairs.y | seen) != 0;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (!(kept >> j & 1)) x[j] = kNegInf;
      if (penalises && (count[j] > 0 || (seen >> j & 1)) && x[j] != kNegInf)
        x[j] = penalised(x[j], penalties, count[j]);
    }
  }
};

/// Appends the answer's token after `answered` others to the block; one thread calls it.
__device__ inline void append_token(const EditBlock& block, uint32_t* words, uint64_t answered,
                                    int32_t token) {
  if (block.counts != 0 && token >= 0 && token < block.vocab) {
    uint16_t* const count = reinterpret_cast<uint16_t*>(words + block.counts) + token;
    if (*count < 0xffff) ++*count;
  }
  if (block.recent != 0) words[block.recent + (answered & block.recent_mask)] = static_cast<uint32_t>(token);
}

}  // namespace fovea::cuda::sampling
