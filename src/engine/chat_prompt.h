#pragma once
// Renders a conversation to prompt text: selects one of the model's chat templates and builds its variables.
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fovea/engine.h"
#include "text/chat_template.h"
#include "text/json_value.h"
#include "text/tokenizer.h"

namespace fovea {

class ChatPrompt {
 public:
  ChatPrompt() = default;

  /// Loads the templates of `dir`, or config.chat_template instead. Errors in the model's own templates are
  /// not fatal: render() returns them. Errors in the configuration are. `tokenizer` may be null.
  static Result<ChatPrompt> load(const std::string& dir, const Tokenizer* tokenizer,
                                 const EngineConfig& config);

  bool exists() const { return !templates_.empty() || failure_; }
  Result<std::string> render(const ChatRequest& request) const;

 private:
  struct Entry {
    std::unique_ptr<ChatTemplate> program;
    std::optional<Error> failure;  // instead of a program
    bool reads_analysis = false;   // a model's own template of harmony
  };

  Result<const Entry*> choose(const std::string& name, bool has_tools) const;
  std::string names() const;

  std::map<std::string, Entry> templates_;
  std::optional<Error> failure_;  // of finding the templates
  std::string preferred_;         // the configured name, "" = none
  text::Json::Object special_tokens_;
};

}  // namespace fovea
