#pragma once
// The format of --help, and the kind of value of each flag, from which help and shell completion are derived.
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace fovea::cli {

/// Flags added to `app` from here on appear under this heading of its --help.
void start_group(CLI::App& app, const std::string& name);

/// The value is the name of a file or of a folder.
CLI::Option* takes_file(CLI::Option* option);
CLI::Option* takes_folder(CLI::Option* option);
/// The value is the name of an attention backend.
CLI::Option* takes_backend(CLI::Option* option);
/// The value must be one of `names`, ignoring case.
CLI::Option* one_of(CLI::Option* option, const std::vector<std::string>& names);
/// Shown in --help and completion only: the command checks the value itself or accepts others too.
CLI::Option* suggest(CLI::Option* option, const std::vector<std::string>& names);

enum class ValueKind { none, free, file, folder, backend, names };
struct ValueHint {
  ValueKind kind = ValueKind::none;
  std::vector<std::string> names;
};
ValueHint value_hint(const CLI::Option& option);

/// Call on the root before commands are added; they inherit it.
void use_help_format(CLI::App& root);

}  // namespace fovea::cli
