#pragma once
// Where a model's chat templates are: files of the model folder, or what the user gave.
#include <string>
#include <vector>

#include "fovea/result.h"

namespace fovea {

struct NamedTemplate {
  std::string name;    ///< "default", "tool_use", "rag", ...
  std::string source;  ///< Jinja
  std::string origin;  ///< for messages: the file, and the name in it
};

/// The templates of a model folder, each name once, from the first of these that has any, as transformers
/// reads and saves them:
///   chat_template.jinja ("default") with additional_chat_templates/NAME.jinja and chat_templates/NAME.jinja
///   tokenizer_config.json: chat_template, a string, a list of {name, template} or an object of names
///   chat_template.json, the same in a file of its own
/// None is no error.
Result<std::vector<NamedTemplate>> find_chat_templates(const std::string& dir);

/// A template that the user gave: its text, which has "{{" or "{%" in it, or the file that holds it.
Result<NamedTemplate> read_given_template(const std::string& text_or_file);

}  // namespace fovea
