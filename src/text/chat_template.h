#pragma once
// Chat templates: Jinja as transformers runs it (trim_blocks, lstrip_blocks, loop controls, immutable
// values), bounded in steps, depth, work and output. Neither files nor the machine are in reach of a
// template.
#include <memory>
#include <string>
#include <string_view>

#include "fovea/result.h"

namespace fovea {

namespace text {
class Json;
}

class ChatTemplate {
 public:
  /// Parses the template; errors, of rendering too, name `name`, line and column.
  static Result<std::unique_ptr<ChatTemplate>> parse(std::string_view source,
                                                     std::string name = "chat template");
  ~ChatTemplate();

  /// `variables` is a JSON object: messages, tools, add_generation_prompt, bos_token, ... Any thread.
  Result<std::string> render(const text::Json& variables) const;
  Result<std::string> render_json(std::string_view variables) const;

 private:
  ChatTemplate();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace fovea
