#pragma once
// An HTTP/1.1 server: a few I/O threads carry thousands of connections, answers may be streamed from any
// thread. Boost stays inside this folder's .cc files. What a client sends is hostile: every size and every
// wait has a limit, and what two parsers could read differently (request smuggling) is refused.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fovea/result.h"

namespace fovea::http {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct Request {
  std::string method;  ///< as sent; "GET"
  std::string path;    ///< percent-decoded, without the query; begins with '/'; maybe not UTF-8
  std::string query;   ///< after '?', as sent
  Headers headers;
  std::string body;
  std::string
      id;  ///< x-request-id, if it is of the harmless kind (1 to 128 of A-Za-z0-9-_.:), else one of our own
  std::string remote;  ///< the client's address, for the log; "unix" for a UNIX socket

  /// The first header of that name in any letter case; "" when there is none.
  std::string_view header(std::string_view name) const;
};

struct Response {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  Headers headers = {};
  std::shared_ptr<const void> held = nullptr;  ///< released when the body is sent, or never will be
};

/// One request and the way back to its client. All is thread-safe; nothing blocks. A request whose last
/// reference goes without an answer is answered with a 500.
class Exchange {
 public:
  virtual ~Exchange() = default;

  virtual const Request& request() const = 0;
  /// The whole answer. Once, and not after start_stream(). A body for HEAD is counted and not sent.
  virtual void respond(Response response) = 0;
  /// The head of an answer whose body follows by write() in chunks.
  virtual void start_stream(int status, std::string_view content_type, const Headers& headers) = 0;
  /// Queues bytes of a streamed body. False when they will not be sent: the client is gone, or reads so
  /// slowly that Limits::stream_buffer bytes wait for it (the connection is then closed). While nothing
  /// waits, a piece of any size is taken.
  virtual bool write(std::string bytes) = 0;
  /// The end of a streamed body.
  virtual void end() = 0;
  /// Closes the connection without an end of the body, so that the client sees that it is not whole.
  virtual void abort() = 0;
  /// Bytes that wait for the client.
  virtual size_t buffered() const = 0;
  /// `closed` is called once, on an I/O thread, if the connection ends before the answer has been handed over
  /// whole (the client hung up, or only stopped sending, read too slowly, or abort()); at once if that has
  /// happened already. Never after the answer is whole.
  virtual void on_close(std::function<void()> closed) = 0;
  /// Runs `work` (never after stop()) on the connection's I/O thread, in order of the calls: where pieces of
  /// a stream are made, so that who produces them does not pay for it.
  virtual void post(std::function<void()> work) = 0;
};

/// Called on an I/O thread when a request is whole; must not block.
using Handler = std::function<void(std::shared_ptr<Exchange>)>;

/// The answer to a request that never reaches the handler: 400 (malformed), 408 (too slow), 413, 414, 431,
/// 417 (an expectation other than 100-continue), 501 (a transfer coding), 503 (too many connections, or
/// bodies), 505; or to one that the handler let go: 500. So that it has the API's error shape. Any I/O thread
/// calls it.
using ErrorPage = std::function<Response(int status, std::string_view message)>;

struct Limits {
  size_t header_bytes = 16 << 10;  ///< of the request line and all headers
  int header_fields = 100;
  size_t target_bytes = 8 << 10;
  size_t body_bytes = size_t{32} << 20;  ///< by Content-Length and while chunks arrive
  /// Of all bodies while they are received, before anybody has shown a key: beyond, those that still
  /// grow get a 503.
  size_t all_bodies_bytes = size_t{1} << 30;
  size_t stream_buffer = size_t{1} << 20;  ///< of a streamed answer, waiting for its reader
  /// At a time. Beyond, one that waits for a request ends for the new one, or else the new one gets a 503.
  int connections = 8192;
  /// Likewise, of one client address (of IPv6: of its /64). Not of UNIX sockets.
  int connections_per_address = 4096;
  std::chrono::milliseconds header_timeout{10'000};  ///< from the first byte to the end of the headers
  std::chrono::milliseconds body_timeout{
      30'000};  ///< without a byte of the body; all of it: 10 times, and 1 ms a byte
  std::chrono::milliseconds keep_alive_timeout{60'000};  ///< between requests
  std::chrono::milliseconds write_timeout{60'000};       ///< while a client takes no byte
};

struct ConnectionCounts {
  int open = 0;         ///< now; without those that are told that there is no place for them
  int64_t refused = 0;  ///< since the start: got a 503 and nothing else
  int64_t evicted = 0;  ///< since the start: ended while they waited for a request, for a new one
};

struct ServerConfig {
  std::string host = "127.0.0.1";  ///< an address or a name
  int port = 8000;                 ///< 0 = any free one
  std::string uds;                 ///< a UNIX socket's path instead of host and port; a stale one is replaced
  int io_threads = 1;
  Limits limits;
  std::string server_name = "fovea";  ///< the Server header
};

class Server {
 public:
  virtual ~Server() = default;

  /// Binds, listens and serves until stop(). An address in use, a name that is not found, a path that is too
  /// long are errors that say so.
  static Result<std::unique_ptr<Server>> start(const ServerConfig& config, Handler handler,
                                               ErrorPage error_page);

  virtual int port() const = 0;             ///< 0 with a UNIX socket
  virtual std::string address() const = 0;  ///< "http://127.0.0.1:8000", "unix:/run/fovea.sock"
  virtual ConnectionCounts connections() const = 0;
  /// No more connections; idle ones are closed, answers under way go on and their connections close after
  /// them.
  virtual void stop_accepting() = 0;
  /// Closes everything and joins the threads. Handlers are not called any more.
  virtual void stop() = 0;
};

}  // namespace fovea::http
