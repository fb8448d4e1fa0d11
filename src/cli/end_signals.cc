#include "cli/end_signals.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/check.h"

namespace fovea::cli {
namespace {

constexpr struct {
  int number;
  const char* name;
} kSignals[] = {{SIGINT, "SIGINT"}, {SIGTERM, "SIGTERM"}, {SIGHUP, "SIGHUP"}};

bool is_ignored(int number) {
  struct sigaction action = {};
  return sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

EndSignals::EndSignals(std::function<void(const char*)> at_end) : at_end_(std::move(at_end)) {
  sigemptyset(&waited_);
  for (const auto& signal : kSignals)
    if (!is_ignored(signal.number)) sigaddset(&waited_, signal.number);
  pthread_sigmask(SIG_BLOCK, &waited_, &before_);
  signals_ = ::signalfd(-1, &waited_, SFD_CLOEXEC);
  stop_ = ::eventfd(0, EFD_CLOEXEC);
  FOVEA_CHECK(signals_ >= 0 && stop_ >= 0);
  thread_ = std::thread([this] { wait(); });
}

EndSignals::~EndSignals() {
  const uint64_t one = 1;
  (void)!::write(stop_, &one, sizeof one);
  thread_.join();
  ::close(stop_);
  ::close(signals_);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);  // a pending signal ends the program here
}

void EndSignals::wait() const {
  pollfd fds[] = {{signals_, POLLIN, 0}, {stop_, POLLIN, 0}};
  while (::poll(fds, 2, -1) < 0) {
  }
  signalfd_siginfo got{};
  if (fds[1].revents != 0 || ::read(signals_, &got, sizeof got) != sizeof got) return;
  const int number = static_cast<int>(got.ssi_signo);
  for (const auto& signal : kSignals)
    if (signal.number == number) at_end_(signal.name);
  ::signal(number, SIG_DFL);
  pthread_sigmask(SIG_UNBLOCK, &waited_, nullptr);
  ::raise(number);
}

}  // namespace fovea::cli
