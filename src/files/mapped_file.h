#pragma once
// A read-only mmap of a whole file.
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "fovea/result.h"

namespace fovea {

class MappedFile {
 public:
  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  /// Missing or unreadable files and anything but a regular file (after symlinks) are errors that name
  /// `path`.
  static Result<MappedFile> open(const std::string& path);

  /// Valid while this object lives. Truncating the file meanwhile kills the process (SIGBUS).
  std::span<const std::byte> bytes() const { return {data_, size_}; }

  /// Requests read-ahead of the file.
  void prefetch() const;

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

/// The text of a small file (config.json and the like); larger than `limit` bytes is an error.
Result<std::string> read_text_file(const std::string& path, size_t limit);

/// `text` on one line and at most `limit` bytes long, for quoting a file's content in a message.
std::string printable(std::string_view text, size_t limit = 80);

/// The error for a model file or folder without read permission.
Error permission_denied(const std::string& path);

}  // namespace fovea
