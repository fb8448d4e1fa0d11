#pragma once
// A read-only mmap of a whole file.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "fovea/result_fwd.h"

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

  /// Reads bytes [offset, offset + to.size()), which lie in the file, past the mapping: the pages do not
  /// count as this process's memory. Errors: the file has been replaced or truncated, or cannot be read.
  Status read(uint64_t offset, std::span<std::byte> to) const;

  /// Requests read-ahead of the file.
  void prefetch() const;

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  std::string path_;
  uint64_t device_ = 0, inode_ = 0;  // which file the path named
};

}  // namespace fovea
