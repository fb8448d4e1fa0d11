#pragma once
// A read-only mmap of a whole file.
#include <cstddef>
#include <span>
#include <string>

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

}  // namespace fovea
