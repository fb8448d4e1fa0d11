#include "engine/encoder_input.h"

#include <gtest/gtest.h>

#include <cmath>

namespace fovea {
namespace {

ModelConfig model(int mel_bins) {
  ModelConfig config;
  config.kind = ModelKind::encoder_decoder;
  config.vocab_size = 10;
  config.decoder_start_token_id = 2;
  config.encoder = EncoderConfig{1, 1, 4, 6, mel_bins};
  return config;
}

std::string refusal(GenerateRequest request, const ModelConfig& config) {
  const auto taken = take_encoder_input(request, config);
  return taken.ok() ? "" : taken.error().message;
}

TEST(EncoderInputTest, TextIsMovedOutAndTheDecoderGetsItsStart) {
  GenerateRequest request;
  request.encoder_ids = {1, 9, 0};
  const auto taken = take_encoder_input(request, model(0));
  ASSERT_TRUE(taken.ok());
  EXPECT_EQ((*taken)->ids, (std::vector<int32_t>{1, 9, 0}));
  EXPECT_EQ((*taken)->rows, 3);
  EXPECT_TRUE(request.encoder_ids.empty());
  EXPECT_EQ(request.prompt_ids, std::vector<int32_t>{2});
}

TEST(EncoderInputTest, APromptOfItsOwnStays) {
  GenerateRequest request;
  request.encoder_features = std::vector<float>(3 * 8, 0.5f);  // 8 frames of 3 bins
  request.prompt_ids = {4, 5};
  const auto taken = take_encoder_input(request, model(3));
  ASSERT_TRUE(taken.ok());
  EXPECT_EQ((*taken)->rows, 4);
  EXPECT_EQ((*taken)->features.size(), 24u);
  EXPECT_EQ(request.prompt_ids, (std::vector<int32_t>{4, 5}));
}

TEST(EncoderInputTest, RefusesWhatTheEncoderCanNotTake) {
  GenerateRequest request;
  EXPECT_NE(refusal(request, model(0)).find("empty"), std::string::npos);
  EXPECT_NE(refusal(request, model(3)).find("empty"), std::string::npos);
  request.encoder_ids = std::vector<int32_t>(7, 1);
  EXPECT_NE(refusal(request, model(0)).find("at most 6"), std::string::npos);
  EXPECT_NE(refusal(request, model(3)).find("encoder_features"), std::string::npos);
  for (const int32_t id : {-1, 10}) {
    request.encoder_ids = {1, id};
    EXPECT_NE(refusal(request, model(0)).find("0 to 9"), std::string::npos);
  }
  request.encoder_ids.clear();
  for (const size_t values : {size_t{7}, size_t{9}, size_t{3}}) {  // partial frames, or an odd number
    request.encoder_features = std::vector<float>(values, 0.0f);
    EXPECT_NE(refusal(request, model(3)).find("even number"), std::string::npos) << values;
  }
  EXPECT_NE(refusal(request, model(0)).find("encoder_ids"), std::string::npos);
  request.encoder_features = std::vector<float>(3 * 14, 0.0f);
  EXPECT_NE(refusal(request, model(3)).find("at most 12"), std::string::npos);
  request.encoder_features = std::vector<float>(6, 0.0f);
  request.encoder_features[4] = std::nanf("");
  EXPECT_NE(refusal(request, model(3)).find("mel bin 1 of frame 1"), std::string::npos);
}

TEST(EncoderInputTest, OtherModelsTakeNone) {
  GenerateRequest request;
  ModelConfig config;
  config.architecture = "LlamaForCausalLM";
  EXPECT_EQ(refusal(request, config), "");
  request.encoder_features = {1};
  EXPECT_NE(refusal(request, config).find("LlamaForCausalLM"), std::string::npos);
}

}  // namespace
}  // namespace fovea
