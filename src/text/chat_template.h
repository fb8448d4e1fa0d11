#pragma once
// Chat templates: Jinja as transformers runs it (trim_blocks, lstrip_blocks, loop controls), bounded in
// steps, depth and output.
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/result.h"

namespace fovea {

struct ChatMessage {
  std::string role;
  std::string content;
};

class ChatTemplate {
 public:
  /// Parses the template; a syntax error names line and column.
  static Result<std::unique_ptr<ChatTemplate>> parse(std::string_view source);
  ~ChatTemplate();

  /// `variables_json`: a JSON object of further variables (bos_token, eos_token, tools, enable_thinking,
  /// ...).
  Result<std::string> render(const std::vector<ChatMessage>& messages, bool add_generation_prompt,
                             std::string_view variables_json = "{}") const;
  /// All variables from one JSON object, "messages" and "add_generation_prompt" included.
  Result<std::string> render_json(std::string_view variables_json) const;

 private:
  ChatTemplate();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace fovea
