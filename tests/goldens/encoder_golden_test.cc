// Encoders, encoder-decoder models and audio features against transformers' eager fp32: hidden states and
// pooled vectors, last-row logits, log-probabilities and greedy tokens of the tiny models of
// tools/goldens/encoders.py, and the log-mel features of a short sound.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "audio/log_mel.h"
#include "audio/wav.h"
#include "base/check.h"
#include "fovea/embed.h"
#include "kernels/cpu/ops.h"
#include "model/encoder_test_support.h"

namespace fovea {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr double kTolerance = 1e-3;
constexpr double kDecidedGap = 2e-3;  // twice the tolerance: both of the top two may move by it

const fs::path kFixtures = fs::path(FOVEA_SOURCE_DIR) / "tests/goldens";

json read_json(const fs::path& path) {
  std::ifstream file(path);
  return json::parse(file, nullptr, /*allow_exceptions=*/false);
}

std::vector<float> read_floats(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

/// Fixtures whose golden.json names one of `families`.
std::vector<std::string> fixtures_of(const std::vector<std::string>& families) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kFixtures)) {
    const json golden = read_json(entry.path() / "golden.json");
    if (golden.is_object() && std::ranges::count(families, golden.at("family").get<std::string>()) > 0)
      names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

/// The largest difference; infinite for NaN or a different size.
double worst(std::span<const float> got, const std::vector<float>& want) {
  if (got.size() != want.size()) return std::numeric_limits<double>::infinity();
  double error = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double d = std::fabs(static_cast<double>(got[i]) - static_cast<double>(want[i]));
    error = std::max(error, std::isnan(d) ? std::numeric_limits<double>::infinity() : d);
  }
  return error;
}

class ModelOfFixture : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    dir_ = kFixtures / GetParam();
    golden_ = read_json(dir_ / "golden.json");
    ASSERT_TRUE(golden_.is_object());
    auto config = load_model_config(dir_.string());
    ASSERT_TRUE(config.ok()) << config.error().message;
    config_ = *config;
    pool_ = std::make_unique<ThreadPool>(2);
    stream_ = std::make_unique<Stream>(*pool_);
    auto model = Model::load(config_, {.dir = dir_.string(), .dtype = DType::f32}, *stream_);
    ASSERT_TRUE(model.ok()) << model.error().message;
    model_ = *std::move(model);
    model_->reserve(256, 256);
  }
  void TearDown() override {
    std::printf("%-24s worst error %.2e%s\n", GetParam().c_str(), worst_, HasFailure() ? "  FAILED" : "");
  }
  /// The largest difference, kept for the line printed at the end.
  double error(std::span<const float> got, const std::vector<float>& want) {
    const double e = worst(got, want);
    worst_ = std::max(worst_, e);
    return e;
  }
  /// Which backends support the fixture's head size: CPU_ATTN from 16 on.
  std::vector<bool> cpu_attn_or_not() const {
    return config_.head_dim >= 16 ? std::vector<bool>{false, true} : std::vector<bool>{false};
  }

  double worst_ = 0;
  fs::path dir_;
  json golden_;
  ModelConfig config_;
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Model> model_;
};

class EncoderGolden : public ModelOfFixture {};

TEST_P(EncoderGolden, HiddenStatesMatchTransformers) {
  const auto dim = static_cast<size_t>(config_.hidden_size);
  size_t compared = 0;
  for (const json& prompt : golden_.at("prompts")) {
    const std::vector<int32_t> ids = prompt.at("ids"), types = prompt.at("token_types");
    for (const bool cpu_attn : cpu_attn_or_not()) {
      const test::RaggedRows batch({static_cast<int>(ids.size())});
      test::PlannedAttention attention(
          config_, cpu_attn, 16, [&](AttentionType) { return &batch.meta; }, *stream_);
      std::vector<float> hidden(ids.size() * dim, NAN);
      EncodeInput input;
      input.token_ids = ids;
      input.token_types = types;
      input.offsets = batch.offsets;
      input.attention = &attention;
      input.hidden = hidden.data();
      FOVEA_CHECK(model_->encode(input, *stream_).ok());
      if (prompt.contains("hidden") && !prompt.at("hidden").empty()) {
        EXPECT_LE(error(hidden, prompt.at("hidden")), kTolerance) << ids.size();
        ++compared;
      }
      EXPECT_LE(error(std::span(hidden).first(dim), prompt.at("cls")), kTolerance) << ids.size();
      EXPECT_LE(error(std::span(hidden).last(dim), prompt.at("last")), kTolerance) << ids.size();
    }
  }
  EXPECT_GT(compared, 0u);
}

