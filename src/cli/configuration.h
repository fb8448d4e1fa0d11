#pragma once
// Flags that are not on the command line: of FOVEA_* variables, and of the file that --config names.
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "cli/command_line.h"
#include "fovea/result.h"

namespace fovea::cli {

/// A flag whose value is not from the command line.
struct FlagSource {
  const CLI::Option* option;  ///< null for a flag of another engine
  std::string value;          ///< empty for a switch, and for a secret
  std::string variable;       ///< "FOVEA_PORT", or empty:
  std::string place;          ///< "fovea.toml:3"
};

struct Configuration {
  std::vector<std::string> arguments;  ///< to be put behind the command's name
  std::vector<FlagSource> sources;

  /// `message`, and of each flag that it is about where its value came from.
  std::string explained(std::string message) const;
};

/// What the variables and the file say of flags that `arguments` don't have: a variable goes before the file.
/// The whole file is checked, sections of other commands too.
Result<Configuration> read_configuration(const CLI::App& root, const Command& command,
                                         const std::vector<std::string>& arguments,
                                         const std::vector<std::string>& environment);

/// The variables that stand for flags of any command: FOVEA_PORT, ...
std::vector<std::string> flag_variables(const CLI::App& root);

}  // namespace fovea::cli
