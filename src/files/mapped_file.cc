#include "files/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "fovea/result.h"

namespace fovea {

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      path_(std::move(other.path_)),
      device_(other.device_),
      inode_(other.inode_) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(path_, other.path_);
  std::swap(device_, other.device_);
  std::swap(inode_, other.inode_);
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
  file.path_ = path;
  file.device_ = info.st_dev;
  file.inode_ = info.st_ino;
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

Status MappedFile::read(uint64_t offset, std::span<std::byte> to) const {
  // Opened for each read: a model may have more files than a process may keep open.
  const int fd = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return io_error(path_ + ": " + std::strerror(errno));
  struct stat info = {};
  const bool same = fstat(fd, &info) == 0 && info.st_dev == device_ && info.st_ino == inode_;
  int code = 0;
  size_t done = 0;
  while (same && done < to.size()) {
    const ssize_t count = ::pread(fd, to.data() + done, to.size() - done, static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) code = errno;
    if (count <= 0) break;
    done += static_cast<size_t>(count);
  }
  ::close(fd);
  if (done == to.size()) return {};
  return io_error(path_ + ": " +
                  (code != 0 ? std::strerror(code)
                             : "has been replaced or truncated since it was opened; load the model again"));
}

void MappedFile::prefetch() const {
  if (data_) madvise(const_cast<std::byte*>(data_), size_, MADV_WILLNEED);
}

}  // namespace fovea
