#pragma once
// An HTTP/1.1 server: a few I/O threads serve thousands of connections, and any thread may stream an answer.
// Clients are not trusted: every size and every wait has a limit, and requests that two parsers could
// interpret differently (request smuggling) are refused. Boost is used only inside this folder.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fovea/result_fwd.h"

namespace fovea::http {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct Request {
  std::string method;  ///< as sent; "GET"
  std::string path;    ///< percent-decoded, without the query; begins with '/'; may be invalid UTF-8
  std::string query;   ///< after '?', as sent
  Headers headers;
  std::string body;
  std::string id;      ///< a safe x-request-id (1 to 128 of A-Za-z0-9-_.:), else generated
  std::string remote;  ///< the client's address, for the log; "unix" for a UNIX socket

  /// The first header of that name in any letter case; "" when there is none.
  std::string_view header(std::string_view name) const;
};

struct Response {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  Headers headers = {};
  std::shared_ptr<const void> held = nullptr;  ///< released when the body is sent or discarded
};

/// One request and its answer. Thread-safe; nothing blocks. If the last reference is released without an
/// answer, the client gets a 500.
class Exchange {
 public:
  virtual ~Exchange() = default;

  virtual const Request& request() const = 0;
  /// Sends a complete answer. Once, and not after start_stream(). For HEAD only the body's length is sent.
  virtual void respond(Response response) = 0;
  /// Sends the head of an answer whose body follows in chunks by write().
  virtual void start_stream(int status, std::string_view content_type, const Headers& headers) = 0;
  /// Queues bytes of a streamed body. False when they will not be sent: the client has disconnected, or reads
  /// so slowly that more than Limits::stream_buffer bytes would be buffered (the connection is then closed).
  /// An empty buffer takes a piece of any size.
  virtual bool write(std::string bytes) = 0;
  /// Ends a streamed body.
  virtual void end() = 0;
  /// Closes the connection without ending the body, so that the client detects the truncation.
  virtual void abort() = 0;
  /// Bytes buffered for the client.
  virtual size_t buffered() const = 0;
  /// `closed` is called once, on an I/O thread, if the connection ends before respond() or end() (the client
  /// disconnected, shut down its sending side or read too slowly, or abort()); at once if that has already
  /// happened (after stop(): on the calling thread). Never after respond() or end().
  virtual void on_close(std::function<void()> closed) = 0;
  /// Runs `work` (never after stop()) on the connection's I/O thread, in call order. Streams are formatted
  /// there, which keeps that cost off the thread that produces the tokens.
  virtual void post(std::function<void()> work) = 0;
};

/// Called on an I/O thread when a request is complete; must not block.
using Handler = std::function<void(std::shared_ptr<Exchange>)>;

/// Builds the answer, in the API's error format, to a request that does not reach the handler: 400
/// (malformed), 408 (too slow), 413, 414, 431, 417 (an expectation other than 100-continue), 501 (a transfer
/// coding), 503 (too many connections or body bytes), 505; or that the handler dropped: 500. Called on any
/// I/O thread.
using ErrorPage = std::function<Response(int status, std::string_view message)>;

struct Limits {
  size_t header_bytes = 16 << 10;  ///< request line and all headers
  int header_fields = 100;
  size_t target_bytes = 8 << 10;
  size_t body_bytes = size_t{32} << 20;  ///< checked against Content-Length and while chunks arrive
  /// Total of all bodies being received, before API keys are checked. Above it, bodies that still grow get a
  /// 503.
  size_t all_bodies_bytes = size_t{1} << 30;
  size_t stream_buffer = size_t{1} << 20;  ///< buffered bytes of one streamed answer
  /// Open at a time. Above it, a new connection evicts one without a complete request, or else gets a 503.
  int connections = 8192;
  /// The same for one client address (IPv6: its /64). Does not apply to UNIX sockets.
  int connections_per_address = 4096;
  std::chrono::milliseconds header_timeout{10'000};  ///< from the first byte to the end of the headers
  std::chrono::milliseconds body_timeout{
      30'000};  ///< between body bytes; whole body: 10 times this and 1 ms a byte
  std::chrono::milliseconds keep_alive_timeout{60'000};  ///< between requests
  std::chrono::milliseconds write_timeout{60'000};       ///< while a client takes no byte
};

struct ConnectionCounts {
  int open = 0;         ///< now, without refused connections that still get their error
  int64_t refused = 0;  ///< since the start: got only a 503
  int64_t evicted = 0;  ///< since the start: closed while idle to admit a new one
};

struct ServerConfig {
  std::string host = "127.0.0.1";  ///< an address or a name
  int port = 8000;                 ///< 0 = any free one
  std::string uds;                 ///< UNIX socket path, replaces host and port; a stale one is replaced
  int io_threads = 1;
  Limits limits;
  std::string server_name = "fovea";  ///< the Server header
};

class Server {
 public:
  virtual ~Server() = default;

  /// Binds, listens and serves until stop(). Errors describe the cause: an address in use, a name that is not
  /// found, a path that is too long.
  static Result<std::unique_ptr<Server>> start(const ServerConfig& config, Handler handler,
                                               ErrorPage error_page);

  virtual int port() const = 0;             ///< 0 with a UNIX socket
  virtual std::string address() const = 0;  ///< "http://127.0.0.1:8000", "unix:/run/fovea.sock"
  virtual ConnectionCounts connections() const = 0;
  /// Accepts no more connections and closes idle ones; answers in flight continue, then their connections
  /// close.
  virtual void stop_accepting() = 0;
  /// Closes all connections and joins the threads. No handler is called afterwards.
  virtual void stop() = 0;
};

}  // namespace fovea::http
