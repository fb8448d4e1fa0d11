#include "cli/output_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>

#include "base/digest.h"
#include "cli/end_signals.h"
#include "fovea/result.h"

namespace fovea::cli {
namespace {

namespace fs = std::filesystem;

/// Whether both paths refer to the same regular file.
bool is_input(const std::string& path, const std::string& input) {
  struct stat out = {}, in = {};
  if (input.empty() || ::stat(path.c_str(), &out) != 0 || !S_ISREG(out.st_mode)) return false;
  if ((input == "-" ? ::fstat(STDIN_FILENO, &in) : ::stat(input.c_str(), &in)) != 0) return false;
  return out.st_dev == in.st_dev && out.st_ino == in.st_ino;
}

Error cannot_write(const std::string& path, const std::string& why) {
  return io_error("cannot write " + path + ": " + why);
}

uint64_t digest_of(const std::string& text) {
  return Digest().add(text).value();
}

std::string counted(int64_t rows) {
  return std::to_string(rows) + (rows == 1 ? " row" : " rows");
}

}  // namespace

/// Standard output, a device or a pipe.
struct OutputFile::Stream {
  struct Close {
    void operator()(std::FILE* opened) const { std::fclose(opened); }
  };

  std::string name = "standard output";
  std::unique_ptr<std::FILE, Close> file;  ///< null = standard output

  Status line(const std::string& text) {
    std::FILE* out = file ? file.get() : stdout;
    std::fwrite(text.data(), 1, text.size(), out);
    std::fputc('\n', out);
    return flush();  // the reader may be waiting for the line
  }

  Status flush() {
    std::FILE* out = file ? file.get() : stdout;
    if (std::fflush(out) != 0 || std::ferror(out)) return cannot_write(name, "is the disk full?");
    return {};
  }
};

/// A file that is not yet complete.
struct OutputFile::Rows {
  std::string target, partial, journal_path;
  bool resume = false;
  RowJournal journal;
  int fd = -1;

  std::mutex mutex;           // guards the members below: a signal may end the run at any time
  int64_t kept = 0;           // rows from an earlier run
  int64_t rows = 0, end = 0;  // rows and bytes in the file
  int64_t expected = 0;
  bool begun = false;  // begin() was called
  bool done = false;   // committed, or leave() has reported
  std::unique_ptr<EndSignals> signals;

  ~Rows();
  Status open_partial();
  Status read_kept();
  Status cut(size_t rows, int64_t bytes);
  /// Prints what is left for --resume; without rows removes the files.
  void leave(const std::string& why);
};

Status OutputFile::Rows::open_partial() {
  partial = target + ".partial";
  journal_path = partial + ".journal";
  for (;;) {
    fd = ::open(partial.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0)
      return cannot_write(partial, errno == ENOENT ? "its folder must exist" : std::strerror(errno));
    if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
      done = true;  // it belongs to another run
      return cannot_write(partial, errno == EWOULDBLOCK
                                       ? "another run writes it; wait for its end, or give another --output"
                                       : std::strerror(errno));
    }
    struct stat mine = {}, named = {};  // another run may have renamed it in the meantime
    if (::fstat(fd, &mine) == 0 && ::stat(partial.c_str(), &named) == 0 && mine.st_ino == named.st_ino) break;
    ::close(fd);
  }
  return {};
}

/// Keeps an earlier run's rows that match the journal and truncates the rest, which was written only in part.
Status OutputFile::Rows::read_kept() {
  struct stat status = {};
  if (::fstat(fd, &status) != 0) return cannot_write(partial, std::strerror(errno));
  if (status.st_size > 0 && !resume) {
    done = true;
    return invalid(partial + " has rows of an interrupted run; continue with --resume, or delete it");
  }
  if (status.st_size == 0) return {};
  FOVEA_TRY(opened, RowJournal::open(journal_path));
  journal = std::move(opened);
  if (journal.settings().empty()) {
    done = true;
    return invalid("--resume: " + partial + " has rows, but " + journal_path +
                   " does not record how they were computed; delete " + partial +
                   " to compute all rows again");
  }
  std::ifstream file(partial, std::ios::binary);
  std::string line;
  for (const RowEntry& entry : journal.rows()) {
    if (!std::getline(file, line) || file.eof() || digest_of(line) != entry.line) break;
    ++kept;
    end += static_cast<int64_t>(line.size()) + 1;
  }
  rows = kept;
  if (::ftruncate(fd, static_cast<off_t>(end)) != 0) return cannot_write(partial, std::strerror(errno));
  return journal.cut(static_cast<size_t>(kept));
}

void OutputFile::Rows::leave(const std::string& why) {
  if (std::exchange(done, true)) return;
  if (why.empty() && rows > 0 && rows == kept) return;                 // unchanged
  const char* clear = ::isatty(STDERR_FILENO) == 1 ? "\r\033[K" : "";  // erases a progress bar
  if (rows == 0 || (kept == 0 && !begun)) {
    ::unlink(partial.c_str());
    ::unlink(journal_path.c_str());
    if (!why.empty())
      std::fprintf(stderr, "%s%sno row was finished; no files were kept\n", clear, why.c_str());
    return;
  }
  const std::string of = expected > 0 ? std::to_string(rows) + " of " + counted(expected) : counted(rows);
  std::fprintf(stderr, "%s%s%s %s in %s; the same command with --resume continues\n", clear, why.c_str(),
               of.c_str(), rows == 1 && expected <= 0 ? "is" : "are", partial.c_str());
}

