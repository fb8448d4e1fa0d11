#pragma once
// Input history of `fovea chat`, kept between runs.
#include <string>
#include <utility>
#include <vector>

#include "fovea/result_fwd.h"

namespace fovea::cli {

class ChatHistory {
 public:
  /// $XDG_STATE_HOME/fovea/chat_history, else ~/.local/state/fovea/chat_history; "" if neither is set.
  static std::string default_path();

  /// Reads `path`, which need not exist, and truncates it if it exceeds the bounds.
  static Result<ChatHistory> open(std::string path);

  const std::vector<std::string>& entries() const { return entries_; }
  /// Appends to the file immediately, so that two concurrent chats keep each other's entries.
  Status add(const std::string& entry);

  static constexpr size_t kMostBytes = size_t{1} << 20, kMostEntryBytes = size_t{1} << 16;

 private:
  explicit ChatHistory(std::string path) : path_(std::move(path)) {}
  Status rewrite() const;

  std::string path_;
  std::vector<std::string> entries_;  // oldest first
};

}  // namespace fovea::cli
