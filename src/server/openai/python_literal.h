#pragma once
// Calls in Python's form, f(a=1, b="x"), as tool calls of some models.
#include <optional>
#include <string>
#include <string_view>

namespace fovea::openai {

/// Whether a text begins with [NAME(; nullopt = more of it is needed.
std::optional<bool> python_call_begins(std::string_view text);

/// Bytes of the whole call NAME(...) that `text` begins with; 0 = its end is not there.
size_t python_call_length(std::string_view text);

struct PythonCall {
  std::string name, arguments;  ///< JSON
};
/// A whole call with keyword arguments that are literals; nullopt = it is something else.
std::optional<PythonCall> read_python_call(std::string_view text);

}  // namespace fovea::openai
