#pragma once
// Slash commands of `fovea chat`.
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/conversation.h"

namespace fovea::cli {

class ChatCommands {
 public:
  ChatCommands(Conversation& conversation, InterruptFlag& interrupt)
      : conversation_(conversation), interrupt_(interrupt) {}

  /// "/help", ..., including aliases.
  static std::vector<std::string> names();
  /// Whether `text` is a command and not a message: one line that begins with a slash and a word. A path
  /// ("/etc/hosts is ...") is a message.
  static bool is_command(std::string_view text);

  enum class Next { go_on, leave };
  /// Writes status to standard error and answers to standard output.
  Result<Next> run(const std::string& text);
  /// Text read by /read, to be put before the next message; clears it.
  std::string take_attachments() { return std::exchange(attached_, {}); }

 private:
  struct Command;
  static const std::vector<Command>& all();

  Status clear(const std::string&);
  Status answer_again(const std::string&);
  Status undo(const std::string&);
  Status system(const std::string& text);
  Status set(const std::string& text);
  Status show(const std::string&);
  Status read(const std::string& path);
  Status save(const std::string& path);
  Status load(const std::string& path);
  Status help(const std::string&);

  Conversation& conversation_;
  InterruptFlag& interrupt_;
  std::string attached_;
  std::string file_;  // where the conversation was saved to or loaded from; may be overwritten
};

}  // namespace fovea::cli
