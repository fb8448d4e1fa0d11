#include "cli/configuration.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <set>

#include "base/edit_distance.h"
#include "base/printable.h"
#include "compat/launch/attention_keys.h"
#include "compat/launch/config_file.h"
#include "compat/launch/environment.h"
#include "compat/launch/foreign_flags.h"
#include "files/text_file.h"
#include "fovea/result.h"

namespace fovea::cli {
namespace {

constexpr size_t kMaxFileBytes = 1 << 20;
constexpr std::string_view kConfigVariable = "FOVEA_CONFIG";

using Options = std::set<const CLI::Option*>;

bool is_secret(const CLI::Option& option) {
  return option.check_name("--api-key");
}

/// Excludes options that are not settings: --help, --version, --config and options without a long name.
bool is_setting(const CLI::Option& option) {
  return !option.get_lnames().empty() && !option.check_name("--help") && !option.check_name("--version") &&
         !option.check_name("--config");
}

std::vector<const CLI::Option*> settings(const CLI::App& app) {
  return app.get_options([](const CLI::Option* option) { return is_setting(*option); });
}

/// "max-tokens" -> "FOVEA_MAX_TOKENS".
std::string variable_name(const std::string& flag) {
  std::string name = "FOVEA_";
  for (const char c : flag)
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

/// Empty if not set; an empty variable counts as not set.
std::string value_of(const std::vector<std::string>& environment, std::string_view name) {
  for (const std::string& entry : environment)
    if (entry.starts_with(name) && entry.size() > name.size() && entry[name.size()] == '=')
      return entry.substr(name.size() + 1);
  return {};
}

/// Variables with a special meaning, read elsewhere.
const EnvironmentVariable* own_variable(std::string_view name) {
  for (const EnvironmentVariable& variable : environment_variables())
    if (variable.name == name) return &variable;
  return nullptr;
}

bool loads_model(const CLI::App& app) {
  return app.get_option_no_throw("--attention-backend") != nullptr;
}

/// A flag of another engine that launch lines accept; null for Fovea's own flags and for unknown ones.
const ForeignFlag* find_foreign(const CLI::App& app, const std::string& name) {
  const ForeignFlag* flag = loads_model(app) ? find_foreign_flag(name) : nullptr;
  if (flag == nullptr || flag->verdict == FlagVerdict::same) return nullptr;
  return flag->ours.empty() || app.get_option_no_throw(std::string(flag->ours)) ? flag : nullptr;
}

/// The flags that the arguments set, under any of their names.
Options given_flags(const CLI::App& app, const std::vector<std::string>& arguments) {
  Options given;
  const auto insert = [&](const std::string& name) {
    const CLI::Option* option = find_option(&app, name);
    if (option != nullptr) given.insert(option);
    return option;
  };
  for (size_t i = 0; i < arguments.size() && arguments[i] != "--"; ++i) {
    const std::string& argument = arguments[i];
    if (!argument.starts_with('-')) continue;
    const std::string name = argument.substr(0, argument.find('='));
    if (const ForeignFlag* foreign = find_foreign(app, name)) {
      insert(std::string(foreign->ours));
      for (const auto& [value, ours] : foreign->values)
        insert(std::string(ours.substr(0, ours.find('='))));
      continue;
    }
    if (name.starts_with("-ac") || name.starts_with("--attention-config") ||
        name.starts_with("--attention_config")) {
      insert("--attention-config");
      continue;
    }
    const CLI::Option* option = insert(name);
    if (option == nullptr && !name.starts_with("--"))
      insert(name.substr(0, 2));  // -n4
    else if (option != nullptr && takes_value(*option) && name == argument)
      ++i;
  }
  return given;
}

class Reader {
 public:
  Reader(const CLI::App& root, const Command& command, const std::vector<std::string>& arguments,
         const std::vector<std::string>& environment)
      : root_(root), app_(*command.app), environment_(environment), set_(given_flags(app_, arguments)) {}

  Result<Configuration> run(const std::string& file) {
    for (const CLI::App* app = &app_; app != nullptr; app = app->get_parent())
      for (const CLI::Option* option : settings(*app))
        if (!set_.contains(option)) FOVEA_RETURN_IF_ERROR(read_variables(*option));
    // Read elsewhere, but takes precedence over the file too.
    for (const EnvironmentVariable& variable : environment_variables())
      if (variable.key == "batch_invariant" && !value_of(environment_, variable.name).empty())
        set_.insert(find_option(&app_, "--batch-invariant"));
    if (!file.empty()) FOVEA_RETURN_IF_ERROR(read_file(file));
    return std::move(out_);
  }

 private:
  Status read_variables(const CLI::Option& option) {
    std::string from;
    for (const std::string& flag : option.get_lnames()) {
      const std::string name = variable_name(flag);
      if (const EnvironmentVariable* own = own_variable(name))
        if (own->use != VariableUse::serve || command_name(&app_) != "fovea serve") continue;
      const std::string value = value_of(environment_, name);
      if (value.empty()) continue;
      if (!from.empty())
        return invalid("environment variables " + from + " and " + name +
                       " are both set, and mean the same flag; unset one of them");
      from = name;
      if (takes_value(option)) {
        add({&option, value, name, ""}, {"--" + flag + "=" + value});
        continue;
      }
      const auto on = parse_switch(value);
      if (!on)
        return invalid("environment variable " + name + "=" + printable(value) +
                       ": allowed are 0, 1, true, false; or unset it");
      add({&option, "", name, ""}, switch_arguments(option, flag, *on));
    }
    return {};
  }

  /// A switch that is off needs no argument, unless it has a negated form.
  static std::vector<std::string> switch_arguments(const CLI::Option& option, const std::string& name,
                                                   bool on) {
    if (on) return {"--" + name};
    const bool opposite = !option.get_fnames().empty() && option.get_lnames().front() == name;
    return opposite ? std::vector<std::string>{"--" + name + "=false"} : std::vector<std::string>();
  }

  void add(FlagSource source, const std::vector<std::string>& arguments) {
    if (source.option != nullptr) {
      set_.insert(source.option);
      if (is_secret(*source.option)) source.value.clear();
    }
    out_.sources.push_back(std::move(source));
    out_.arguments.insert(out_.arguments.end(), arguments.begin(), arguments.end());
  }

  const CLI::App* command_of(const std::vector<std::string>& path) const {
    const CLI::App* app = &root_;
    for (const std::string& name : path)
      if (app = find_subcommand(*app, name); app == nullptr) return nullptr;
    return app;
  }

  Status read_file(const std::string& file) {
    auto text = read_text_file(file, kMaxFileBytes);
    if (!text) return invalid("--config " + text.error().message);
    FOVEA_TRY(entries, parse_config_file(*text, file, [this](const std::vector<std::string>& path) {
                return command_of(path) != nullptr;
              }));
    for (const ConfigEntry& entry : entries)
      FOVEA_RETURN_IF_ERROR(take(entry, file + ":" + std::to_string(entry.line)));
    return {};
  }

  Status take(const ConfigEntry& entry, const std::string& place) {
    const CLI::App& section = *command_of(entry.section);
    const std::string name = "--" + entry.key;
    const CLI::Option* option = section.get_option_no_throw(name);
    if (option != nullptr && !is_setting(*option)) option = nullptr;
    const ForeignFlag* foreign = option == nullptr ? find_foreign(section, name) : nullptr;
    if (option == nullptr && foreign == nullptr) return unknown(entry, section, place);
    if (option != nullptr)
      if (const auto [at, first] = in_file_.emplace(option, entry.key); !first)
        return invalid(place + ": " + entry.key + " and " + at->second + " are the same flag; give it once");
    FOVEA_TRY(arguments, to_arguments(entry, option, place));
    const bool applies = &section == &app_ || &section == &root_;
    const CLI::Option* sets =
        foreign != nullptr ? section.get_option_no_throw(std::string(foreign->ours)) : option;
    if (!applies || (sets != nullptr && set_.contains(sets))) return {};
    const auto* value = std::get_if<std::string>(&entry.value);
    add({option, value != nullptr ? *value : "", "", place}, arguments);
    return {};
  }

  static Result<std::vector<std::string>> to_arguments(const ConfigEntry& entry, const CLI::Option* option,
                                                       const std::string& place) {
    const std::string name = "--" + entry.key;
    const std::string start = place + ": " + entry.key;
    if (const bool* on = std::get_if<bool>(&entry.value)) {
      if (option == nullptr) return *on ? std::vector{name} : std::vector<std::string>();
      if (takes_value(*option)) return invalid(start + " takes a value, and not true or false");
      return switch_arguments(*option, entry.key, *on);
    }
    if (option != nullptr && !takes_value(*option)) return invalid(start + " takes true or false");
    const std::string empty = start + " is empty; give a value, or leave the key out";
    if (const auto* value = std::get_if<std::string>(&entry.value)) {
      if (value->empty()) return invalid(empty);
      return std::vector{name + "=" + *value};
    }
    const auto& list = std::get<std::vector<std::string>>(entry.value);
    if (option == nullptr || option->get_items_expected_max() == 1)
      return invalid(start + " takes one value, and not a list");
    std::vector<std::string> arguments;
    for (const std::string& value : list) {
      if (value.empty()) return invalid(empty);
      arguments.push_back(name + "=" + value);
    }
    return arguments;
  }

  Status unknown(const ConfigEntry& entry, const CLI::App& section, const std::string& place) const {
    std::vector<std::string> names;
    for (const CLI::Option* option : settings(section))
      names.insert(names.end(), option->get_lnames().begin(), option->get_lnames().end());
    for (const CLI::App* command : section.get_subcommands({}))
      names.push_back(command->get_name());
    const std::string_view near = nearest_name(entry.key, {names.begin(), names.end()});
    const bool near_command = !near.empty() && find_subcommand(section, std::string(near)) != nullptr;
    const std::string here = &section == &root_ ? "at the top of the file, where flags of every command stand"
                                                : "in [" + path_of(section) + "]";
    std::string text = place + ": " + printable(entry.is_table ? "[" + entry.key + "]" : entry.key) +
                       " is not known " + here;
    if (!near.empty())
      text += "; did you mean " + (near_command ? "[" + std::string(near) + "]" : std::string(near)) + "?";
    else if (const CLI::App* owner = owner_of(entry.key, root_))
      text += "; write it below [" + path_of(*owner) + "], or the command that it is for";
    return invalid(text + " (" + command_name(&section) + " --help lists the flags)");
  }

  static std::string path_of(const CLI::App& app) {
    const std::string parent = app.get_parent()->get_parent() ? path_of(*app.get_parent()) + "." : "";
    return parent + app.get_name();
  }

  /// A command that has such a flag; serve first, as most files are for it.
  static const CLI::App* owner_of(const std::string& key, const CLI::App& app) {
    if (const CLI::App* serve = find_subcommand(app, "serve");
        serve && serve->get_option_no_throw("--" + key))
      return serve;
    for (const CLI::App* command : app.get_subcommands({})) {
      if (command->get_option_no_throw("--" + key)) return command;
      if (const CLI::App* inner = owner_of(key, *command)) return inner;
    }
    return nullptr;
  }

  const CLI::App &root_, &app_;
  const std::vector<std::string>& environment_;
  Options set_;  ///< options that already have a value
  std::map<const CLI::Option*, std::string> in_file_;
  Configuration out_;
};

/// The value of --config, from the command line or its variable.
std::string config_file(const CLI::App& app, const std::vector<std::string>& arguments,
                        const std::vector<std::string>& environment) {
  const CLI::Option* config = find_option(&app, "--config");
  for (size_t i = 0; i < arguments.size() && arguments[i] != "--"; ++i) {
    if (arguments[i].starts_with("--config=")) return arguments[i].substr(9);
    if (config->check_name(arguments[i]) && i + 1 < arguments.size()) return arguments[i + 1];
  }
  return value_of(environment, kConfigVariable);
}

bool asks_for_help(const std::vector<std::string>& arguments) {
  for (const std::string& argument : arguments) {
    if (argument == "--") break;
    if (argument == "-h" || argument == "--help" || argument == "--version") return true;
  }
  return false;
}

bool is_part_of_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_';
}

/// Whether `message` contains `name`, not as a part of a longer name.
bool mentions(std::string_view message, std::string_view name) {
  for (size_t at = message.find(name); at != std::string_view::npos; at = message.find(name, at + 1)) {
    const size_t end = at + name.size();
    if ((at == 0 || !is_part_of_name(message[at - 1])) &&
        (end == message.size() || !is_part_of_name(message[end])))
      return true;
  }
  return false;
}

bool is_about(std::string_view message, const FlagSource& source) {
  constexpr size_t kTelling = 3;  // shorter values occur in unrelated messages
  if (source.value.size() >= kTelling && mentions(message, source.value)) return true;
  if (source.option == nullptr) return false;
  if (is_secret(*source.option) && mentions(message, "API key")) return true;
  return std::ranges::any_of(source.option->get_lnames(),
                             [&](const std::string& name) { return mentions(message, "--" + name); });
}

}  // namespace

std::string Configuration::explained(const std::string& message) const {
  std::string notes;
  for (const FlagSource& source : sources) {
    if (source.option == nullptr || !is_about(message, source)) continue;
    notes += " (" + first_name(*source.option) + " is set " +
             (source.variable.empty() ? "at " + source.place : "by " + source.variable);
    if (source.value.starts_with("tcp://") || source.value.starts_with("udp://"))
      notes +=
          ", as Kubernetes does for a Service named fovea: name it otherwise, or set enableServiceLinks: "
          "false";
    notes += ")";
  }
  return message + notes;
}

Result<Configuration> read_configuration(const CLI::App& root, const Command& command,
                                         const std::vector<std::string>& arguments,
                                         const std::vector<std::string>& environment) {
  if (command.app == &root || asks_for_help(arguments)) return Configuration();
  const std::string file = config_file(*command.app, arguments, environment);
  auto read = Reader(root, command, arguments, environment).run(file);
  if (!read && !file.empty() && file == value_of(environment, kConfigVariable))
    return invalid(read.error().message + " (--config is set by " + std::string(kConfigVariable) + ")");
  return read;
}

std::vector<std::string> flag_variables(const CLI::App& root) {
  std::vector<std::string> names = {std::string(kConfigVariable)};
  for (const CLI::Option* option : settings(root))
    for (const std::string& flag : option->get_lnames())
      names.push_back(variable_name(flag));
  for (const CLI::App* command : root.get_subcommands({}))
    for (std::string& name : flag_variables(*command))
      names.push_back(std::move(name));
  return names;
}

}  // namespace fovea::cli
