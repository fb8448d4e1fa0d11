#pragma once
// How --help looks, and what kind of value a flag takes: help and shell completion read both from the flag.
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace fovea::cli {

/// Flags that are added to `app` from here on stand under this heading of its --help.
void start_group(CLI::App& app, const std::string& name);

/// The value is the name of a file, of a folder.
CLI::Option* takes_file(CLI::Option* option);
CLI::Option* takes_folder(CLI::Option* option);
/// Of an attention backend.
CLI::Option* takes_backend(CLI::Option* option);
/// The value is one of `names`; others are refused, letter case does not matter.
CLI::Option* one_of(CLI::Option* option, const std::vector<std::string>& names);
/// The same for --help and completion alone: the command checks it itself, or takes more than these.
CLI::Option* suggest(CLI::Option* option, const std::vector<std::string>& names);

enum class ValueKind { none, free, file, folder, backend, names };
struct ValueHint {
  ValueKind kind = ValueKind::none;
  std::vector<std::string> names;
};
ValueHint value_hint(const CLI::Option& option);

/// Of the program, before commands are added: they take it over.
void use_help_format(CLI::App& root);

}  // namespace fovea::cli
