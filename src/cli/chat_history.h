#pragma once
// What a person typed at `fovea chat`, kept for the next time.
#include <string>
#include <vector>

#include "fovea/result.h"

namespace fovea::cli {

class ChatHistory {
 public:
  /// $XDG_STATE_HOME/fovea/chat_history, else ~/.local/state/fovea/chat_history; "" where neither is set.
  static std::string default_path();

  /// Reads `path`, which need not be there, and makes it shorter where it grew beyond the bounds.
  static Result<ChatHistory> open(std::string path);

  const std::vector<std::string>& entries() const { return entries_; }
  /// Appended to the file at once, so that two chats at a time keep each other's.
  Status add(const std::string& entry);

  static constexpr size_t kMostBytes = size_t{1} << 20, kMostEntryBytes = size_t{1} << 16;

 private:
  explicit ChatHistory(std::string path) : path_(std::move(path)) {}
  Status rewrite() const;

  std::string path_;
  std::vector<std::string> entries_;  // the oldest first
};

}  // namespace fovea::cli
