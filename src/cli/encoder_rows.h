#pragma once
// Rows of encoder-decoder models: a text to read or a sound to hear, and what the decoder's answer begins
// with.
#include <optional>
#include <string>

#include "audio/log_mel.h"
#include "cli/json_io.h"
#include "model/config.h"

namespace fovea::cli {

class EncoderRows {
 public:
  /// Reads what the engine's model needs; inactive for a model without an encoder.
  static Result<EncoderRows> create(const Engine& engine, const std::string& generation_config);
  bool active() const { return model_.has_value(); }

  /// Fills the encoder's input and the decoder's prompt (`prompt` = text with its special tokens, "" = the
  /// model's own) of a request. Not in an inactive one.
  Status fill(const Engine& engine, const InputRow& row, const std::string& prompt,
              GenerateRequest& request) const;

 private:
  std::optional<ModelConfig> model_;
  std::optional<LogMelConfig> audio_;  ///< the model hears
};

}  // namespace fovea::cli
