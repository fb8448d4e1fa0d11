#pragma once
// Many concurrent HTTP requests from one thread: connections on one epoll, one request per connection, as in
// `vllm bench serve` (so that no request waits behind another on its connection).
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/result_fwd.h"
#include "load/response_parser.h"
#include "load/target.h"

namespace fovea::load {

/// Callbacks of one request; times in seconds since Client::run() began. The last call is exactly one of
/// on_end and on_failure, or neither if the run was stopped.
class Receiver {
 public:
  virtual ~Receiver() = default;
  virtual void on_start(double now) = 0;  ///< before the connection is opened
  virtual Status on_head(const ResponseHead& head, double now) = 0;
  virtual Status on_body(std::string_view bytes, double now) = 0;
  virtual void on_end(double now) = 0;
  virtual void on_failure(const std::string& why, double now) = 0;
};

struct Plan {
  std::vector<double> starts;                ///< seconds, ascending; one per request
  int max_concurrency = 0;                   ///< maximum requests in flight; 0 = no limit
  double idle_timeout = 600;                 ///< seconds without a byte after which a request fails
  std::function<std::string(size_t)> bytes;  ///< builds the bytes of a request when it starts
  std::function<Receiver&(size_t)> receiver;
  std::function<bool()> stop = [] { return false; };     ///< called after each wait, at least every 0.2 s
  std::function<void(size_t)> progress = [](size_t) {};  ///< called with the number of finished requests
};

class Client {
 public:
  /// Resolves the addresses of the target's name.
  static Result<Client> create(const Target& target);
  ~Client();
  Client(Client&&) noexcept;

  /// Runs until all requests have finished or stop() returns true. Returns errors of this machine; errors of
  /// a request go to its receiver.
  Status run(const Plan& plan);
  const Target& target() const;

 private:
  struct Impl;
  explicit Client(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

struct Fetched {
  int status = 0;
  std::string body;
};

/// The bytes of a request. `body` "" = none. `headers`: additional lines, each "Name: value\r\n".
std::string request_bytes(const Target& target, std::string_view method, std::string_view endpoint,
                          std::string_view headers, std::string_view body);

/// Sends one request and returns its whole response, at most 64 MiB.
Result<Fetched> fetch(Client& client, std::string bytes, double timeout_s, const std::function<bool()>& stop);

}  // namespace fovea::load
