#include "load/client.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <list>
#include <utility>

#include "base/check.h"
#include "fovea/result.h"

namespace fovea::load {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kReadBytes = 64 << 10;
constexpr size_t kMaxFetched = 64 << 20;
constexpr double kLongestWait = 0.2;       // maximum seconds between calls of stop()
constexpr double kFullBacklogWait = 1e-3;  // before a retry on a full backlog of a UNIX socket

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

struct Address {
  sockaddr_storage storage = {};
  socklen_t size = 0;
};

std::string errno_text(int error) {
  return std::strerror(error);
}

/// Raises the limit of open descriptors to the maximum for this process.
void raise_descriptor_limit() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

Result<std::vector<Address>> resolve(const Target& target) {
  std::vector<Address> addresses;
  if (!target.unix_path.empty()) {
    Address address;
    auto* name = reinterpret_cast<sockaddr_un*>(&address.storage);
    FOVEA_CHECK(target.unix_path.size() < sizeof name->sun_path);
    name->sun_family = AF_UNIX;
    std::memcpy(name->sun_path, target.unix_path.c_str(), target.unix_path.size() + 1);
    address.size = sizeof *name;
    addresses.push_back(address);
    return addresses;
  }
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(target.host.c_str(), std::to_string(target.port).c_str(), &hints, &found);
  if (error != 0)
    return io_error(target.name() + ": no address for " + target.host + " (" + ::gai_strerror(error) + ")");
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, ::freeaddrinfo);
  for (const addrinfo* info = found; info != nullptr; info = info->ai_next) {
    if (info->ai_addrlen > sizeof(sockaddr_storage)) continue;
    Address address;
    std::memcpy(&address.storage, info->ai_addr, info->ai_addrlen);
    address.size = info->ai_addrlen;
    addresses.push_back(address);
  }
  if (addresses.empty()) return io_error(target.name() + ": no address for " + target.host);
  return addresses;
}

}  // namespace

struct Client::Impl {
  Target target;
  std::vector<Address> addresses;
  size_t address = 0;  // index of the address that last worked
};

namespace {

/// One request on its connection.
struct Connection final : ResponseParser::Sink {
  Status on_head(const ResponseHead& head) override { return receiver->on_head(head, now); }
  Status on_body(std::string_view bytes) override { return receiver->on_body(bytes, now); }

  Descriptor socket;
  Receiver* receiver = nullptr;
  ResponseParser parser;
  std::string out;
  size_t sent = 0;
  size_t address = 0;  // index of the last one tried
  bool connecting = true;
  double now = 0, last_byte = 0;
  std::list<Connection>::iterator self;
};

/// One Client::run().
class Run {
 public:
  Run(const std::vector<Address>& addresses, size_t& address, const Plan& plan)
      : addresses_(addresses), address_(address), plan_(plan), read_buffer_(kReadBytes, '\0') {}

