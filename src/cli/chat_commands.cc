#include "cli/chat_commands.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "cli/output_file.h"
#include "text/utf8.h"

namespace fovea::cli {
namespace {

constexpr size_t kLongestRead = size_t{4} << 20;

std::string trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return "";
  return std::string(text.substr(first, text.find_last_not_of(kSpace) - first + 1));
}

std::string count(size_t number, const std::string& word) {
  return std::to_string(number) + " " + word + (number == 1 ? "" : "s");
}

void say(const std::string& text) {
  std::fprintf(stderr, "%s\n", text.c_str());
}

}  // namespace

struct ChatCommands::Command {
  std::vector<const char*> names;  // /help shows the first
  const char* argument;            // "" = none; in brackets = optional
  const char* help;
  Status (ChatCommands::*run)(const std::string&);  // null = leave the chat
};

const std::vector<ChatCommands::Command>& ChatCommands::all() {
  static const std::vector<Command> commands = {
      {{"/help", "/?"}, "", "this list", &ChatCommands::help},
      {{"/clear", "/reset"},
       "",
       "forget the conversation; system message and settings stay",
       &ChatCommands::clear},
      {{"/regen", "/regenerate"}, "", "answer the last message again", &ChatCommands::answer_again},
      {{"/undo"}, "", "take back the last message and its answer", &ChatCommands::undo},
      {{"/system"}, "[TEXT]", "set the system message, or show it; \"\" = none", &ChatCommands::system},
      {{"/set"}, "NAME VALUE", "change a request's field, such as temperature 0.5", &ChatCommands::set},
      {{"/show"}, "", "what was set, and how long the conversation is", &ChatCommands::show},
      {{"/read"}, "FILE", "put a text file before the next message", &ChatCommands::read},
      {{"/save"}, "[FILE]", "write the conversation as JSON, as --messages takes it", &ChatCommands::save},
      {{"/load"}, "FILE", "continue a saved conversation", &ChatCommands::load},
      {{"/exit", "/quit", "/bye"}, "", "leave (Ctrl-D too)", nullptr},
  };
  return commands;
}

std::vector<std::string> ChatCommands::names() {
  std::vector<std::string> names;
  for (const Command& command : all())
    names.insert(names.end(), command.names.begin(), command.names.end());
  return names;
}

bool ChatCommands::is_command(std::string_view text) {
  if (!text.starts_with('/') || trimmed(text).find('\n') != std::string::npos) return false;
  return text.substr(1, text.find_first_of(" \t") - 1).find('/') == std::string_view::npos;
}

Result<ChatCommands::Next> ChatCommands::run(const std::string& text) {
  const std::string line = trimmed(text);
  const std::string name = line.substr(0, line.find_first_of(" \t"));
  const std::string argument = trimmed(std::string_view(line).substr(name.size()));
  for (const Command& command : all()) {
    if (std::find(command.names.begin(), command.names.end(), name) == command.names.end()) continue;
    const std::string_view wanted = command.argument;
    if (wanted.empty() && !argument.empty())
      return invalid(name + " takes nothing after it; \"" + argument + "\" was given");
    if (!wanted.empty() && wanted[0] != '[' && argument.empty())
      return invalid(name + " is incomplete: " + name + " " + command.argument);
    if (command.run == nullptr) return Next::leave;
    FOVEA_RETURN_IF_ERROR((this->*command.run)(argument));
    return Next::go_on;
  }
  return invalid("unknown command " + line + ": /help lists them; a space before it makes it a message");
}

