#include "cli/chat_history.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "cli/json_io.h"
#include "cli/line_editor.h"

namespace fovea::cli {
namespace {

namespace fs = std::filesystem;

class File {
 public:
  File(const std::string& path, int flags)
      : fd_(::open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, S_IRUSR | S_IWUSR)) {}
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int fd() const { return fd_; }
  /// Whether it is a regular file that no other user may read.
  bool is_private() const {
    struct stat about = {};
    if (::fstat(fd_, &about) != 0 || !S_ISREG(about.st_mode)) return false;
    return (about.st_mode & 0777) == (S_IRUSR | S_IWUSR) || ::fchmod(fd_, S_IRUSR | S_IWUSR) == 0;
  }
  bool write(std::string_view text) const {
    while (!text.empty()) {
      const ssize_t written = ::write(fd_, text.data(), text.size());
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return false;
      text.remove_prefix(static_cast<size_t>(written));
    }
    return true;
  }

 private:
  int fd_;
};

Error not_kept(const std::string& path) {
  return {ErrorCode::io, "the history " + path + " can't be kept: " +
                             (errno != 0 ? std::strerror(errno) : "it is not a regular file") +
                             "; --no-history turns it off"};
}

std::string absolute_variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value == '/' ? value : "";
}

/// One JSON string per line; invalid lines (truncated, or from another program) are skipped.
std::vector<std::string> parse_entries(std::string_view text) {
  std::vector<std::string> entries;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    if (auto entry = parse_json_string(text.substr(0, end))) entries.push_back(*std::move(entry));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return entries;
}

}  // namespace

std::string ChatHistory::default_path() {
  if (const std::string state = absolute_variable("XDG_STATE_HOME"); !state.empty())
    return state + "/fovea/chat_history";
  const std::string home = absolute_variable("HOME");
  return home.empty() ? "" : home + "/.local/state/fovea/chat_history";
}

Result<ChatHistory> ChatHistory::open(std::string path) {
  ChatHistory history(std::move(path));
  errno = 0;
  const fs::path folder = fs::path(history.path_).parent_path();
  std::error_code error;
  if (!fs::exists(folder, error) && fs::create_directories(folder, error))
    fs::permissions(folder, fs::perms::owner_all, error);
  const File file(history.path_, O_RDWR | O_CREAT);
  if (file.fd() < 0 || !file.is_private()) return not_kept(history.path_);
  std::string text;
  char buffer[1 << 16];
  // Reads only the end of an oversized file.
  if (const off_t size = ::lseek(file.fd(), 0, SEEK_END); size > static_cast<off_t>(8 * kMostBytes))
    ::lseek(file.fd(), size - static_cast<off_t>(8 * kMostBytes), SEEK_SET);
  else
    ::lseek(file.fd(), 0, SEEK_SET);
  for (ssize_t got; (got = ::read(file.fd(), buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<size_t>(got));
  history.entries_ = parse_entries(text);
  size_t keep = 0, bytes = 0;
  for (auto entry = history.entries_.rbegin(); entry != history.entries_.rend(); ++entry, ++keep) {
    bytes += json_string(*entry).size() + 1;
    if (keep == LineEditor::kHistoryEntries || bytes > kMostBytes) break;
  }
  if (keep == history.entries_.size() && text.size() <= kMostBytes) return history;
  history.entries_.erase(history.entries_.begin(), history.entries_.end() - static_cast<ptrdiff_t>(keep));
  FOVEA_RETURN_IF_ERROR(history.rewrite());
  return history;
}

Status ChatHistory::rewrite() const {
  std::string text;
  for (const std::string& entry : entries_)
    text += json_string(entry) + "\n";
  const std::string temporary = path_ + "." + std::to_string(::getpid());
  errno = 0;
  const File file(temporary, O_WRONLY | O_CREAT | O_TRUNC);
  if (file.fd() < 0 || !file.is_private() || !file.write(text) ||
      ::rename(temporary.c_str(), path_.c_str()) != 0) {
    Error error = not_kept(path_);
    ::unlink(temporary.c_str());
    return error;
  }
  return {};
}

Status ChatHistory::add(const std::string& entry) {
  if (entry.size() > kMostEntryBytes || (!entries_.empty() && entries_.back() == entry)) return {};
  errno = 0;
  const File file(path_, O_WRONLY | O_CREAT | O_APPEND);
  if (file.fd() < 0 || !file.is_private() || !file.write(json_string(entry) + "\n")) return not_kept(path_);
  entries_.push_back(entry);
  return {};
}

}  // namespace fovea::cli
