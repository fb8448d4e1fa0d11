#pragma once
// Chat templates: Jinja as transformers configures it (trim_blocks, lstrip_blocks, loop controls, immutable
// values), with limits on steps, depth, work and output. Templates have no access to files or to the host.
#include <memory>
#include <string>
#include <string_view>

#include "fovea/result_fwd.h"

namespace fovea {

namespace text {
class Json;
}

class ChatTemplate {
 public:
  /// Parses the template; errors, including those of rendering, name `name`, line and column.
  static Result<std::unique_ptr<ChatTemplate>> parse(std::string_view source,
                                                     std::string name = "chat template");
  ~ChatTemplate();

  /// `variables` is a JSON object: messages, tools, add_generation_prompt, bos_token, ... Thread-safe.
  Result<std::string> render(const text::Json& variables) const;
  Result<std::string> render_json(std::string_view variables) const;

 private:
  ChatTemplate();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace fovea
