// BART and Whisper against their definition in fp64, and bitwise invariance to batch, chunks, pages and
// threads.
#include <gtest/gtest.h>

#include <algorithm>

#include "../tests/support/temp_dir.h"
#include "model/decoder_prompt.h"
#include "model/encoder_test_support.h"

namespace fovea {
namespace {

using test::PlainLayers;
using test::Request;
using test::Rows;
using Runner = test::EncoderDecoderRunner;

constexpr int kHidden = 48, kVocab = 77, kEncoderLayers = 2, kDecoderLayers = 3, kEncoderHeads = 2,
              kHeads = 3, kTextPositions = 30, kMel = 7, kFrames = 22, kAudioPositions = 13;

struct Variant {
  const char* name;
  bool whisper, scaled, tied, bare;  ///< bare: no "model." before the names
};
const Variant kVariants[] = {{"bart", false, false, true, false},
                             {"bart_scaled_untied", false, true, false, false},
                             {"bart_bare", false, false, true, true},
                             {"whisper", true, false, true, false},
                             {"whisper_bare_untied", true, false, false, true}};

std::string config_json(const Variant& v) {
  return std::string("{\"architectures\": [\"") +
         (v.whisper ? "WhisperForConditionalGeneration" : "BartForConditionalGeneration") +
         R"("], "vocab_size": 77, "d_model": 48, "encoder_layers": 2, "decoder_layers": 3,
             "encoder_attention_heads": 2, "decoder_attention_heads": 3, "encoder_ffn_dim": 51,
             "decoder_ffn_dim": 67, "max_position_embeddings": 30, "max_source_positions": 13,
             "max_target_positions": 30, "num_mel_bins": 7, "decoder_start_token_id": 2, "scale_embedding": )" +
         (v.scaled ? "true" : "false") + ", \"tie_word_embeddings\": " + (v.tied ? "true}" : "false}");
}

class EncoderDecoderTest : public testing::TestWithParam<Variant> {
 protected:
  EncoderDecoderTest() : maker_(11), prefix_(GetParam().bare ? "" : "model.") {
    const Variant& v = GetParam();
    const auto layer = [&](const std::string& name, bool cross, int intermediate) {
      for (const char* attention : {"self_attn", "encoder_attn"}) {
        if (attention[0] == 'e' && !cross) continue;
        for (const char* part : {".q_proj", ".k_proj", ".v_proj", ".out_proj"})
          maker_.linear(name + attention + part, kHidden, kHidden, !v.whisper || part[1] != 'k');
        maker_.norm(name + attention + "_layer_norm", kHidden);
      }
      maker_.linear(name + "fc1", intermediate, kHidden);
      maker_.linear(name + "fc2", kHidden, intermediate);
      maker_.norm(name + "final_layer_norm", kHidden);
    };
    for (int i = 0; i < kEncoderLayers; ++i)
      layer(prefix_ + "encoder.layers." + std::to_string(i) + ".", false, 51);
    for (int i = 0; i < kDecoderLayers; ++i)
      layer(prefix_ + "decoder.layers." + std::to_string(i) + ".", true, 67);
    const std::string sides[] = {prefix_ + "encoder.", prefix_ + "decoder."};
    if (v.whisper) {
      maker_.add(sides[0] + "conv1.weight", {kHidden, kMel, 3}, 0, 0.3f);
      maker_.add(sides[0] + "conv1.bias", {kHidden}, 0, 0.3f);
      maker_.add(sides[0] + "conv2.weight", {kHidden, kHidden, 3}, 0, 0.1f);
      maker_.add(sides[0] + "conv2.bias", {kHidden}, 0, 0.3f);
      for (const std::string& side : sides)
        maker_.norm(side + "layer_norm", kHidden);
    } else {
      for (const std::string& side : sides)
        maker_.norm(side + "layernorm_embedding", kHidden);
      maker_.add("final_logits_bias", {1, kVocab}, 0, 1);
    }
    embedding_ = v.whisper ? sides[1] + "embed_tokens.weight" : prefix_ + "shared.weight";
    maker_.add(embedding_, {kVocab, kHidden}, 0, v.scaled ? 0.2f : 1.0f);
    const int offset = v.whisper ? 0 : 2;
    maker_.add(sides[0] + "embed_positions.weight",
               {v.whisper ? kAudioPositions : kTextPositions + offset, kHidden}, 0, 1);
    maker_.add(sides[1] + "embed_positions.weight", {kTextPositions + offset, kHidden}, 0, 1);
    if (!v.tied) maker_.add(v.whisper ? "proj_out.weight" : "lm_head.weight", {kVocab, kHidden}, 0, 0.2f);
  }

