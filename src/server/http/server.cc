#include "server/http/server.h"

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
#include <mutex>
#include <thread>
#include <unordered_map>
#include <unordered_set>

#include "base/log.h"
#include "server/http/connection.h"
#include "server/http/listen.h"

namespace fovea::http {
namespace asio = boost::asio;
using boost::system::error_code;

namespace {

using Acceptor = asio::basic_socket_acceptor<asio::generic::stream_protocol>;

constexpr std::chrono::milliseconds kAcceptBackoff{100};
/// Connections beyond the limit that get a 503 at a time; more are closed without a word.
constexpr int kRefusedAtATime = 64;

/// Connections of each client address.
class Addresses {
 public:
  /// False when it has `most` already; counted either way.
  bool enter(const std::string& address, int most) {
    const std::lock_guard lock(mutex_);
    return ++counts_[address] <= most;
  }
  void leave(const std::string& address) {
    const std::lock_guard lock(mutex_);
    const auto found = counts_.find(address);
    if (--found->second == 0) counts_.erase(found);
  }

 private:
  std::mutex mutex_;
  std::unordered_map<std::string, int> counts_;
};

/// One I/O thread.
struct Loop {
  asio::io_context io{1};
  asio::executor_work_guard<asio::io_context::executor_type> guard{io.get_executor()};
  std::unordered_set<Connection*> connections;  // on its thread only
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
  ~ServerImpl() override { stop(); }

  Status serve();
  int port() const override { return socket_.port; }
  std::string address() const override { return socket_.address; }
  int connections() const override { return site_->connections; }
  void stop_accepting() override;
  void stop() override;

 private:
  asio::awaitable<void> accept();
  void admit(Loop& loop, Socket socket);
  void start(Loop& loop, Socket socket, const std::string& remote, const std::optional<Refusal>& refusal);

  const std::shared_ptr<Site> site_;
  const ListenSocket socket_;
  std::vector<std::unique_ptr<Loop>> loops_;
  std::optional<Acceptor> acceptor_;
  std::optional<asio::steady_timer> backoff_;
  Addresses addresses_;
  std::atomic<int> refused_ = 0;
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
    if (ec) {  // out of file descriptors or memory: they come back
      if (!std::exchange(told, true)) {
        FOVEA_LOG(warning) << "http: cannot accept connections: " << ec.message();
      }
      backoff_->expires_after(kAcceptBackoff);
      co_await backoff_->async_wait(asio::redirect_error(asio::use_awaitable, ec));
      continue;
    }
    told = false;
    next = (next + 1) % loops_.size();
    // From here on the socket belongs to its own thread.
    asio::post(loop.io,
               [this, &loop, moved = std::move(socket)]() mutable { admit(loop, std::move(moved)); });
  }
}

void ServerImpl::admit(Loop& loop, Socket socket) {
  if (site_->draining) return;
  const Limits& limits = site_->config.limits;
  const bool tcp = site_->config.uds.empty();
  const std::string remote = peer_address(socket.native_handle());
  if (tcp) tune_connection(socket.native_handle());
  const int count = ++site_->connections;
  const bool address_ok = addresses_.enter(remote, tcp ? limits.connections_per_address : limits.connections);
  std::optional<Refusal> refusal;
  if (count > limits.connections) {
    refusal =
        Refusal{503, "the server has its " + std::to_string(limits.connections) + " connections; try again"};
  } else if (!address_ok) {
    refusal = Refusal{503, "this address has its " + std::to_string(limits.connections_per_address) +
                               " connections; use fewer"};
  }
  start(loop, std::move(socket), remote, refusal);
}

void ServerImpl::start(Loop& loop, Socket socket, const std::string& remote,
                       const std::optional<Refusal>& refusal) {
  const bool refused = refusal.has_value();
  const auto connection = std::make_shared<Connection>(std::move(socket), remote, site_, loop.tasks);
  loop.connections.insert(connection.get());
  if (refusal) connection->refuse(*refusal);
  if (refused && ++refused_ > kRefusedAtATime) connection->kill();
  asio::co_spawn(loop.io, connection->run(),
                 [this, &loop, connection, remote, refused](const std::exception_ptr&) {
                   loop.connections.erase(connection.get());
                   addresses_.leave(remote);
                   if (refused) --refused_;
                   --site_->connections;
                 });
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
  auto site = std::make_shared<Site>();
  site->config = config;
  site->handler = std::move(handler);
  site->error_page = std::move(error_page);
  auto server = std::make_unique<ServerImpl>(std::move(site), std::move(socket));
  FOVEA_RETURN_IF_ERROR(server->serve());
  return std::unique_ptr<Server>(std::move(server));
}

}  // namespace fovea::http
