#include "files/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace fovea {

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_) munmap(const_cast<std::byte*>(data_), size_);
}

Result<MappedFile> MappedFile::open(const std::string& path) {
  // O_NONBLOCK: opening a named pipe would wait for a writer.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    const int code = errno;
    const std::string message = path + ": " + std::strerror(code);
    return code == ENOENT ? not_found(message) : io_error(message);
  }
  struct stat info = {};
  const bool regular = fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  MappedFile file;
  if (regular && info.st_size > 0) {
    void* data = mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) {
      const int code = errno;
      ::close(fd);
      return io_error(path + ": can't be mapped into memory: " + std::strerror(code));
    }
    file.data_ = static_cast<const std::byte*>(data);
    file.size_ = static_cast<size_t>(info.st_size);
  }
  ::close(fd);
  if (!regular) return io_error(path + ": not a regular file");
  return file;
}

void MappedFile::prefetch() const {
  if (data_) madvise(const_cast<std::byte*>(data_), size_, MADV_WILLNEED);
}

}  // namespace fovea