  void SetUp() override {
    test::write_weights(dir_, maker_.weights, DType::f32);
    auto config = parse_model_config(config_json(GetParam()), "", dir_.path());
    ASSERT_TRUE(config.ok()) << config.error().message;
    config_ = *config;
    ThreadPool pool(2);
    Stream stream(pool);
    auto model = Model::load(config_, {.dir = dir_.path(), .dtype = {}}, stream);
    ASSERT_TRUE(model.ok()) << model.error().message;
    model_ = *std::move(model);
    model_->reserve(128, 128);
  }

  Rows plain_input(const PlainLayers& plain, const Request& request) const {
    Rows x;
    if (!GetParam().whisper) {
      for (const int32_t id : request.text)
        x.push_back(plain.table(embedding_, id));
      return x;
    }
    for (size_t at = 0; at < request.features.size(); at += kMel)
      x.emplace_back(request.features.begin() + static_cast<std::ptrdiff_t>(at),
                     request.features.begin() + static_cast<std::ptrdiff_t>(at + kMel));
    for (const auto& [name, stride] : {std::pair{"conv1", 1}, std::pair{"conv2", 2}}) {
      const std::string conv = prefix_ + "encoder." + name;
      const test::TensorValues& weight = maker_.weights.at(conv + ".weight");
      Rows y;
      for (int t = 0; t < static_cast<int>(x.size()); t += stride) {
        std::vector<double> row;
        for (size_t n = 0; n < kHidden; ++n) {
          double sum = static_cast<double>(maker_.weights.at(conv + ".bias").values[n]);
          for (int k = 0; k < 3; ++k)
            if (t + k >= 1 && t + k - 1 < static_cast<int>(x.size()))
              for (size_t c = 0; c < x[0].size(); ++c)
                sum +=
                    static_cast<double>(weight.values[(n * x[0].size() + c) * 3 + static_cast<size_t>(k)]) *
                    x[static_cast<size_t>(t + k - 1)][c];
          row.push_back(PlainLayers::gelu(sum));
        }
        y.push_back(row);
      }
      x = y;
    }
    return x;
  }

  void plain_side(const PlainLayers& plain, const std::string& side, Rows& x, bool scaled, int layers,
                  int heads, const Rows* encoded) const {
    const bool pre = GetParam().whisper;
    for (size_t i = 0; i < x.size(); ++i) {
      const auto p = plain.table(side + "embed_positions.weight", static_cast<int64_t>(i) + (pre ? 0 : 2));
      for (size_t d = 0; d < p.size(); ++d)
        x[i][d] = x[i][d] * (scaled ? std::sqrt(48.0) : 1.0) + p[d];
      if (!pre) x[i] = plain.norm(side + "layernorm_embedding", x[i], 1e-5);
    }
    for (int i = 0; i < layers; ++i) {
      const std::string layer = side + "layers." + std::to_string(i) + ".";
      const auto names = [&](const std::string& a) {
        return std::array<std::string, 4>{layer + a + ".q_proj", layer + a + ".k_proj", layer + a + ".v_proj",
                                          layer + a + ".out_proj"};
      };
      plain.block(x, layer + "self_attn_layer_norm", pre, 1e-5, [&](const Rows& in) {
        return plain.attention(names("self_attn"), in, in, heads, encoded != nullptr);
      });
      if (encoded)
        plain.block(x, layer + "encoder_attn_layer_norm", pre, 1e-5, [&](const Rows& in) {
          return plain.attention(names("encoder_attn"), in, *encoded, heads, false);
        });
      plain.block(x, layer + "final_layer_norm", pre, 1e-5,
                  [&](const Rows& in) { return plain.mlp(layer + "fc1", layer + "fc2", in); });
    }
    if (pre)
      for (auto& row : x)
        row = plain.norm(side + "layer_norm", row, 1e-5);
  }

