#pragma once
// The chat template of a model directory and the variables that it is rendered with.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fovea/engine.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace fovea {

class ChatPrompt {
 public:
  /// DIR/chat_template.jinja, else tokenizer_config.json's chat_template. A template that can't be read or
  /// parsed is not fatal: render() returns its error.
  static ChatPrompt load(const std::string& dir, const Tokenizer* tokenizer);

  bool exists() const { return template_ || failure_; }
  Result<std::string> render(const std::vector<ChatTurn>& turns, bool add_generation_prompt) const;

 private:
  std::unique_ptr<ChatTemplate> template_;
  std::optional<Error> failure_;
  std::string variables_ = "{}";  // bos_token, eos_token, ... as JSON
};

}  // namespace fovea
