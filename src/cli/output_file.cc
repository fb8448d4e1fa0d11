#include "cli/output_file.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <cstring>
#include <filesystem>

namespace fovea::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kEndingSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};
char g_unfinished[PATH_MAX];  // what those signals remove

void remove_unfinished(int signal) {
  ::unlink(g_unfinished);
  ::signal(signal, SIG_DFL);
  ::raise(signal);  // ends the program as if there were no handler
}

/// Replaces `from` by `to` where it is what a signal does; one that is ignored stays ignored.
void change_handlers(void (*from)(int), void (*to)(int)) {
  for (const int signal : kEndingSignals) {
    struct sigaction action = {};
    if (sigaction(signal, nullptr, &action) != 0 || action.sa_handler != from) continue;
    action.sa_handler = to;
    sigaction(signal, &action, nullptr);
  }
}

/// Whether both are one regular file, by whatever names.
bool is_input(const std::string& path, const std::string& input) {
  struct stat out = {}, in = {};
  if (input.empty() || ::stat(path.c_str(), &out) != 0 || !S_ISREG(out.st_mode)) return false;
  if ((input == "-" ? ::fstat(STDIN_FILENO, &in) : ::stat(input.c_str(), &in)) != 0) return false;
  return out.st_dev == in.st_dev && out.st_ino == in.st_ino;
}

}  // namespace

Result<OutputFile> OutputFile::open(const std::string& path, const std::string& input) {
  OutputFile out;
  if (path.empty() || path == "-") return out;
  if (is_input(path, input))
    return invalid("--output " + path + " is the file that is read, " +
                   (input == "-" ? "standard input" : input) + ", and would be lost; give another file");
  out.name_ = out.target_ = path;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::is_directory(status)) return io_error("cannot write " + path + ": it is a folder; give a file");
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    out.file_.reset(std::fopen(path.c_str(), "w"));
    if (!out.file_) return io_error("cannot write " + path + ": " + std::strerror(errno));
    return out;
  }
  if (fs::is_symlink(fs::symlink_status(path, error)))  // the file is replaced, not the link to it
    if (const fs::path target = fs::weakly_canonical(path, error); !error) out.target_ = target.string();
  FOVEA_RETURN_IF_ERROR(out.open_temporary());
  return out;
}

Status OutputFile::open_temporary() {
  temporary_ = target_ + ".partial." + std::to_string(::getpid());
  if (temporary_.size() < sizeof g_unfinished) {  // longer ones can't be opened
    std::memcpy(g_unfinished, temporary_.c_str(), temporary_.size() + 1);
    change_handlers(SIG_DFL, remove_unfinished);
    ::unlink(g_unfinished);  // left by a killed process that had this number
    file_.reset(std::fopen(temporary_.c_str(), "wx"));
  }
  if (file_) return {};
  return io_error("cannot write " + temporary_ + ": its folder must exist and be writable");
}

OutputFile::~OutputFile() {
  if (temporary_.empty()) return;
  ::unlink(temporary_.c_str());
  change_handlers(remove_unfinished, SIG_DFL);
}

void OutputFile::line(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stream());
  std::fputc('\n', stream());
  if (temporary_.empty()) std::fflush(stream());  // who reads may wait for the line
}

Status OutputFile::commit() {
  if (std::fflush(stream()) != 0 || std::ferror(stream()))
    return io_error("cannot write " + name_ + ": is the disk full?");
  if (temporary_.empty()) return {};
  file_.reset();
  std::error_code error;
  fs::rename(temporary_, target_, error);
  if (error) return io_error("cannot write " + name_ + ": " + error.message());
  temporary_.clear();
  change_handlers(remove_unfinished, SIG_DFL);
  return {};
}

}  // namespace fovea::cli
