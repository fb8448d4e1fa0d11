#include "kernels/cuda/sample/edit_block.h"

#include <gtest/gtest.h>

#include <cstring>

namespace fovea::cuda {
namespace {

using Ids = std::vector<int32_t>;

struct Built {
  std::vector<uint32_t> words;
  EditBlock block;

  Built(const EditSpec& spec, int32_t vocab, const Ids& tokens, size_t prompt_len)
      : words(static_cast<size_t>(edit_block_bytes(spec, vocab)) / 4, 0xffffffffu) {
    build_edit_block(spec, vocab, tokens, prompt_len, words);
    std::memcpy(&block, words.data(), sizeof block);
  }
  Ids list(uint32_t at, uint32_t count) const {
    return {words.begin() + static_cast<std::ptrdiff_t>(at),
            words.begin() + static_cast<std::ptrdiff_t>(at + count)};
  }
  int count(int32_t token) const {
    return static_cast<int>(words[block.counts + static_cast<uint32_t>(token) / 2] >> (token % 2 * 16) &
                            0xffffu);
  }
  bool bit(uint32_t mask, int32_t token) const {
    return words[mask + static_cast<uint32_t>(token) / 32] >> (token % 32) & 1u;
  }
};

TEST(EditBlock, IsNeededOnlyWithEdits) {
  EXPECT_FALSE(needs_edit_block({}));
  EditSpec spec;
  spec.min_tokens = 3;
  EXPECT_FALSE(needs_edit_block(spec));  // no end tokens
  const Ids ends = {2};
  spec.ends = ends;
  EXPECT_TRUE(needs_edit_block(spec));
  spec = {};
  spec.forced_last = 0;
  EXPECT_TRUE(needs_edit_block(spec));
  spec = {};
  spec.presence_penalty = -1;
  EXPECT_TRUE(needs_edit_block(spec));
}

TEST(EditBlock, ListsLeaveOutTokensOutsideOfTheVocabulary) {
  const Ids suppressed = {5, 100, -1, 99}, first = {7}, allowed = {0, 31, 32, 99, 100};
  const std::vector<TokenBias> bias = {{99, 1.5f}, {100, 2.0f}};
  const std::vector<Ids> bad = {{1}, {2, 3, 4}, {5, 100}};
  EditSpec spec;
  spec.suppressed = suppressed;
  spec.suppressed_first = first;
  spec.allowed = allowed;
  spec.bias = bias;
  spec.bad_words = bad;
  const Built b(spec, 100, {8, 9, 10, 11}, 1);
  EXPECT_EQ(b.list(b.block.suppressed, b.block.num_suppressed), (Ids{5, 99}));
  EXPECT_EQ(b.list(b.block.suppressed_first, b.block.num_suppressed_first), (Ids{7}));
  EXPECT_EQ(b.block.num_bias, 1u);
  EXPECT_EQ(b.block.num_bad_words, 2u);
  const Ids offsets = b.list(b.block.bad_words, 3);
  EXPECT_EQ(b.list(static_cast<uint32_t>(offsets[1]), 3), (Ids{2, 3, 4}));
  EXPECT_EQ(offsets[2] - offsets[1], 3);
  EXPECT_EQ(b.block.recent_mask, 1u);  // two tokens before the last of the longest word
  EXPECT_EQ(b.list(b.block.recent, 2), (Ids{11, 10}));
  for (int32_t token = 0; token < 100; ++token)
    EXPECT_EQ(b.bit(b.block.allowed, token), token == 0 || token == 31 || token == 32 || token == 99)
        << token;
  EXPECT_EQ(b.block.counts, 0u);
}

TEST(EditBlock, CountsTheAnswerAndMarksThePrompt) {
  EditSpec spec;
  spec.repetition_penalty = 1.2f;
  Ids tokens = {1, 2, 2, 40};
  tokens.insert(tokens.end(), 70000, 3);
  tokens.push_back(2);
  const Built b(spec, 41, tokens, 4);
  EXPECT_EQ(b.block.prompt_len, 4u);
  EXPECT_EQ(b.block.counts % 4, 0u);
  EXPECT_EQ(b.count(1), 0);
  EXPECT_EQ(b.count(2), 1);
  EXPECT_EQ(b.count(3), 65535);
  EXPECT_TRUE(b.bit(b.block.prompt, 1) && b.bit(b.block.prompt, 40));
  EXPECT_FALSE(b.bit(b.block.prompt, 3));
  spec = {};
  spec.frequency_penalty = 0.5f;
  EXPECT_EQ(Built(spec, 41, tokens, 4).block.prompt, 0u);  // prompt tokens are not penalised
}

TEST(EditBlock, ForcesTheLastTokenOfTheLongestAnswer) {
  EditSpec spec;
  spec.forced_last = 7;
  spec.max_tokens = 5;
  const Built b(spec, 10, {}, 0);
  EXPECT_EQ(b.block.forced_last, 7);
  EXPECT_EQ(b.block.forced_at, 4u);
  spec.max_tokens = 0;
  EXPECT_EQ(Built(spec, 10, {}, 0).block.forced_last, -1);
}

}  // namespace
}  // namespace fovea::cuda
