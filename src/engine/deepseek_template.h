#pragma once
// The chat template of DeepSeek-V3.2, which ships a Python encoder (encoding/encoding_dsv32.py) instead of
// one.
#include <string>
#include <string_view>

#include "fovea/result_fwd.h"

namespace fovea {

/// A Jinja template that renders conversations as the encoder does. The wording of the sections that describe
/// tools and response formats is read from `encoder`, its source; nothing of it is run. Besides the common
/// variables the template reads `thinking` (or `enable_thinking`), and `tools` and `response_format` of
/// system and developer messages.
///
/// Rules: reasoning is written only after the last user or developer message; every other turn begins behind
/// `</think>`. Tools go into the first system message, or before the conversation if there is none. Results
/// of tools stand in one <function_results> block, in the order of the calls. Arguments of calls must be
/// objects.
///
/// Errors name `name` (the file) and the string that is missing or that has an unknown {field}.
Result<std::string> deepseek_template(std::string_view encoder, const std::string& name);

}  // namespace fovea