Status ChatCommands::help(const std::string&) {
  std::string text;
  for (const Command& command : all()) {
    std::string left = command.names[0] + std::string(*command.argument ? " " : "") + command.argument;
    left.resize(std::max<size_t>(18, left.size() + 2), ' ');
    text += "  " + left + command.help;
    for (size_t i = 1; i < command.names.size(); ++i)
      text += (i == 1 ? " (also " : ", ") + std::string(command.names[i]) +
              (i + 1 == command.names.size() ? ")" : "");
    text += '\n';
  }
  text +=
      "\n"
      "A message of several lines: paste it, begin new lines with Alt-Enter, end a line with \\, or put\n"
      "\"\"\" before and after it. Up and down bring back what was typed, Ctrl-R searches in it.\n"
      "Ctrl-C stops an answer; at the prompt it clears the line.";
  say(text);
  return {};
}

Status ChatCommands::clear(const std::string&) {
  conversation_.clear();
  attached_.clear();
  say("(forgotten)");
  return {};
}

Status ChatCommands::answer_again(const std::string&) {
  return conversation_.answer_again(interrupt_);
}

Status ChatCommands::undo(const std::string&) {
  FOVEA_RETURN_IF_ERROR(conversation_.undo());
  say("(taken back; " + count(conversation_.turns(), "message") + " left)");
  return {};
}

Status ChatCommands::system(const std::string& text) {
  if (!text.empty()) conversation_.set_system(text == "\"\"" ? "" : text);
  say(conversation_.system().empty() ? "(no system message)" : "system: " + conversation_.system());
  return {};
}

Status ChatCommands::set(const std::string& text) {
  std::string rest = text;
  if (rest.starts_with("parameter ")) rest = trimmed(std::string_view(rest).substr(10));  // ollama's form
  const std::string name = rest.substr(0, rest.find_first_of(" \t="));
  std::string value = trimmed(std::string_view(rest).substr(name.size()));
  if (value.starts_with('=')) value = trimmed(std::string_view(value).substr(1));
  if (name.empty() || value.empty())
    return invalid("/set is incomplete: /set NAME VALUE; names are " + request_fields());
  if (name == "system") return system(value);
  if (!is_json(value)) value = json_string(value);
  FOVEA_RETURN_IF_ERROR(conversation_.set(name, value));
  say("(" + name + " is " + value + ")");
  return {};
}

Status ChatCommands::show(const std::string&) {
  say((conversation_.system().empty() ? "no system message" : "system: " + conversation_.system()) + "\n" +
      conversation_.describe_settings() + count(conversation_.turns(), "message"));
  return {};
}

Status ChatCommands::read(const std::string& path) {
  FOVEA_TRY(file, open_input(path));
  std::string content(kLongestRead + 1, '\0');
  file.read(content.data(), static_cast<std::streamsize>(content.size()));
  content.resize(static_cast<size_t>(file.gcount()));
  if (content.size() > kLongestRead) return invalid(path + " is larger than 4 MiB, which no context holds");
  if (!text::is_valid_utf8(content) || content.find('\0') != std::string::npos)
    return invalid(path + " is not UTF-8 text");
  attached_ += content + (content.ends_with('\n') ? "\n" : "\n\n");
  say("(" + count(content.size(), "byte") + " of " + path + " go before the next message)");
  return {};
}

Status ChatCommands::save(const std::string& path) {
  const std::string target = path.empty() ? file_ : path;
  if (target.empty()) return invalid("/save is incomplete: /save FILE");
  std::error_code ignored;
  if (target != file_ && std::filesystem::exists(target, ignored))
    return invalid(target + " already exists; give another name, or remove it first");
  FOVEA_TRY(out, OutputFile::open({target}));
  FOVEA_RETURN_IF_ERROR(out.line(conversation_.json()));
  FOVEA_RETURN_IF_ERROR(out.commit());
  file_ = target;
  say("(saved to " + target + ")");
  return {};
}

Status ChatCommands::load(const std::string& path) {
  FOVEA_TRY(text, read_file(path));
  FOVEA_RETURN_IF_ERROR(conversation_.load(text, path));
  file_ = path;
  say("(" + count(conversation_.turns(), "message") + " of " + path + ")");
  return {};
}

}  // namespace fovea::cli
