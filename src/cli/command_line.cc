#include "cli/command_line.h"

namespace fovea::cli {

std::string command_name(const CLI::App* app) {
  return app->get_parent() ? command_name(app->get_parent()) + " " + app->get_name() : app->get_name();
}

const CLI::App* find_subcommand(const CLI::App& app, const std::string& name) {
  const auto found = app.get_subcommands([&](const CLI::App* sub) { return sub->get_name() == name; });
  return found.empty() ? nullptr : found.front();
}

const CLI::Option* find_option(const CLI::App* app, const std::string& name) {
  for (; app != nullptr; app = app->get_parent())
    if (const CLI::Option* option = app->get_option_no_throw(name)) return option;
  return nullptr;
}

bool takes_value(const CLI::Option& option) {
  return option.get_items_expected_max() > 0;
}

std::string first_name(const CLI::Option& option) {
  return "--" + option.get_lnames().front();
}

Command find_command(const CLI::App& root, const std::vector<std::string>& arguments) {
  Command command{&root, 0};
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument.starts_with('-')) {
      const size_t equals = argument.find('=');
      const CLI::Option* option = find_option(command.app, argument.substr(0, equals));
      if (option != nullptr && takes_value(*option) && equals == std::string::npos) ++i;
      continue;
    }
    const CLI::App* next = find_subcommand(*command.app, argument);
    if (next == nullptr) break;
    command = {next, i + 1};
  }
  return command;
}

}  // namespace fovea::cli