OutputFile::Rows::~Rows() {
  {
    const std::lock_guard lock(mutex);
    if (fd >= 0) leave("");
  }
  signals.reset();
  if (fd >= 0) ::close(fd);
}

OutputFile::OutputFile() = default;
OutputFile::OutputFile(OutputFile&&) noexcept = default;
OutputFile::~OutputFile() = default;

Result<OutputFile> OutputFile::open(const OutputFlags& flags, const std::string& input) {
  const std::string& path = flags.output;
  OutputFile out;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  const bool is_stream = path.empty() || path == "-" || (fs::exists(status) && !fs::is_regular_file(status));
  if (fs::is_directory(status)) return cannot_write(path, "it is a folder; give a file");
  if (is_stream && flags.resume)
    return invalid("--resume continues the file that --output names; " +
                   (path.empty() ? "give --output FILE" : path + " is not a file whose rows could be kept"));
  if (is_stream) {
    out.stream_ = std::make_unique<Stream>();
    if (path.empty() || path == "-") return out;
    out.stream_->name = path;
    out.stream_->file.reset(std::fopen(path.c_str(), "w"));
    if (!out.stream_->file) return cannot_write(path, std::strerror(errno));
    return out;
  }
  if (is_input(path, input))
    return invalid("--output " + path + " is the file that is read, " +
                   (input == "-" ? "standard input" : input) + ", and would be lost; give another file");
  auto rows = std::make_unique<Rows>();
  rows->target = path;
  rows->resume = flags.resume;
  if (fs::is_symlink(fs::symlink_status(path, error)))  // replace the file, not the link to it
    if (const fs::path target = fs::weakly_canonical(path, error); !error) rows->target = target.string();
  FOVEA_RETURN_IF_ERROR(rows->open_partial());
  FOVEA_RETURN_IF_ERROR(rows->read_kept());
  rows->signals = std::make_unique<EndSignals>([rows = rows.get()](const char* name) {
    rows->mutex.lock();  // never unlocked: no row may be partly written when the program ends
    rows->leave("fovea: ended by " + std::string(name) + ": ");
  });
  out.rows_ = std::move(rows);
  return out;
}

Status OutputFile::begin(const RunSettings& settings) {
  if (!rows_) return {};
  const std::lock_guard lock(rows_->mutex);
  if (rows_->resume)
    std::fprintf(stderr, "resume: %s in %s\n", counted(rows_->kept).c_str(), rows_->partial.c_str());
  rows_->begun = true;
  if (rows_->kept == 0) {
    FOVEA_TRY(journal, RowJournal::open(rows_->journal_path));
    rows_->journal = std::move(journal);
    return rows_->journal.begin(settings);
  }
  const RunSettings& before = rows_->journal.settings();
  for (size_t i = 0; i < std::max(before.size(), settings.size()); ++i) {
    if (i < std::min(before.size(), settings.size()) && before[i] == settings[i]) continue;
    const auto shown = [i](const RunSettings& list) {
      return i < list.size() ? list[i].first + " " + list[i].second : "no more settings";
    };
    return invalid("--resume: the rows in " + rows_->partial + " were computed with " + shown(before) +
                   ", and this run has " + shown(settings) + "; restore the earlier settings, or delete " +
                   rows_->partial + " to compute all rows again");
  }
  return {};
}

int64_t OutputFile::kept() const {
  return rows_ ? rows_->kept : 0;
}

Status OutputFile::check_kept(int64_t index, RowKey key, const std::string& name) const {
  const RowKey& before = rows_->journal.rows()[static_cast<size_t>(index)].key;
  if (key == before) return {};
  const std::string what = key.row == before.row ? "differs from the earlier run: request flags, the chat "
                                                   "template or the model's defaults have changed"
                                                 : "is not the row that was answered";
  return invalid("--resume: " + (name.empty() ? "row " + std::to_string(index) : name) + " " + what +
                 "; restore the earlier input and flags, or delete " + rows_->partial +
                 " to compute all rows again");
}

Error OutputFile::more_kept(int64_t rows) const {
  return invalid("--resume: the input has " + counted(rows) + ", and " + rows_->partial + " has answers to " +
                 std::to_string(rows_->kept) + "; give the same input, or delete " + rows_->partial +
                 " to compute all rows again");
}

void OutputFile::expect(int64_t rows) {
  if (!rows_) return;
  const std::lock_guard lock(rows_->mutex);
  rows_->expected = rows;
}

Status OutputFile::line(const std::string& text, RowKey key) {
  if (stream_) return stream_->line(text);
  const std::lock_guard lock(rows_->mutex);
  const int64_t before = rows_->end;
  FOVEA_RETURN_IF_ERROR(append_whole(rows_->fd, text + '\n', rows_->end, rows_->partial));
  if (!rows_->begun) {
    ++rows_->rows;
    return {};
  }
  if (Status status = rows_->journal.add({key, digest_of(text)}); !status) {
    rows_->end = before;  // a row without a journal entry would be computed again
    (void)!::ftruncate(rows_->fd, static_cast<off_t>(before));
    return status;
  }
  ++rows_->rows;
  return {};
}

Status OutputFile::commit() {
  if (stream_) return stream_->flush();
  const std::lock_guard lock(rows_->mutex);
  if (::rename(rows_->partial.c_str(), rows_->target.c_str()) != 0)
    return cannot_write(rows_->target, std::strerror(errno));
  ::unlink(rows_->journal_path.c_str());
  rows_->done = true;
  return {};
}

}  // namespace fovea::cli
