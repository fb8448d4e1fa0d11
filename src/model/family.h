#pragma once
// The supported model families, selected by config.json's architecture.
#include <array>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "model/config_fields.h"
#include "model/decoder.h"
#include "model/weights.h"

namespace fovea {

/// One family: reads its config and builds a model from its weights. Each family file defines one; family.cc
/// lists them. See docs/adding-a-model.md.
struct Family {
  std::array<std::string_view, 4> architectures;  ///< as in config.json's "architectures"; unused ones empty
  std::string_view model_type;
  ModelKind kind = ModelKind::decoder;
  /// Fills the sizes and what attention_specs() reads: heads, windows, chunks, scale, cap, sinks. Nothing
  /// else reads these from config.json: the engine runs these layers, and `explain` shows them even if
  /// configure() refuses a setting. ErrorCode::unsupported = this family does not
  /// implement the layers' attention.
  void (*read_attention)(Fields& fields, ModelConfig& config);
  /// Then fills the rest, except the common fields (architecture, model_type, dtype, token ids, sampling).
  void (*configure)(Fields& fields, ModelConfig& config);
  /// Reads every weight through `reader`. Called twice, first to check names and shapes and to add up sizes
  /// (the reader then returns empty weights, and the model is dropped unused), then to load.
  std::unique_ptr<Model> (*read)(const ModelConfig& config, WeightReader& reader);
};

extern const Family kGemma2Family;
extern const Family kGemma3Family;
extern const Family kGptOssFamily;
extern const Family kGraniteFamily;
extern const Family kLlama4Family;
extern const Family kLlamaFamily;
extern const Family kMistralFamily;
extern const Family kMixtralFamily;
extern const Family kOlmo2Family;
extern const Family kPhi3Family;
extern const Family kQwen2Family;
extern const Family kQwen3Family;
extern const Family kBertFamily;
extern const Family kDistilBertFamily;
extern const Family kRobertaFamily;
extern const Family kXlmRobertaFamily;
extern const Family kCamembertFamily;
extern const Family kBartFamily;
extern const Family kWhisperFamily;
extern const Family kQwen3MoeFamily;
extern const Family kDeepseekV2Family;
extern const Family kDeepseekV3Family;
extern const Family kGlm4MoeLiteFamily;
extern const Family kDeepseekV32Family;
extern const Family kGlmMoeDsaFamily;
extern const Family kMiniCpm3Family;
extern const Family kLongcatFlashFamily;

std::span<const Family* const> families();
/// Null when unknown.
const Family* find_family(std::string_view architecture);
const Family* find_family_of_type(std::string_view model_type);

}  // namespace fovea
