#pragma once
// Finds a model's chat templates: files of the model folder, or a template given by the user.
#include <string>
#include <vector>

#include "fovea/result_fwd.h"

namespace fovea {

struct NamedTemplate {
  std::string name;    ///< "default", "tool_use", "rag", ...
  std::string source;  ///< Jinja
  std::string origin;  ///< for messages: the file and the template's name in it
};

/// The templates of a model folder, each name once, from the first of these sources that has any, in the
/// forms that transformers reads and saves:
///   chat_template.jinja ("default") with additional_chat_templates/NAME.jinja and chat_templates/NAME.jinja
///   tokenizer_config.json: chat_template, a string, a list of {name, template} or an object of names
///   chat_template.json, the same in a file of its own
///   encoding/encoding_dsv32.py, DeepSeek-V3.2's encoder (deepseek_template.h)
///   of gpt-oss by its config.json: harmony_template()
/// A folder without templates is not an error.
Result<std::vector<NamedTemplate>> find_chat_templates(const std::string& dir);

/// A template given by the user: its text (recognised by "{{" or "{%"), the path of a file, or "harmony".
Result<NamedTemplate> read_given_template(const std::string& text_or_file);

}  // namespace fovea