  /// [tokens, vocab].
  Rows plain_logits(const Request& request) const {
    const Variant& v = GetParam();
    const PlainLayers plain(maker_.weights);
    Rows encoded = plain_input(plain, request), x;
    plain_side(plain, prefix_ + "encoder.", encoded, v.scaled, kEncoderLayers, kEncoderHeads, nullptr);
    for (const int32_t id : request.tokens)
      x.push_back(plain.table(embedding_, id));
    plain_side(plain, prefix_ + "decoder.", x, v.scaled, kDecoderLayers, kHeads, &encoded);
    const std::string head = v.tied ? embedding_ : v.whisper ? "proj_out.weight" : "lm_head.weight";
    Rows logits;
    for (const auto& row : x) {
      auto& out = logits.emplace_back();
      for (int n = 0; n < kVocab; ++n) {
        const auto weight = plain.table(head, n);
        double sum = v.whisper ? 0.0 : plain.table("final_logits_bias", 0)[static_cast<size_t>(n)];
        for (size_t d = 0; d < row.size(); ++d)
          sum += weight[d] * row[d];
        out.push_back(sum);
      }
    }
    return logits;
  }

  Request request(int encoder_rows, int tokens, uint32_t seed) const {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    Request r;
    if (GetParam().whisper)
      for (int i = 0; i < 2 * encoder_rows * kMel; ++i)
        r.features.push_back(normal(random));
    else
      for (int i = 0; i < encoder_rows; ++i)
        r.text.push_back(static_cast<int32_t>(random() % kVocab));
    for (int i = 0; i < tokens; ++i)
      r.tokens.push_back(static_cast<int32_t>(random() % kVocab));
    return r;
  }

  test::TempDir dir_;
  test::TensorMaker maker_;
  std::string prefix_, embedding_;
  ModelConfig config_;
  std::unique_ptr<Model> model_;
};

std::vector<float> rows_of(const std::vector<float>& logits, size_t first, size_t count) {
  return {logits.begin() + static_cast<std::ptrdiff_t>(first * kVocab),
          logits.begin() + static_cast<std::ptrdiff_t>((first + count) * kVocab)};
}

TEST_P(EncoderDecoderTest, MatchesThePlainForward) {
  const std::vector<Request> requests = {request(kFrames / 2, 17, 1)};
  const Rows expected = plain_logits(requests[0]);
  for (const bool cpu_attn : {false, true}) {
    Runner runner(*model_, requests, cpu_attn, 4, 2);
    runner.encode();
    const std::vector<float> logits = runner.step({17});
    double spread = 0;
    for (size_t i = 0; i < logits.size(); ++i) {
      const double want = expected[i / kVocab][i % kVocab];
      ASSERT_NEAR(static_cast<double>(logits[i]), want, 3e-5 * std::max(1.0, std::fabs(want))) << i;
      spread = std::max(spread, std::fabs(want));
    }
    EXPECT_GT(spread, 1.0);
  }
}

TEST_P(EncoderDecoderTest, ARowsBitsDependOnItsRequestOnly) {
  const Request a = request(9, 14, 2), b = request(kAudioPositions, 20, 3), c = request(1, 3, 4);
  for (const bool cpu_attn : {false, true}) {
    const std::vector<Request> one = {a};
    Runner alone(*model_, one, cpu_attn, 16, 1);
    alone.encode();
    const std::vector<float> expected = alone.step({14});
    const std::vector<Request> three = {b, a, c};
    Runner together(*model_, three, cpu_attn, 3, 3);
    together.encode();
    EXPECT_EQ(rows_of(together.step({6, 5, 1}, true), 1, 1), rows_of(expected, 4, 1));
    EXPECT_EQ(rows_of(together.step({1, 8, 1}), 1, 8), rows_of(expected, 5, 8));
    EXPECT_EQ(rows_of(together.step({2, 1, 0}), 2, 1), rows_of(expected, 13, 1));
  }
}

