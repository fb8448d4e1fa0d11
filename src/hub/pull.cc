#include "hub/pull.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "base/printable.h"
#include "files/model_folder.h"
#include "fovea/result.h"
#include "hub/curl.h"
#include "hub/digest.h"
#include "hub/listing.h"

namespace fovea::hub {
namespace {

namespace fs = std::filesystem;

constexpr int kAttempts = 8;
constexpr auto kPeriod = std::chrono::milliseconds(100);
constexpr int kNoRanges = 33;  // curl: the server can't continue a file

int64_t size_of(const std::string& file) {
  struct stat about = {};
  return ::stat(file.c_str(), &about) == 0 ? static_cast<int64_t>(about.st_size) : -1;
}

Error failed(const std::string& path) {
  return io_error(path + ": " + std::strerror(errno));
}

/// A branch or a tag; a commit is one too.
bool is_revision(const std::string& name) {
  return !name.empty() && name.size() <= 200 && name.find("..") == std::string::npos && name.front() != '/' &&
         name.back() != '/' && name.front() != '-' && std::ranges::all_of(name, [](char c) {
           return c > 0x20 && c < 0x7F && c != '\\' && c != '"' && c != '?' && c != '#' && c != '%';
         });
}

Status make_folder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  return error ? io_error(path + ": " + error.message()) : Status();
}

/// Writes a file under another name first, so that no reader sees half of it.
Status replace_file(const std::string& path, const std::string& text) {
  FOVEA_RETURN_IF_ERROR(make_folder(fs::path(path).parent_path()));
  const std::string part = path + ".new" + std::to_string(::getpid());
  {
    std::ofstream file(part);
    if (!(file << text) || !file.flush()) return io_error(part + ": cannot be written");
  }
  return ::rename(part.c_str(), path.c_str()) == 0 ? Status() : Status(failed(path));
}

Status replace_link(const std::string& path, const std::string& target) {
  FOVEA_RETURN_IF_ERROR(make_folder(fs::path(path).parent_path()));
  const std::string part = path + ".new" + std::to_string(::getpid());
  ::unlink(part.c_str());
  if (::symlink(target.c_str(), part.c_str()) != 0 || ::rename(part.c_str(), path.c_str()) != 0)
    return failed(path);
  return {};
}

/// The lock that huggingface_hub takes for the same file.
class BlobLock {
 public:
  static Result<BlobLock> take(const std::string& file) {
    FOVEA_RETURN_IF_ERROR(make_folder(fs::path(file).parent_path()));
    const int fd = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) return failed(file);
    BlobLock lock(fd);
    if (::flock(fd, LOCK_EX | LOCK_NB) != 0)
      return io_error(file + ": locked; another program downloads this model: wait for it to end");
    return lock;
  }
  BlobLock(BlobLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  BlobLock& operator=(BlobLock&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~BlobLock() {
    if (fd_ >= 0) ::close(fd_);
  }

 private:
  explicit BlobLock(int fd) : fd_(fd) {}
  int fd_;
};

class Puller {
 public:
  explicit Puller(const PullRequest& request)
      : request_(request), repository_(repository_folder(request.cache, request.id)) {}

  Result<std::string> run() {
    FOVEA_RETURN_IF_ERROR(list());
    FOVEA_RETURN_IF_ERROR(make_folder(repository_ + "/blobs"));
    FOVEA_RETURN_IF_ERROR(check_room());
    FOVEA_RETURN_IF_ERROR(download());
    if (request_.revision != listing_.commit)
      FOVEA_RETURN_IF_ERROR(replace_file(repository_ + "/refs/" + request_.revision, listing_.commit));
    return repository_ + "/snapshots/" + listing_.commit;
  }

 private:
  struct Transfer {
    const RemoteFile* file;
    BlobLock lock;
    std::optional<Curl> curl;
    std::future<Result<std::string>> digest;
    int attempts = 0;
  };

  std::string blob(const RemoteFile& file) const { return repository_ + "/blobs/" + file.digest; }
  std::string part(const RemoteFile& file) const { return blob(file) + ".incomplete"; }
  bool is_there(const RemoteFile& file) const { return size_of(blob(file)) == file.size; }

  Status list() {
    const std::string url = request_.endpoint + "/api/models/" + request_.id + "/revision/" +
                            url_path(request_.revision) + "?blobs=true";
    FOVEA_TRY(answer, fetch(url, request_.token));
    const std::string model = "model " + request_.id + " at " + request_.endpoint;
    if (answer.status == 401 || answer.status == 403)
      return not_found(model + ": " +
                       (request_.token.empty()
                            ? "no such model, or it needs a token: set HF_TOKEN to one that may read it"
                            : "no such model, or the token of HF_TOKEN may not read it"));
    if (answer.status == 404)
      return not_found(model + ": no such model, or it has no revision " + request_.revision);
    if (answer.status != 200)
      return io_error(model + ": the hub answers with status " + std::to_string(answer.status) + " (" +
                      printable(answer.body, 100) + "); try again later");
    FOVEA_TRY(listing, parse_listing(answer.body));
    listing_ = std::move(listing);
    if (!request_.all)
      std::erase_if(listing_.files, [](const RemoteFile& file) { return !is_wanted(file.path); });
    const bool has_config =
        std::ranges::find(listing_.files, "config.json", &RemoteFile::path) != listing_.files.end();
    if (!has_config && !request_.all)
      return invalid(model +
                     " has no config.json: it is not in Hugging Face format; --all downloads it as it is");
    return {};
  }

  Status check_room() {
    int64_t missing = 0;
    for (const RemoteFile& file : listing_.files) {
      progress_.total_bytes += file.size;
      if (!is_there(file)) missing += file.size - std::max<int64_t>(0, size_of(part(file)));
    }
    progress_.total_files = static_cast<int>(listing_.files.size());
    std::error_code error;
    const fs::space_info space = fs::space(repository_, error);
    if (!error && missing > 0 && space.available < static_cast<uintmax_t>(missing))
      return io_error(repository_ + ": the disk has " + std::to_string(space.available >> 20) +
                      " MiB left, and the download needs " + std::to_string(missing >> 20) +
                      "; make room, or set HF_HOME to a folder on another disk");
    return {};
  }

  Status download() {
    std::set<std::string> begun;  // digests: files with the same content are one blob
    size_t next = 0;
    int64_t start_bytes = -1;
    std::vector<const RemoteFile*> waiting;
    while (next < listing_.files.size() || !transfers_.empty() || !waiting.empty()) {
      while (next < listing_.files.size() && transfers_.size() < static_cast<size_t>(request_.jobs)) {
        const RemoteFile& file = listing_.files[next++];
        if (is_there(file)) {
          FOVEA_RETURN_IF_ERROR(finish(file));
        } else if (!begun.insert(file.digest).second) {
          waiting.push_back(&file);
        } else {
          FOVEA_RETURN_IF_ERROR(begin(file));
        }
      }
      for (size_t i = 0; i < transfers_.size();) {
        FOVEA_TRY(done, advance(transfers_[i]));
        if (done)
          transfers_.erase(transfers_.begin() + static_cast<ptrdiff_t>(i));
        else
          ++i;
      }
      if (transfers_.empty() && next == listing_.files.size()) {
        for (const RemoteFile* file : waiting)
          FOVEA_RETURN_IF_ERROR(finish(*file));
        waiting.clear();
      }
      progress_.bytes = finished_bytes_;
      for (const Transfer& transfer : transfers_)
        progress_.bytes += std::clamp<int64_t>(size_of(part(*transfer.file)), 0, transfer.file->size);
      if (start_bytes < 0) start_bytes = progress_.bytes;
      progress_.new_bytes = std::max<int64_t>(0, progress_.bytes - start_bytes);
      report("");
      if (!transfers_.empty()) std::this_thread::sleep_for(kPeriod);
    }
    return {};
  }

  Status begin(const RemoteFile& file) {
    const std::string name = fs::path(repository_).filename();
    FOVEA_TRY(lock, BlobLock::take(request_.cache + "/.locks/" + name + "/" + file.digest + ".lock"));
    transfers_.push_back({&file, std::move(lock), std::nullopt, {}, 0});
    return continue_file(transfers_.back());
  }

  Status continue_file(Transfer& transfer) {
    const RemoteFile& file = *transfer.file;
    const std::string target = part(file);
    if (size_of(target) > file.size) ::unlink(target.c_str());
    if (size_of(target) == file.size || file.size == 0) {
      if (file.size == 0) std::ofstream(target).flush();
      return check(transfer);
    }
    ++transfer.attempts;
    const std::string url =
        request_.endpoint + "/" + request_.id + "/resolve/" + listing_.commit + "/" + url_path(file.path);
    FOVEA_TRY(curl, Curl::start({url, request_.token, target}));
    transfer.curl = std::move(curl);
    return {};
  }

  Status check(Transfer& transfer) {
    transfer.curl.reset();
    transfer.digest = std::async(std::launch::async, file_digest, part(*transfer.file), transfer.file->git);
    return {};
  }

  /// True when the file is whole.
  Result<bool> advance(Transfer& transfer) {
    const RemoteFile& file = *transfer.file;
    if (transfer.digest.valid()) {
      if (transfer.digest.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return false;
      FOVEA_TRY(digest, transfer.digest.get());
      if (digest != file.digest) {
        ::unlink(part(file).c_str());
        return io_error(file.path + ": the download's digest is " + digest + ", and the hub says " +
                        file.digest + "; it was deleted: run the command again");
      }
      if (::rename(part(file).c_str(), blob(file).c_str()) != 0) return failed(blob(file));
      FOVEA_RETURN_IF_ERROR(finish(file));
      return true;
    }
    const auto status = transfer.curl->poll();
    if (!status) return false;
    const int64_t size = size_of(part(file));
    const std::string said = transfer.curl->message();
    if (*status == 0 && size == file.size) {
      FOVEA_RETURN_IF_ERROR(check(transfer));
      return false;
    }
    if (*status == 0 && size > file.size)
      return io_error(file.path + " has " + std::to_string(size) + " bytes, and the hub says " +
                      std::to_string(file.size) + "; run the command again");
    if (*status == kNoRanges) ::unlink(part(file).c_str());
    // 22: an HTTP status, which another attempt would not change, unless it is the server's fault.
    const bool refused = *status == 22 && said.find(" 5") == std::string::npos &&
                         said.find(" 429") == std::string::npos && said.find(" 408") == std::string::npos;
    if (refused || transfer.attempts >= kAttempts)
      return io_error(file.path + ": " + (said.empty() ? "the connection was lost" : said) +
                      "; run the command again, which continues");
    if (transfer.attempts > 1)
      std::this_thread::sleep_for(std::chrono::milliseconds(50 << transfer.attempts));
    FOVEA_RETURN_IF_ERROR(continue_file(transfer));
    return false;
  }

  /// The blob is there: links to it.
  Status finish(const RemoteFile& file) {
    FOVEA_RETURN_IF_ERROR(
        replace_link(repository_ + "/snapshots/" + listing_.commit + "/" + file.path, link_target(file)));
    finished_bytes_ += file.size;
    ++progress_.files;
    report(file.path);
    return {};
  }

  void report(const std::string& finished) {
    progress_.finished = finished;
    if (request_.progress) request_.progress(progress_);
  }

  const PullRequest& request_;
  const std::string repository_;
  Listing listing_;
  PullProgress progress_;
  int64_t finished_bytes_ = 0;
  std::vector<Transfer> transfers_;
};

}  // namespace

Result<std::string> pull(const PullRequest& request) {
  if (!is_hub_id(request.id))
    return invalid("\"" + printable(request.id, 200) + "\" is no model of the hub; give ORG/NAME");
  if (!is_revision(request.revision))
    return invalid("--revision is \"" + printable(request.revision, 100) +
                   "\"; it must be a branch, a tag or a commit");
  if (request.cache.empty())
    return not_found(
        "none of HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME and HOME is set, so there is no cache; set one");
  return Puller(request).run();
}

}  // namespace fovea::hub
