#include "audio/whisper.h"

#include <gtest/gtest.h>

#include <random>

namespace fovea {
namespace {

using Ids = std::vector<int32_t>;

constexpr int32_t kTime = 100;  // the first timestamp; text is below

Ids ids(std::initializer_list<int> values) {
  return {values.begin(), values.end()};
}

void expect(const WindowResult& result, std::initializer_list<std::tuple<int64_t, int64_t, Ids>> segments,
            int64_t advance) {
  ASSERT_EQ(result.segments.size(), segments.size());
  size_t i = 0;
  for (const auto& [start, end, tokens] : segments) {
    EXPECT_EQ(result.segments[i].start, start) << i;
    EXPECT_EQ(result.segments[i].end, end) << i;
    EXPECT_EQ(result.segments[i].tokens, tokens) << i;
    ++i;
  }
  EXPECT_EQ(result.advance, advance);
}

TEST(WhisperWindow, WhatFollowsTheLastPairIsHeardAgain) {
  expect(split_window(ids({100, 1, 2, 110, 110, 3, 120, 120, 4}), kTime, 50),
         {{0, 10, ids({100, 1, 2, 110})}, {10, 20, ids({110, 3, 120})}}, 20);
  // A pair at the end begins a segment without text.
  expect(split_window(ids({105, 1, 115, 117}), kTime, 50), {{5, 15, ids({105, 1, 115})}}, 15);
}

TEST(WhisperWindow, ASingleTimestampAtTheEndMeansThatNothingFollows) {
  expect(split_window(ids({100, 1, 110, 110, 3, 120}), kTime, 50),
         {{0, 10, ids({100, 1, 110})}, {10, 20, ids({110, 3, 120})}}, 50);
}

TEST(WhisperWindow, WithoutAPairItIsOneSegment) {
  expect(split_window(ids({100, 1, 2}), kTime, 50), {{0, 50, ids({100, 1, 2})}}, 50);
  expect(split_window(ids({100, 1, 2, 130}), kTime, 50), {{0, 30, ids({100, 1, 2, 130})}}, 50);
  expect(split_window(ids({1, 2}), kTime, 50), {{0, 50, ids({1, 2})}}, 50);
  expect(split_window(ids({100}), kTime, 50), {{0, 50, ids({100})}}, 50);
  expect(split_window({}, kTime, 50), {{0, 50, {}}}, 50);
}

/// OpenAI's transcribe(), with its names.
WindowResult published(const Ids& tokens, int64_t segment_size) {
  std::vector<bool> timestamp_tokens;
  for (const int32_t token : tokens)
    timestamp_tokens.push_back(token >= kTime);
  const size_t n = tokens.size();
  const bool single_timestamp_ending = n >= 2 && !timestamp_tokens[n - 2] && timestamp_tokens[n - 1];
  std::vector<size_t> slices;
  for (size_t i = 0; i + 1 < n; ++i)
    if (timestamp_tokens[i] && timestamp_tokens[i + 1]) slices.push_back(i + 1);
  WindowResult out;
  if (!slices.empty()) {
    if (single_timestamp_ending) slices.push_back(n);
    size_t last_slice = 0;
    for (const size_t current_slice : slices) {
      const Ids sliced(tokens.begin() + static_cast<long>(last_slice),
                       tokens.begin() + static_cast<long>(current_slice));
      out.segments.push_back({sliced.front() - kTime, sliced.back() - kTime, sliced});
      last_slice = current_slice;
    }
    out.advance = single_timestamp_ending ? segment_size : tokens[last_slice - 1] - kTime;
    return out;
  }
  int64_t duration = segment_size;
  Ids timestamps;
  for (const int32_t token : tokens)
    if (token >= kTime) timestamps.push_back(token);
  if (!timestamps.empty() && timestamps.back() != kTime) duration = timestamps.back() - kTime;
  out.segments.push_back({0, duration, tokens});
  out.advance = segment_size;
  return out;
}

TEST(WhisperWindow, IsThePublishedAlgorithmForAllAnswersThatTheRulesAllow) {
  std::mt19937 random(3);
  for (int round = 0; round < 20'000; ++round) {
    Ids answer = {kTime + static_cast<int32_t>(random() % 5)};
    int32_t time = answer.front();
    bool open = true;  // the last token is the begin of a segment
    while (answer.size() < 12 && random() % 8 != 0) {
      if (open || random() % 2 == 0) {
        answer.push_back(static_cast<int32_t>(random() % 90));
        open = false;
      } else if (answer.back() < kTime) {
        answer.push_back(time += 1 + static_cast<int32_t>(random() % 5));
      } else {
        answer.push_back(time += static_cast<int32_t>(random() % 3));
        open = true;
      }
      if (answer.size() >= 2 && answer.back() < kTime && answer[answer.size() - 2] >= kTime && !open &&
          answer.size() > 2 && answer[answer.size() - 3] < kTime)
        answer.pop_back();  // text after the end of a segment: only a timestamp may follow
    }
    const WindowResult got = split_window(answer, kTime, 60), want = published(answer, 60);
    ASSERT_EQ(got.segments.size(), want.segments.size());
    for (size_t i = 0; i < got.segments.size(); ++i) {
      ASSERT_EQ(got.segments[i].start, want.segments[i].start);
      ASSERT_EQ(got.segments[i].end, want.segments[i].end);
      ASSERT_EQ(got.segments[i].tokens, want.segments[i].tokens);
    }
    ASSERT_EQ(got.advance, std::max<int64_t>(want.advance, 1));
  }
}

TEST(WhisperTokens, AreFoundByName) {
  std::map<std::string, int32_t> names = {{"<|startoftranscript|>", 51},
                                          {"<|en|>", 52},
                                          {"<|haw|>", 53},
                                          {"<|transcribe|>", 55},
                                          {"<|translate|>", 54},
                                          {"<|nocaptions|>", 58},
                                          {"<|startofprev|>", 57},
                                          {"<|notimestamps|>", 59},
                                          {"<|0.00|>", 60},
                                          {"<|2.00|>", 160}};
  const auto id_of = [&](const std::string& name) {
    const auto found = names.find(name);
    return found == names.end() ? std::nullopt : std::optional(found->second);
  };
  WhisperTokens tokens = find_whisper_tokens(id_of, 50, {2, 100}, true);
  EXPECT_EQ(tokens.start, 51);
  EXPECT_EQ(tokens.no_speech, 58);
  EXPECT_EQ(tokens.first_time, 60);
  EXPECT_EQ(tokens.text_end, 50);
  EXPECT_EQ(tokens.languages.size(), 2u);
  EXPECT_EQ(tokens.languages.at("haw"), 53);
  tokens = find_whisper_tokens(id_of, 50, {2, 100}, false);
  EXPECT_TRUE(tokens.languages.empty());
  EXPECT_FALSE(tokens.transcribe);
  EXPECT_FALSE(find_whisper_tokens(id_of, 50, {2, 99}, true).first_time) << "another resolution";
  names["<|notimestamps|>"] = 30;
  EXPECT_FALSE(find_whisper_tokens(id_of, 50, {2, 100}, true).first_time) << "not the next token";
  names.clear();
  EXPECT_FALSE(find_whisper_tokens(id_of, 50, {2, 100}, true).start);
}

TEST(WhisperLanguages, HaveCodesAndNames) {
  EXPECT_EQ(whisper_languages().size(), 100u);
  ASSERT_NE(find_whisper_language("EN"), nullptr);
  EXPECT_EQ(find_whisper_language("Cantonese")->code, "yue");
  EXPECT_EQ(find_whisper_language("en")->name, "english");
  EXPECT_EQ(find_whisper_language(""), nullptr);
  EXPECT_EQ(find_whisper_language("xx"), nullptr);
}

}  // namespace
}  // namespace fovea
