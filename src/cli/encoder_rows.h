#pragma once
// Rows of encoder-decoder models: encoder input (text or audio) and decoder prompt.
#include <optional>
#include <string>

#include "audio/log_mel.h"
#include "cli/json_io.h"
#include "model/config.h"

namespace fovea::cli {

class EncoderRows {
 public:
  /// Reads the files that the engine's model needs; inactive for a model without an encoder.
  static Result<EncoderRows> create(const Engine& engine, const std::string& generation_config);
  bool active() const { return model_.has_value(); }

  /// Fills the encoder's input and the decoder's prompt (`prompt` = text including special tokens, "" = the
  /// model's default) of a request. Must be active.
  Status fill(const Engine& engine, const InputRow& row, const std::string& prompt,
              GenerateRequest& request) const;

 private:
  std::optional<ModelConfig> model_;
  std::optional<LogMelConfig> audio_;  ///< set for models with audio input
};

}  // namespace fovea::cli
