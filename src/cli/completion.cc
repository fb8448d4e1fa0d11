#include "cli/completion.h"

#include <cstdio>

#include "base/embedded_file.h"
#include "cli/command_line.h"
#include "cli/help.h"
#include "fovea/attention_backend.h"

namespace fovea::cli {

std::span<const EmbeddedFile> embedded_files();

namespace {

const std::vector<std::string> kShells = {"bash", "zsh", "fish"};

class Answer {
 public:
  /// Names that begin with `typed` are offered, with `before` in front of each.
  Answer(std::string typed, std::string before) : typed_(std::move(typed)), before_(std::move(before)) {}

  void add(const std::string& name, const std::string& description = "") {
    if (name.starts_with(typed_))
      text_ += before_ + name + "\t" + description.substr(0, description.find('\n')) + "\n";
  }
  std::string take() { return text_.empty() ? "none\n" : "names\n" + text_; }

 private:
  std::string typed_, before_, text_;
};

/// `before` is the prefix that the shell treats as part of the word: "--dtype=".
std::string complete_value(const CLI::Option& option, const std::string& typed, const std::string& before) {
  const ValueHint hint = value_hint(option);
  Answer answer(typed, before);
  switch (hint.kind) {
    case ValueKind::file: return "files\n";
    case ValueKind::folder: return "folders\n";
    case ValueKind::names:
      for (const std::string& name : hint.names)
        answer.add(name);
      break;
    case ValueKind::backend:
      answer.add("auto");
      for (const BackendRegistry::Entry& entry : builtin_backends().entries())
        answer.add(std::string(entry.info->name));
      break;
    case ValueKind::free:
    case ValueKind::none: break;
  }
  return answer.take();
}

std::string complete_flag(const CLI::App& command, const std::string& typed) {
  Answer answer(typed, "");
  for (const CLI::App* app = &command; app != nullptr; app = app->get_parent())
    for (const CLI::Option* option : app->get_options({}))
      if (app == &command || option != app->get_help_ptr())
        for (const std::string& name : option->get_lnames())
          answer.add("--" + name, option->get_description());
  return answer.take();
}

std::string complete_word(const CLI::App& command, const std::string& typed) {
  Answer answer(typed, "");
  for (const CLI::App* inner : command.get_subcommands({}))
    answer.add(inner->get_name(), inner->get_description());
  if (!command.get_subcommands({}).empty()) return answer.take();
  for (const CLI::Option* option : command.get_options({}))
    if (option->get_positional()) return complete_value(*option, typed, "");
  return answer.take();
}

}  // namespace

void add_completion(CLI::App& root, CompletionFlags& f) {
  auto& app = *root.add_subcommand("completion", "Print a script that completes commands in a shell");
  one_of(app.add_option("shell", f.shell, "The shell"), kShells)->required();
  app.footer(
      "bash: fovea completion bash > ~/.local/share/bash-completion/completions/fovea\n"
      "zsh:  fovea completion zsh > DIR/_fovea, with a DIR of $fpath\n"
      "fish: fovea completion fish > ~/.config/fish/completions/fovea.fish");
}

Status run_completion(const CompletionFlags& flags) {
  for (const EmbeddedFile& file : embedded_files())
    if (file.name == "fovea." + flags.shell) std::fwrite(file.text.data(), 1, file.text.size(), stdout);
  return {};
}

bool is_completion_request(const std::vector<std::string>& arguments) {
  return arguments.size() >= 3 && arguments[0] == "completion" && arguments[1] == "--words";
}

std::string complete(const CLI::App& root, const std::vector<std::string>& arguments) {
  std::vector<std::string> words(arguments.begin() + 2, arguments.end());
  std::string typed = words.back();
  words.pop_back();
  const CLI::App& command = *find_command(root, words).app;
  // bash splits --dtype=auto into three words; other shells keep the flag in the word.
  std::string flag = words.empty() ? "" : words.back(), before;
  if (typed == "=") {
    typed.clear();
  } else if (flag == "=" && words.size() > 1) {
    flag = words[words.size() - 2];
  } else if (const size_t equals = typed.find('='); typed.starts_with("--") && equals != std::string::npos) {
    flag = typed.substr(0, equals);
    before = typed.substr(0, equals + 1);
    typed.erase(0, equals + 1);
  }
  const CLI::Option* option = flag.starts_with('-') ? find_option(&command, flag) : nullptr;
  if (option != nullptr && takes_value(*option)) return complete_value(*option, typed, before);
  return typed.starts_with('-') ? complete_flag(command, typed) : complete_word(command, typed);
}

}  // namespace fovea::cli