TEST_P(EncoderDecoderTest, DummyWeightsMakeNumbers) {
  ThreadPool pool(2);
  Stream stream(pool);
  auto model =
      Model::load(config_, {.dir = "/nowhere", .dtype = {}, .dummy_weights = true, .seed = 3}, stream);
  ASSERT_TRUE(model.ok()) << model.error().message;
  (*model)->reserve(128, 128);
  const std::vector<Request> requests = {request(5, 4, 5)};
  Runner runner(**model, requests, true, 16, 2);
  runner.encode();
  for (const float x : runner.step({4}))
    ASSERT_TRUE(std::isfinite(x));
}

TEST_P(EncoderDecoderTest, MissingTensorsAreNamed) {
  for (const std::string name :
       {"decoder.layers.2.encoder_attn.v_proj.bias", "encoder.embed_positions.weight"}) {
    test::Weights weights = maker_.weights;
    ASSERT_EQ(weights.erase(prefix_ + name), 1u);
    test::write_weights(dir_, weights, DType::f32);
    ThreadPool pool(1);
    Stream stream(pool);
    const auto model = Model::load(config_, {.dir = dir_.path(), .dtype = {}}, stream);
    ASSERT_FALSE(model.ok());
    EXPECT_NE(model.error().message.find(prefix_ + name + "\" is missing"), std::string::npos)
        << model.error().message;
  }
}

INSTANTIATE_TEST_SUITE_P(Variants, EncoderDecoderTest, testing::ValuesIn(kVariants),
                         [](const auto& variant) { return std::string(variant.param.name); });

TEST(EncoderDecoderConfig, ListsItsAttentionsInOrder) {
  const auto config = parse_model_config(config_json(kVariants[0]), "", "m");
  ASSERT_TRUE(config.ok());
  const auto specs = attention_specs(*config);
  ASSERT_EQ(specs.size(), 8u);
  EXPECT_EQ(specs[2].type, AttentionType::decoder);
  EXPECT_EQ(specs[3].type, AttentionType::encoder_decoder);
  EXPECT_EQ(specs[6].type, AttentionType::encoder);
  EXPECT_EQ(specs[6].head_dim, 24);
}

TEST(EncoderDecoderConfig, ReadsWhatGenerateForces) {
  const std::string whisper = config_json(kVariants[3]);
  const auto config = parse_model_config(
      whisper,
      R"({"decoder_start_token_id": 5, "suppress_tokens": [1, 2], "begin_suppress_tokens": [3],
          "forced_decoder_ids": [[1, null], [2, 9]], "forced_eos_token_id": 4, "forced_bos_token_id": 6})",
      "m");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->decoder_start_token_id, 5);  // generation_config.json takes precedence
  EXPECT_EQ(config->forcing.suppressed, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(config->forcing.suppressed_first, std::vector<int32_t>{3});
  EXPECT_EQ(config->forcing.prompt, (std::vector<std::pair<int, int32_t>>{{2, 9}}));
  EXPECT_EQ(config->forcing.first, 6);
  EXPECT_EQ(config->forcing.last, 4);
  EXPECT_EQ(*default_decoder_prompt(*config), (std::vector<int32_t>{5, 6, 9}));
  for (const char* bad :
       {R"({"forced_decoder_ids": 7})", R"({"forced_decoder_ids": [[1]]})",
        R"({"forced_decoder_ids": [[-1, 2]]})", R"({"forced_decoder_ids": {"a": [1, 2]}})"}) {
    const auto refused = parse_model_config(whisper, bad, "m");
    ASSERT_FALSE(refused.ok()) << bad;
    EXPECT_NE(refused.error().message.find("m/generation_config.json: forced_decoder_ids is"),
              std::string::npos)
        << refused.error().message;
  }
}

