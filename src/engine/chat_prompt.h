#pragma once
// From a conversation to the text of a prompt: which of a model's chat templates is taken, and what it sees.
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

  /// The templates of `dir`, or config.chat_template instead of them. What is wrong with the model's own is
  /// not fatal, render() returns it; what is wrong with the configuration is. `tokenizer` may be null.
  static Result<ChatPrompt> load(const std::string& dir, const Tokenizer* tokenizer,
                                 const EngineConfig& config);

  bool exists() const { return !templates_.empty() || failure_; }
  Result<std::string> render(const ChatRequest& request) const;

 private:
  struct Entry {
    std::unique_ptr<ChatTemplate> program;
    std::optional<Error> failure;  // instead of a program
  };

  Result<const ChatTemplate*> choose(const std::string& name, bool has_tools) const;
  std::string names() const;

  std::map<std::string, Entry> templates_;
  std::optional<Error> failure_;  // of finding them
  std::string preferred_;         // the configured name, "" = none
  text::Json::Object special_tokens_;
};

}  // namespace fovea