  Status go() {
    epoll_ = Descriptor(::epoll_create1(EPOLL_CLOEXEC));
    timer_ = Descriptor(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
    if (epoll_.get() < 0 || timer_.get() < 0)
      return io_error("cannot wait for sockets: " + errno_text(errno));
    epoll_event timer_event = {};
    timer_event.events = EPOLLIN;
    timer_event.data.ptr = nullptr;
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, timer_.get(), &timer_event) != 0)
      return io_error("cannot wait for a timer: " + errno_text(errno));
    std::array<epoll_event, 256> events;
    double checked = 0;
    for (;;) {
      start_due();
      if (over_ == plan_.starts.size()) {
        plan_.progress(over_);
        return {};
      }
      arm_timer();
      const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), -1);
      if (count < 0 && errno != EINTR) return io_error("cannot wait for sockets: " + errno_text(errno));
      for (int i = 0; i < count; ++i)
        if (events[static_cast<size_t>(i)].data.ptr == nullptr)
          drain_timer();
        else
          serve(*static_cast<Connection*>(events[static_cast<size_t>(i)].data.ptr));
      if (plan_.stop()) return {};
      if (const double time = now(); time - checked >= kLongestWait) {
        checked = time;
        drop_silent(time);
        plan_.progress(over_);
      }
    }
  }

 private:
  double now() const { return std::chrono::duration<double>(Clock::now() - began_).count(); }

  bool may_start() const {
    return next_ < plan_.starts.size() &&
           (plan_.max_concurrency == 0 || connections_.size() < static_cast<size_t>(plan_.max_concurrency));
  }

  void start_due() {
    while (may_start()) {
      const double time = now();
      if (time < plan_.starts[next_] || time < backlog_full_until_) return;
      if (!start(next_)) return;
      ++next_;
    }
  }

  /// Sets the timer to the earlier of the next start and the next call of stop(). Waking early is harmless.
  void arm_timer() {
    const double time = now();
    double wait = kLongestWait;
    if (may_start()) wait = std::min(wait, std::max(plan_.starts[next_], backlog_full_until_) - time);
    if (armed_until_ > time && armed_until_ <= time + wait) return;
    wait = std::max(wait, 1e-6);
    armed_until_ = time + wait;
    itimerspec spec = {};
    spec.it_value.tv_nsec = static_cast<long>(wait * 1e9);  // below a second: kLongestWait
    (void)::timerfd_settime(timer_.get(), 0, &spec, nullptr);
  }

  void drain_timer() {
    uint64_t times = 0;
    (void)!::read(timer_.get(), &times, sizeof times);
  }

  /// False if it must be retried later.
  bool start(size_t index) {
    connections_.emplace_front();
    Connection& connection = connections_.front();
    connection.self = connections_.begin();
    connection.out = plan_.bytes(index);
    connection.receiver = &plan_.receiver(index);
    connection.address = address_;
    const double time = now();
    connection.now = connection.last_byte = time;
    const int error = open(connection);
    if (error == EAGAIN) {
      connections_.pop_front();
      backlog_full_until_ = time + kFullBacklogWait;
      return false;
    }
    connection.receiver->on_start(time);
    if (error != 0) connect_failed(connection, error);
    return true;
  }

  /// Starts to connect to connection.address. Returns an errno, or 0 if the connection is in progress.
  int open(Connection& connection) {
    const Address& to = addresses_[connection.address];
    connection.socket =
        Descriptor(::socket(to.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (connection.socket.get() < 0) return errno;
    const int one = 1;
    if (to.storage.ss_family != AF_UNIX)
      (void)::setsockopt(connection.socket.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (::connect(connection.socket.get(), reinterpret_cast<const sockaddr*>(&to.storage), to.size) != 0 &&
        errno != EINPROGRESS)
      return errno;
    connection.connecting = true;
    epoll_event event = {};
    event.events = EPOLLIN | EPOLLOUT;
    event.data.ptr = &connection;
    return ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, connection.socket.get(), &event) == 0 ? 0 : errno;
  }

  /// Tries the other addresses of the name before the request fails.
  void connect_failed(Connection& connection, int error) {
    const bool ours = error == EMFILE || error == ENFILE || error == EADDRNOTAVAIL || error == ENOBUFS;
    while (!ours && (connection.address + 1) % addresses_.size() != address_) {
      connection.address = (connection.address + 1) % addresses_.size();
      error = open(connection);
      if (error == 0) return;
    }
    fail(connection, "cannot connect: " + errno_text(error) +
                         (ours ? " (of this machine: lower --max-concurrency, or raise ulimit -n)" : ""));
  }

  void serve(Connection& connection) {
    connection.now = now();
    if (connection.connecting) {
      int error = 0;
      socklen_t size = sizeof error;
      if (::getsockopt(connection.socket.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
      if (error != 0) return connect_failed(connection, error);
      connection.connecting = false;
      address_ = connection.address;
    }
    if (connection.sent < connection.out.size() && !send(connection)) return;
    receive(connection);
  }

  /// False if the connection is closed. A server that responds before it has read the whole request (a 413)
  /// closes its side; its response is read first.
  bool send(Connection& connection) {
    const ssize_t count = ::send(connection.socket.get(), connection.out.data() + connection.sent,
                                 connection.out.size() - connection.sent, MSG_NOSIGNAL);
    if (count < 0 && errno != EAGAIN && errno != EINTR) {
      if (errno != EPIPE && errno != ECONNRESET) {
        fail(connection, "cannot send: " + errno_text(errno));
        return false;
      }
      connection.sent = connection.out.size();
    } else if (count > 0) {
      connection.sent += static_cast<size_t>(count);
      connection.last_byte = connection.now;
    }
    if (connection.sent == connection.out.size()) {
      connection.out = {};
      connection.sent = 0;
      epoll_event event = {};
      event.events = EPOLLIN;
      event.data.ptr = &connection;
      (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, connection.socket.get(), &event);
    }
    return true;
  }

  void receive(Connection& connection) {
    const ssize_t count = ::recv(connection.socket.get(), read_buffer_.data(), read_buffer_.size(), 0);
    if (count < 0) {
      if (errno != EAGAIN && errno != EINTR) fail(connection, "the connection broke: " + errno_text(errno));
      return;
    }
    connection.last_byte = connection.now;
    const Status status =
        count == 0 ? connection.parser.finish()
                   : connection.parser.feed({read_buffer_.data(), static_cast<size_t>(count)}, connection);
    if (!status) return fail(connection, status.error().message);
    if (!connection.parser.done()) return;
    connection.receiver->on_end(connection.now);
    remove(connection);
  }

  void drop_silent(double time) {
    for (auto it = connections_.begin(); it != connections_.end();) {
      Connection& connection = *it++;
      if (time - connection.last_byte <= plan_.idle_timeout) continue;
      connection.now = time;
      fail(connection, "no bytes received for " + std::to_string(std::lround(plan_.idle_timeout)) + " s");
    }
  }

  void fail(Connection& connection, const std::string& why) {
    connection.receiver->on_failure(why, connection.now);
    remove(connection);
  }

  void remove(Connection& connection) {
    connections_.erase(connection.self);  // closing removes the socket from epoll
    ++over_;
  }

  const std::vector<Address>& addresses_;
  size_t& address_;
  const Plan& plan_;
  std::string read_buffer_;
  const Clock::time_point began_ = Clock::now();
  Descriptor epoll_, timer_;
  std::list<Connection> connections_;
  size_t next_ = 0, over_ = 0;
  double backlog_full_until_ = 0, armed_until_ = 0;
};

/// Collects a whole body.
class Collector final : public Receiver {
 public:
  void on_start(double) override {}
  Status on_head(const ResponseHead& head, double) override {
    fetched.status = head.status;
    return {};
  }
  Status on_body(std::string_view bytes, double) override {
    if (fetched.body.size() + bytes.size() > kMaxFetched)
      return io_error("the answer passes " + std::to_string(kMaxFetched) + " bytes");
    fetched.body += bytes;
    return {};
  }
  void on_end(double) override { whole = true; }
  void on_failure(const std::string& why, double) override { failure = why; }

  Fetched fetched;
  bool whole = false;
  std::string failure;
};

}  // namespace

Client::Client(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Client::~Client() = default;
Client::Client(Client&&) noexcept = default;

Result<Client> Client::create(const Target& target) {
  raise_descriptor_limit();
  FOVEA_TRY(addresses, resolve(target));
  return Client(std::unique_ptr<Impl>(new Impl{target, std::move(addresses)}));
}

const Target& Client::target() const {
  return impl_->target;
}

Status Client::run(const Plan& plan) {
  FOVEA_CHECK(std::is_sorted(plan.starts.begin(), plan.starts.end()));
  return Run(impl_->addresses, impl_->address, plan).go();
}

std::string request_bytes(const Target& target, std::string_view method, std::string_view endpoint,
                          std::string_view headers, std::string_view body) {
  std::string bytes;
  bytes.reserve(512 + headers.size() + body.size());
  bytes.append(method).append(" ").append(target.path(endpoint)).append(" HTTP/1.1\r\nHost: ");
  bytes.append(target.authority()).append("\r\nUser-Agent: fovea-bench-serve\r\nConnection: close\r\n");
  bytes.append(headers);
  if (!body.empty())
    bytes.append("Content-Type: application/json\r\nContent-Length: ")
        .append(std::to_string(body.size()))
        .append("\r\n");
  return bytes.append("\r\n").append(body);
}

Result<Fetched> fetch(Client& client, std::string bytes, double timeout_s,
                      const std::function<bool()>& stop) {
  Collector collector;
  Plan plan;
  plan.starts = {0};
  plan.idle_timeout = timeout_s;
  plan.bytes = [&](size_t) { return bytes; };
  plan.receiver = [&](size_t) -> Receiver& { return collector; };
  plan.stop = stop;
  FOVEA_RETURN_IF_ERROR(client.run(plan));
  if (collector.whole) return std::move(collector.fetched);
  if (collector.failure.empty()) return Error{ErrorCode::cancelled, "interrupted"};
  return io_error(collector.failure);
}

}  // namespace fovea::load
