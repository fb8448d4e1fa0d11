#pragma once
// Many HTTP requests at a time from one thread: connections on one epoll, each with one request, as the
// clients of `vllm bench serve` do it (so that no request waits behind another's connection).
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/result.h"
#include "load/response_parser.h"
#include "load/target.h"

namespace fovea::load {

/// What becomes of one request; times in seconds since Client::run() began. Ends with exactly one of on_end
/// and on_failure, or with neither when the run was stopped.
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
  std::vector<double> starts;                ///< seconds, ascending; one a request
  int max_concurrency = 0;                   ///< requests that are under way at a time; 0 = no limit
  double idle_timeout = 600;                 ///< seconds without a byte, in which a request is taken for lost
  std::function<std::string(size_t)> bytes;  ///< the request as sent, when its turn comes
  std::function<Receiver&(size_t)> receiver;
  std::function<bool()> stop = [] { return false; };     ///< asked after each wait, at least every 0.2 s
  std::function<void(size_t)> progress = [](size_t) {};  ///< the number of requests that are over
};

class Client {
 public:
  /// Finds the addresses of the target's name.
  static Result<Client> create(const Target& target);
  ~Client();
  Client(Client&&) noexcept;

  /// Until all requests are over, or stop() says so. Errors are those of this machine; a request's own go to
  /// its receiver.
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

/// The bytes of a request. `body` "" = none. `headers`: further lines, each "Name: value\r\n".
std::string request_bytes(const Target& target, std::string_view method, std::string_view endpoint,
                          std::string_view headers, std::string_view body);

/// One request and its whole answer, of at most 64 MiB.
Result<Fetched> fetch(Client& client, std::string bytes, double timeout_s, const std::function<bool()>& stop);

}  // namespace fovea::load