TEST(EncoderDecoderConfig, RefusesForcedTokensThatTheModelLacks) {
  const std::string bart = config_json(kVariants[0]);
  const int vocab = parse_model_config(bart, "", "m")->vocab_size;
  for (const std::string key : {"decoder_start_token_id", "forced_bos_token_id", "forced_eos_token_id"}) {
    const auto with = [&](int id) {
      return parse_model_config(bart, "{\"" + key + "\": " + std::to_string(id) + "}", "m");
    };
    EXPECT_TRUE(with(vocab - 1).ok());
    const auto refused = with(vocab);
    ASSERT_FALSE(refused.ok()) << key;
    EXPECT_NE(
        refused.error().message.find("m/generation_config.json: " + key + " is " + std::to_string(vocab)),
        std::string::npos)
        << refused.error().message;
  }
}

TEST(EncoderDecoderConfig, RefusesSearchesThatItLacks) {
  const std::string bart = config_json(kVariants[0]);
  for (const char* key : {"num_beams", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size"}) {
    const auto config = parse_model_config(bart, std::string("{\"") + key + "\": 3}", "m");
    ASSERT_FALSE(config.ok());
    EXPECT_NE(config.error().message.find(std::string("m/generation_config.json: ") + key + " is 3"),
              std::string::npos)
        << config.error().message;
  }
  const auto config = parse_model_config(
      bart, R"({"num_beams": 1, "no_repeat_ngram_size": 0, "min_length": 5, "max_length": 20})", "m");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->forcing.min_length, 5);
  EXPECT_EQ(config->forcing.max_length, 20);
}

TEST(EncoderDecoderConfig, AnOldConfigSaysHowItGenerates) {
  const test::TempDir dir;
  std::string bart = config_json(kVariants[0]);
  const auto load = [&](const char* keys, const char* source) {
    dir.write("config.json", bart.substr(0, bart.rfind('}')) + keys);
    return load_model_config(dir.path(), source);
  };
  const auto beams = load(R"(, "num_beams": 4})", "auto");
  ASSERT_FALSE(beams.ok());
  EXPECT_NE(beams.error().message.find("/config.json: num_beams is 4"), std::string::npos)
      << beams.error().message;
  EXPECT_TRUE(load(R"(, "num_beams": 4})", "none").ok());
  const auto lengths = load(R"(, "min_length": 3})", "auto");
  ASSERT_TRUE(lengths.ok()) << lengths.error().message;
  EXPECT_EQ(lengths->forcing.min_length, 3);
}

TEST(EncoderDecoderConfig, TheDecodersPromptIsTheFilesOrAnError) {
  ModelConfig config;
  EXPECT_NE(default_decoder_prompt(config).error().message.find("decoder_start_token_id"), std::string::npos);
  config.decoder_start_token_id = 7;
  EXPECT_EQ(*default_decoder_prompt(config), std::vector<int32_t>{7});
  config.forcing.prompt = {{1, 8}, {2, 9}};
  EXPECT_EQ(*default_decoder_prompt(config), (std::vector<int32_t>{7, 8, 9}));
  config.forcing.prompt = {{2, 9}};
  EXPECT_NE(default_decoder_prompt(config).error().message.find("place 1"), std::string::npos);
}

TEST(EncoderDecoderConfig, RefusesByNameWhatItLacks) {
  const auto error_with = [](const Variant& v, const std::string& from, const std::string& to) {
    std::string text = config_json(v);
    text.replace(text.find(from), from.size(), to);
    const auto config = parse_model_config(text, "", "m");
    return config.ok() ? std::string() : config.error().message;
  };
  EXPECT_NE(error_with(kVariants[0], R"("encoder_attention_heads": 2)", R"("encoder_attention_heads": 5)")
                .find("encoder_attention_heads is 5; it must divide d_model = 48"),
            std::string::npos);
  EXPECT_NE(error_with(kVariants[0], R"("d_model": 48)", R"("d_model": 48, "normalize_before": true)")
                .find("normalize_before is true"),
            std::string::npos);
  EXPECT_NE(error_with(kVariants[3], R"("scale_embedding": false)", R"("scale_embedding": true)")
                .find("scale_embedding is true"),
            std::string::npos);
  EXPECT_NE(
      error_with(kVariants[3], R"("num_mel_bins": 7)", R"("num_mel_bins": 0)").find("num_mel_bins is 0"),
      std::string::npos);
}

}  // namespace
}  // namespace fovea
