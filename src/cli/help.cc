#include "cli/help.h"

#include <algorithm>
#include <memory>
#include <sstream>

namespace fovea::cli {
namespace {

constexpr size_t kColumn = 32, kWidth = 100;
constexpr const char* kFile = "FILE";
constexpr const char* kFolder = "DIR";
constexpr const char* kBackend = "BACKEND";
constexpr const char* kShared = "Every command";

/// CLI11's "INT:INT in [0 - 9]", split into the type and "0 to 9".
struct ValueText {
  std::string type, limits;
};

ValueText value_text(const CLI::Option& option) {
  const std::string all = option.get_type_name();
  const size_t colon = all.find(':');
  ValueText text{all.substr(0, colon), colon == std::string::npos ? "" : all.substr(colon + 1)};
  if (text.limits == "POSITIVE") text.limits = "above 0";
  if (text.limits == "NONNEGATIVE") text.limits = "0 or more";
  const size_t open = text.limits.find("in ["), dash = text.limits.find(" - ");
  if (open != std::string::npos && dash != std::string::npos && text.limits.ends_with(']')) {
    const size_t first = open + 4;
    text.limits = text.limits.substr(first, dash - first) + " to " +
                  text.limits.substr(dash + 3, text.limits.size() - dash - 4);
  }
  return text;
}

/// The left column and the text beside it, wrapped.
std::string rows(const std::string& left, const std::string& text) {
  std::string out = "  " + left;
  if (text.empty()) return out + "\n";
  if (out.size() + 2 > kColumn)
    out += "\n" + std::string(kColumn, ' ');
  else
    out.append(kColumn - out.size(), ' ');
  std::istringstream words(text);
  size_t column = kColumn;
  for (std::string word; words >> word; column += word.size() + 1) {
    if (column > kColumn && column + word.size() > kWidth) {
      out.back() = '\n';
      out.append(kColumn, ' ');
      column = kColumn;
    }
    out += word + " ";
  }
  out.back() = '\n';
  return out;
}

class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter() { label("SUBCOMMAND", "COMMAND"); }

  std::string make_option(const CLI::Option* option, bool positional) const override {
    std::string left = make_option_name(option, positional);
    const ValueText value = value_text(*option);
    const bool takes_value = option->get_items_expected_max() > 0;
    if (takes_value && (!positional || value.type != left)) left += " " + value.type;
    std::string notes = value.limits;
    const auto note = [&notes](const std::string& text) { notes += (notes.empty() ? "" : "; ") + text; };
    if (option->get_required()) note("required");
    if (takes_value && !option->get_default_str().empty()) note("default " + option->get_default_str());
    return rows(left, option->get_description() + (notes.empty() ? "" : " [" + notes + "]"));
  }

  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
    return make_description(app) + make_usage(app, name) + make_subcommands(app, mode) +
           make_positionals(app) + flag_groups(app) + footer(app);
  }

  std::string make_subcommands(const CLI::App* app, CLI::AppFormatMode) const override {
    std::string out;
    for (const CLI::App* command : app->get_subcommands({}))
      out += rows(command->get_name(), command->get_description());
    return out.empty() ? out : "\nCommands:\n" + out;
  }

 private:
  static std::string footer(const CLI::App* app) {
    return app->get_footer().empty() ? "" : "\n" + app->get_footer() + "\n";
  }

  std::string flag_groups(const CLI::App* app) const {
    const CLI::App* root = app;
    while (root->get_parent() != nullptr)
      root = root->get_parent();
    std::string out;
    if (app != root) {
      for (const std::string& group : app->get_groups()) {
        const auto options = app->get_options([&](const CLI::Option* option) {
          return option->get_group() == group && option->nonpositional() && option != app->get_help_ptr();
        });
        if (!group.empty() && !options.empty()) out += make_group(group, false, options);
      }
    }
    return out + make_group(kShared, false, root->get_options({}));
  }
};

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names)
    text += (text.empty() ? "" : "|") + name;
  return text;
}

}  // namespace

void start_group(CLI::App& app, const std::string& name) {
  app.option_defaults()->group(name);
}

CLI::Option* takes_file(CLI::Option* option) {
  return option->type_name(kFile);
}
CLI::Option* takes_folder(CLI::Option* option) {
  return option->type_name(kFolder);
}

CLI::Option* takes_backend(CLI::Option* option) {
  return option->type_name(kBackend);
}

CLI::Option* one_of(CLI::Option* option, const std::vector<std::string>& names) {
  CLI::Validator check = CLI::IsMember(names, CLI::ignore_case);
  check.description("");
  return suggest(option->transform(check), names);
}

CLI::Option* suggest(CLI::Option* option, const std::vector<std::string>& names) {
  return option->type_name(joined(names));
}

ValueHint value_hint(const CLI::Option& option) {
  if (option.get_items_expected_max() == 0) return {};
  const std::string type = value_text(option).type;
  if (type == kFile) return {ValueKind::file, {}};
  if (type == kFolder) return {ValueKind::folder, {}};
  if (type == kBackend) return {ValueKind::backend, {}};
  if (type.find('|') == std::string::npos) return {ValueKind::free, {}};
  return {ValueKind::names, CLI::detail::split(type, '|')};
}

void use_help_format(CLI::App& root) {
  root.formatter(std::make_shared<HelpFormatter>());
}

}  // namespace fovea::cli