TEST_P(EncoderGolden, EmbeddingsMatchTransformers) {
  for (const auto& [pooling, key] :
       {std::pair{Pooling::mean, "mean"}, std::pair{Pooling::cls, "cls"}, std::pair{Pooling::last, "last"}}) {
    EmbedConfig config;
    config.model = dir_.string();
    config.dtype = DType::f32;
    config.pooling = pooling;
    config.threads = 2;
    auto embedder = Embedder::create(config);
    ASSERT_TRUE(embedder.ok()) << embedder.error().message;
    std::vector<std::vector<int32_t>> inputs;
    std::vector<std::vector<float>> expected;
    for (const json& prompt : golden_.at("prompts")) {
      const std::vector<int32_t> types = prompt.at("token_types");
      if (std::ranges::count(types, 0) != std::ssize(types)) continue;  // embeddings take no segments
      inputs.push_back(prompt.at("ids"));
      expected.push_back(prompt.at(key));
    }
    ASSERT_FALSE(inputs.empty());
    const auto vectors = (*embedder)->embed(inputs);
    ASSERT_TRUE(vectors.ok()) << vectors.error().message;
    for (size_t i = 0; i < inputs.size(); ++i)
      EXPECT_LE(error((*vectors)[i], expected[i]), kTolerance) << key << " " << inputs[i].size();
  }
}

INSTANTIATE_TEST_SUITE_P(Fixtures, EncoderGolden,
                         testing::ValuesIn(fixtures_of({"bert", "roberta", "xlm_roberta", "distilbert"})),
                         [](const auto& fixture) { return fixture.param; });

class EncoderDecoderGolden : public ModelOfFixture {
 protected:
  test::Request request_of(const json& prompt) const {
    test::Request request;
    request.tokens = prompt.at("ids").get<std::vector<int32_t>>();
    if (prompt.contains("encoder_ids")) {
      request.text = prompt.at("encoder_ids").get<std::vector<int32_t>>();
      return request;
    }
    const std::vector<float> sounds = read_floats(dir_ / "features.f32");
    const size_t size = golden_.at("frames").get<size_t>() * golden_.at("mels").get<size_t>();
    const auto begin = sounds.begin() + static_cast<std::ptrdiff_t>(prompt.at("sound").get<size_t>() * size);
    request.features.assign(begin, begin + static_cast<std::ptrdiff_t>(size));
    return request;
  }
};

TEST_P(EncoderDecoderGolden, LogitsAndGreedyTokensMatchTransformers) {
  const auto vocab = static_cast<size_t>(config_.vocab_size);
  int decided = 0;
  for (const json& prompt : golden_.at("prompts")) {
    const std::vector<float> logprobs = prompt.at("logprobs"), gaps = prompt.at("gaps");
    const std::vector<int32_t> greedy = prompt.at("greedy");
    for (const bool cpu_attn : cpu_attn_or_not()) {
      std::vector<test::Request> requests = {request_of(prompt)};
      const size_t length = requests[0].tokens.size();
      test::EncoderDecoderRunner runner(*model_, requests, cpu_attn, 4, 2);
      runner.encode();
      std::vector<float> logits = runner.step({static_cast<int>(length)});
      ASSERT_EQ(logits.size(), length * vocab);
      EXPECT_LE(error(std::span(logits).last(vocab), prompt.at("last_logits")), kTolerance);
      ASSERT_EQ(logprobs.size() + 1, length);
      for (size_t i = 0; i + 1 < length; ++i) {
        const float* row = logits.data() + i * vocab;
        const double got = static_cast<double>(row[requests[0].tokens[i + 1]]) -
                           log_sum_exp(row, static_cast<int64_t>(vocab));
        EXPECT_NEAR(got, static_cast<double>(logprobs[i]), kTolerance);
      }
      for (size_t i = 0; i < greedy.size() && static_cast<double>(gaps[i]) > kDecidedGap; ++i) {
        const float* row = logits.data() + logits.size() - vocab;
        ASSERT_EQ(argmax(row, static_cast<int64_t>(vocab)), greedy[i]) << "token " << i;
        ++decided;
        requests[0].tokens.push_back(greedy[i]);
        logits = runner.step({1});
      }
    }
  }
  EXPECT_GT(decided, 20);
}

INSTANTIATE_TEST_SUITE_P(Fixtures, EncoderDecoderGolden, testing::ValuesIn(fixtures_of({"bart", "whisper"})),
                         [](const auto& fixture) { return fixture.param; });

TEST(LogMelGolden, MatchesWhisperFeatureExtractor) {
  const fs::path dir = kFixtures / "log_mel";
  const auto audio = load_wav((dir / "audio.wav").string());
  ASSERT_TRUE(audio.ok()) << audio.error().message;
  ASSERT_EQ(audio->sample_rate, 16000);
  for (const int mel_bins : {80, 128}) {
    LogMelConfig config;
    config.mel_bins = mel_bins;
    const auto features = log_mel(config, audio->samples);
    ASSERT_TRUE(features.ok());
    // The fixture keeps the first 125 frames, which hold the sound, and the last 3.
    const auto head = static_cast<std::ptrdiff_t>(125 * mel_bins),
               tail = static_cast<std::ptrdiff_t>(3 * mel_bins);
    std::vector<float> kept(features->begin(), features->begin() + head);
    kept.insert(kept.end(), features->end() - tail, features->end());
    EXPECT_LE(worst(kept, read_floats(dir / ("log_mel_" + std::to_string(mel_bins) + ".f32"))), 1e-4)
        << mel_bins;
  }
}

TEST(EncoderGoldenFixtures, CoverWhatTheyAreFor) {
  for (const char* family : {"bert", "roberta", "bart", "whisper"})
    EXPECT_FALSE(fixtures_of({family}).empty()) << family;
}

}  // namespace
}  // namespace fovea
