#include "hub/curl.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>

#include "fovea/result.h"

namespace fovea::hub {
namespace {

constexpr size_t kMaxDocument = size_t{64} << 20;
constexpr size_t kMaxMessage = 300;

struct Pipe {
  int read = -1, write = -1;
};

Result<Pipe> make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return io_error(std::string("pipe: ") + std::strerror(errno));
  return Pipe{ends[0], ends[1]};
}

/// A value of curl's configuration file.
std::string config_text(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

/// Starts curl with a configuration on its standard input, which keeps the token out of its arguments. `out`:
/// its standard output, -1 = none.
Result<pid_t> spawn(const std::string& config, int out, int errors) {
  FOVEA_TRY(input, make_pipe());
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, input.read, STDIN_FILENO);
  if (out >= 0)
    posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
  else
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, errors, STDERR_FILENO);
  // -q first: the user's own configuration is not read.
  const char* arguments[] = {"curl", "-q", "--config", "-", nullptr};
  pid_t pid = -1;
  const int failed =
      ::posix_spawnp(&pid, "curl", &actions, nullptr, const_cast<char* const*>(arguments), environ);
  posix_spawn_file_actions_destroy(&actions);
  ::close(input.read);
  if (failed == 0) {  // shorter than a pipe's buffer
    const ssize_t written = ::write(input.write, config.data(), config.size());
    (void)written;
  }
  ::close(input.write);
  if (failed == ENOENT) return not_found("curl is not installed, and fovea pull runs it: install curl");
  if (failed != 0) return io_error(std::string("curl cannot be started: ") + std::strerror(failed));
  return pid;
}

std::string config_of(const std::string& url, const std::string& token) {
  std::string out = "url = " + config_text(url) +
                    "\nlocation\nmax-redirs = 10\nproto = \"=http,https\"\nsilent\nshow-error\n"
                    "connect-timeout = 30\nspeed-limit = 1\nspeed-time = 60\nuser-agent = \"fovea\"\n";
  if (!token.empty()) out += "header = " + config_text("Authorization: Bearer " + token) + "\n";
  return out;
}

int status_of(int wait_status) {
  return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
}

}  // namespace

Result<Curl> Curl::start(const Download& download) {
  FOVEA_TRY(errors, make_pipe());
  const std::string config = config_of(download.url, download.token) +
                             "fail\ncontinue-at = -\noutput = " + config_text(download.file) + "\n";
  auto pid = spawn(config, -1, errors.write);
  ::close(errors.write);
  if (!pid) {
    ::close(errors.read);
    return pid.error();
  }
  ::fcntl(errors.read, F_SETFL, O_NONBLOCK);
  return Curl(*pid, errors.read);
}

Curl::Curl(Curl&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      errors_(std::exchange(other.errors_, -1)),
      message_(std::move(other.message_)) {}

Curl& Curl::operator=(Curl&& other) noexcept {
  if (this == &other) return *this;
  end();
  pid_ = std::exchange(other.pid_, -1);
  errors_ = std::exchange(other.errors_, -1);
  message_ = std::move(other.message_);
  return *this;
}

Curl::~Curl() {
  end();
}

void Curl::end() {
  if (pid_ > 0) {
    ::kill(pid_, SIGTERM);
    ::waitpid(pid_, nullptr, 0);
  }
  if (errors_ >= 0) ::close(errors_);
  pid_ = errors_ = -1;
}

void Curl::read_errors() {
  char buffer[512];
  for (ssize_t got = 0; (got = ::read(errors_, buffer, sizeof buffer)) > 0;)
    for (const char c : std::string_view(buffer, static_cast<size_t>(got)))
      if (message_.size() < kMaxMessage) message_ += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
}

std::optional<int> Curl::poll() {
  read_errors();
  int status = 0;
  if (::waitpid(pid_, &status, WNOHANG) != pid_) return std::nullopt;
  pid_ = -1;
  read_errors();
  while (message_.ends_with(' '))
    message_.pop_back();
  return status_of(status);
}

Result<Fetched> fetch(const std::string& url, const std::string& token) {
  FOVEA_TRY(out, make_pipe());
  auto made = make_pipe();
  if (!made) return made.error();
  const Pipe errors = *made;
  auto pid =
      spawn(config_of(url, token) + "retry = 3\nwrite-out = \"\\n%{http_code}\"\n", out.write, errors.write);
  ::close(out.write);
  ::close(errors.write);
  Fetched fetched;
  std::string message;
  pollfd ends[2] = {{out.read, POLLIN, 0}, {errors.read, POLLIN, 0}};
  for (int open = pid ? 2 : 0; open > 0;) {
    if (::poll(ends, 2, -1) < 0 && errno != EINTR) break;
    for (size_t i = 0; i < 2; ++i) {
      if (ends[i].fd < 0 || !(ends[i].revents & (POLLIN | POLLHUP | POLLERR))) continue;
      char buffer[16384];
      const ssize_t got = ::read(ends[i].fd, buffer, sizeof buffer);
      std::string& text = i == 0 ? fetched.body : message;
      if (got > 0 && text.size() < (i == 0 ? kMaxDocument : kMaxMessage))
        text.append(buffer, static_cast<size_t>(got));
      if (got > 0 || (got < 0 && errno == EINTR)) continue;
      ends[i].fd = -1;
      --open;
    }
  }
  ::close(out.read);
  ::close(errors.read);
  if (!pid) return pid.error();
  int status = 0;
  ::waitpid(*pid, &status, 0);
  std::ranges::replace_if(message, [](char c) { return static_cast<unsigned char>(c) < 0x20; }, ' ');
  if (status_of(status) != 0) return io_error(url + ": " + (message.empty() ? "curl failed" : message));
  const size_t line = fetched.body.rfind('\n');
  const std::string code = line == std::string::npos ? "" : fetched.body.substr(line + 1);
  std::from_chars(code.data(), code.data() + code.size(), fetched.status);
  fetched.body.resize(line == std::string::npos ? 0 : line);
  return fetched;
}

}  // namespace fovea::hub
