#include "server/http/server.h"

#include <poll.h>
#include <sys/socket.h>

#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <csignal>
#include <list>
#include <mutex>
#include <thread>
#include <unordered_set>

#include "base/log.h"
#include "fovea/result.h"
#include "server/http/connection.h"
#include "server/http/listen.h"
#include "server/http/refused.h"

namespace fovea::http {
namespace asio = boost::asio;
using boost::system::error_code;

namespace {

using Acceptor = asio::basic_socket_acceptor<asio::generic::stream_protocol>;

constexpr std::chrono::milliseconds kAcceptBackoff{100};
/// The wait after an idle connection was evicted because file descriptors had run out.
constexpr std::chrono::milliseconds kEvictBackoff{2};
/// Maximum refused connections that are still open; above it, a new one closes the oldest.
constexpr size_t kRefusedAtATime = 256;
constexpr std::chrono::seconds kTellRefusals{10};

/// One I/O thread.
struct Loop {
  asio::io_context io{1};
  asio::executor_work_guard<asio::io_context::executor_type> guard{io.get_executor()};
  // Only for its thread.
  std::unordered_set<Connection*> connections;
  std::list<RefusedConnection*> refused;  // the oldest first
  std::shared_ptr<TaskQueue> tasks =
      std::make_shared<TaskQueue>([this] { asio::post(io, [queue = tasks.get()] { queue->run(); }); });
  std::thread thread;
};

class ServerImpl final : public Server {
 public:
  ServerImpl(std::shared_ptr<Site> site, ListenSocket socket)
      : site_(std::move(site)), socket_(std::move(socket)) {
    for (int i = 0; i < std::max(1, site_->config.io_threads); ++i)
      loops_.push_back(std::make_unique<Loop>());
    acceptor_.emplace(loops_[0]->io);
    backoff_.emplace(loops_[0]->io);
  }
  // Out of memory or a broken mutex ends the process here.
  ~ServerImpl() override { stop(); }  // NOLINT(bugprone-exception-escape)

  Status serve();
  int port() const override { return socket_.port; }
  std::string address() const override { return socket_.address; }
  ConnectionCounts connections() const override { return site_->places.counts(); }
  void stop_accepting() override;
  void stop() override;

 private:
  asio::awaitable<void> accept();
  bool makes_room();
  void admit(Loop& loop, Socket socket);
  void refuse(Loop& loop, Socket socket, Places::Full full);
  std::string refusal(Places::Full full) const;
  void tell_refusals(const std::string& why);

