#include "cli/row_journal.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

#include "fovea/result.h"

namespace fovea::cli {
namespace {

// File format: this header line, a line "KEY=VALUE" for each setting, an empty line, then binary entries.
constexpr std::string_view kHead = "fovea rows 1\n";

Error failed(const std::string& path) {
  return io_error("cannot write " + path + ": " + std::strerror(errno));
}

}  // namespace

Status append_whole(int fd, std::string_view text, int64_t& end, const std::string& path) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t wrote = ::pwrite(fd, text.data() + done, text.size() - done,
                                   static_cast<off_t>(end) + static_cast<off_t>(done));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) {
      const Error error = failed(path);
      (void)!::ftruncate(fd, static_cast<off_t>(end));
      return error;
    }
    done += static_cast<size_t>(wrote);
  }
  end += static_cast<int64_t>(text.size());
  return {};
}

RowJournal& RowJournal::operator=(RowJournal&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(settings_, other.settings_);
  std::swap(rows_, other.rows_);
  std::swap(head_, other.head_);
  std::swap(end_, other.end_);
  return *this;
}

RowJournal::~RowJournal() {
  if (fd_ >= 0) ::close(fd_);
}

Result<RowJournal> RowJournal::open(const std::string& path) {
  RowJournal journal;
  journal.path_ = path;
  if (std::ifstream file(path, std::ios::binary); file)
    journal.read(std::string(std::istreambuf_iterator<char>(file), {}));
  journal.fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (journal.fd_ < 0) return failed(path);
  return journal;
}

void RowJournal::read(std::string_view text) {
  const size_t size = text.size();
  if (!text.starts_with(kHead)) return;
  text.remove_prefix(kHead.size());
  RunSettings settings;
  for (;;) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos) return;  // interrupted while the settings were written
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    if (line.empty()) break;
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos) return;
    settings.emplace_back(line.substr(0, equals), line.substr(equals + 1));
  }
  settings_ = std::move(settings);
  head_ = static_cast<int64_t>(size - text.size());
  rows_.resize(text.size() / sizeof(RowEntry));  // drops an incomplete last entry
  std::memcpy(rows_.data(), text.data(), rows_.size() * sizeof(RowEntry));
  end_ = head_ + static_cast<int64_t>(rows_.size() * sizeof(RowEntry));
}

Status RowJournal::begin(const RunSettings& settings) {
  std::string text(kHead);
  for (const auto& [key, value] : settings)
    text += key + '=' + value + '\n';
  text += '\n';
  if (::ftruncate(fd_, 0) != 0) return failed(path_);
  settings_ = settings;
  rows_.clear();
  end_ = 0;
  FOVEA_RETURN_IF_ERROR(append_whole(fd_, text, end_, path_));
  head_ = end_;
  return {};
}

Status RowJournal::cut(size_t count) {
  end_ = head_ + static_cast<int64_t>(count * sizeof(RowEntry));
  rows_.resize(count);
  if (::ftruncate(fd_, static_cast<off_t>(end_)) != 0) return failed(path_);
  return {};
}

Status RowJournal::add(const RowEntry& entry) {
  char bytes[sizeof entry];
  std::memcpy(bytes, &entry, sizeof entry);
  return append_whole(fd_, {bytes, sizeof bytes}, end_, path_);
}

}  // namespace fovea::cli
