#pragma once
// The command that a command line names, and lookup of its flags by name.
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace fovea::cli {

/// "fovea bench serve"
std::string command_name(const CLI::App* app);

/// A command of `app` by its exact name; null when there is none.
const CLI::App* find_subcommand(const CLI::App& app, const std::string& name);

/// A flag of `app` or, where parsing falls through to the parent, of the program; `name` includes its dashes.
const CLI::Option* find_option(const CLI::App* app, const std::string& name);
bool takes_value(const CLI::Option& option);
/// The first spelling: "--port".
std::string first_name(const CLI::Option& option);

/// The command that the arguments name, and the index of its first own argument.
struct Command {
  const CLI::App* app;
  size_t first;
};
Command find_command(const CLI::App& root, const std::vector<std::string>& arguments);

}  // namespace fovea::cli