  const std::shared_ptr<Site> site_;
  const ListenSocket socket_;
  std::vector<std::unique_ptr<Loop>> loops_;
  std::optional<Acceptor> acceptor_;
  std::optional<asio::steady_timer> backoff_;
  std::atomic<int64_t> refusals_told_ = 0;  // steady-clock seconds of the last log line
  std::mutex stop_mutex_;
};

Status ServerImpl::serve() {
  error_code ec;
  acceptor_->assign(asio::generic::stream_protocol(socket_.family, 0), socket_.fd, ec);
  if (ec) return io_error("listening socket: " + ec.message());
  asio::co_spawn(loops_[0]->io, accept(), asio::detached);
  for (auto& loop : loops_)
    loop->thread = std::thread([&io = loop->io] { io.run(); });
  return {};
}

asio::awaitable<void> ServerImpl::accept() {
  size_t next = 0;
  bool told = false;
  while (!site_->draining) {
    Loop& loop = *loops_[next];
    error_code ec;
    Socket socket = co_await acceptor_->async_accept(loop.io, asio::redirect_error(asio::use_awaitable, ec));
    if (ec == asio::error::operation_aborted || ec == asio::error::bad_descriptor) break;
    if (ec == asio::error::connection_aborted) continue;
    if (ec) {  // out of file descriptors or memory: retry later
      if (!std::exchange(told, true)) {
        FOVEA_LOG(warning) << "http: cannot accept connections: " << ec.message();
      }
      backoff_->expires_after(makes_room() ? kEvictBackoff : kAcceptBackoff);
      co_await backoff_->async_wait(asio::redirect_error(asio::use_awaitable, ec));
      continue;
    }
    told = false;
    next = (next + 1) % loops_.size();
    // From here on the socket belongs to its I/O thread.
    asio::post(loop.io,
               [this, &loop, moved = std::move(socket)]() mutable { admit(loop, std::move(moved)); });
  }
}

/// After descriptors have run out: evicts an idle connection if a client waits. accept() fails then even
/// when no client waits.
bool ServerImpl::makes_room() {
  pollfd door{acceptor_->native_handle(), POLLIN, 0};
  return poll(&door, 1, 0) == 1 && site_->places.evict_longest_idle();
}

void ServerImpl::admit(Loop& loop, Socket socket) {
  if (site_->draining) return;
  const std::string remote = peer_address(socket.native_handle());
  if (site_->config.uds.empty()) tune_connection(socket.native_handle());
  Places::Full full = Places::Full::no;
  auto place = site_->places.enter(address_group(remote), full);
  if (!place) return refuse(loop, std::move(socket), full);
  const auto connection =
      std::make_shared<Connection>(std::move(socket), remote, std::move(place), site_, loop.tasks);
  loop.connections.insert(connection.get());
  asio::co_spawn(loop.io, connection->run(), [&loop, connection](const std::exception_ptr&) {
    loop.connections.erase(connection.get());
  });
}

std::string ServerImpl::refusal(Places::Full full) const {
  const Limits& limits = site_->config.limits;
  if (full == Places::Full::all)
    return "the connection limit of " + std::to_string(limits.connections) +
           " is reached, all with requests in flight; try again later";
  return "the limit of " + std::to_string(limits.connections_per_address) +
         " connections for this address is reached; use fewer";
}

void ServerImpl::refuse(Loop& loop, Socket socket, Places::Full full) {
  const std::string why = refusal(full);
  tell_refusals(why);
  const auto answer =
      std::make_shared<Answer>(site_, loop.tasks, std::weak_ptr<Flushable>(), Framing{false, true, false});
  answer->respond(site_->error_page(503, why));
  Piece bytes;
  answer->take(bytes);
  if (loop.refused.size() * loops_.size() >= kRefusedAtATime) {
    loop.refused.front()->kill();
    loop.refused.pop_front();
  }
  const auto refused = std::make_shared<RefusedConnection>(std::move(socket), bytes.prefix + bytes.body,
                                                           site_->config.limits.body_bytes);
  loop.refused.push_back(refused.get());
  asio::co_spawn(loop.io, refused->run(),
                 [&loop, refused](const std::exception_ptr&) { loop.refused.remove(refused.get()); });
}

/// Logs refusals with a rate limit: a flood must not fill the log.
void ServerImpl::tell_refusals(const std::string& why) {
  const auto now =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now().time_since_epoch())
          .count();
  int64_t told = refusals_told_.load();
  if (told != 0 && now - told < kTellRefusals.count()) return;
  if (!refusals_told_.compare_exchange_strong(told, now)) return;
  const ConnectionCounts counts = site_->places.counts();
  FOVEA_LOG(warning) << "http: a connection is refused: " << why << "; since the start " << counts.refused
                     << " refused, " << counts.evicted << " idle ones closed for new ones, " << counts.open
                     << " open";
}

void ServerImpl::stop_accepting() {
  if (site_->draining.exchange(true)) return;
  asio::post(loops_[0]->io, [this] {
    error_code ec;
    acceptor_->close(ec);
    backoff_->cancel();
    if (!site_->config.uds.empty()) remove_unix_socket(site_->config.uds, socket_.inode);
  });
  for (auto& loop : loops_)
    asio::post(loop->io, [each = loop.get()] {
      for (Connection* connection : each->connections)
        connection->wake();
    });
}

void ServerImpl::stop() {
  const std::lock_guard lock(stop_mutex_);
  if (site_->stopped.exchange(true)) return;
  stop_accepting();
  for (auto& loop : loops_)
    asio::post(loop->io, [each = loop.get()] {
      for (Connection* connection : each->connections)
        connection->kill();
      for (RefusedConnection* refused : each->refused)
        refused->kill();
      each->tasks->close();
      each->guard.reset();
    });
  for (auto& loop : loops_)
    if (loop->thread.joinable()) loop->thread.join();
}

}  // namespace

Result<std::unique_ptr<Server>> Server::start(const ServerConfig& config, Handler handler,
                                              ErrorPage error_page) {
  std::signal(SIGPIPE, SIG_IGN);
  raise_file_limit();
  FOVEA_TRY(socket, config.uds.empty() ? listen_tcp(config.host, config.port) : listen_unix(config.uds));
  auto site = std::make_shared<Site>(config);
  site->handler = std::move(handler);
  site->error_page = std::move(error_page);
  auto server = std::make_unique<ServerImpl>(std::move(site), std::move(socket));
  FOVEA_RETURN_IF_ERROR(server->serve());
  return std::unique_ptr<Server>(std::move(server));
}

}  // namespace fovea::http
