#pragma once
// Flags that are not on the command line: from FOVEA_* variables and from the file that --config names.
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "cli/command_line.h"
#include "fovea/result_fwd.h"

namespace fovea::cli {

/// A flag whose value is not from the command line.
struct FlagSource {
  const CLI::Option* option;  ///< null for another engine's flag
  std::string value;          ///< empty for a switch, and for a secret
  std::string variable;       ///< "FOVEA_PORT"; empty if from the file
  std::string place;          ///< "fovea.toml:3"
};

struct Configuration {
  std::vector<std::string> arguments;  ///< to insert after the command's name
  std::vector<FlagSource> sources;

  /// `message`, followed by the source of the value of each flag that it mentions.
  std::string explained(const std::string& message) const;
};

/// Values from the variables and the file for flags that `arguments` don't set; a variable takes precedence
/// over the file. The whole file is checked, including sections of other commands.
Result<Configuration> read_configuration(const CLI::App& root, const Command& command,
                                         const std::vector<std::string>& arguments,
                                         const std::vector<std::string>& environment);

/// The variables that set flags of any command: FOVEA_PORT, ...
std::vector<std::string> flag_variables(const CLI::App& root);

}  // namespace fovea::cli
