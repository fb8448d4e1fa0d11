#pragma once
// The system's curl, run as a program: a library would bring TLS and its certificates into this one.
#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/result_fwd.h"

namespace fovea::hub {

struct Download {
  std::string url;
  std::string token;  ///< "" = none. Sent to the URL's host only, and not visible in the list of processes
  std::string file;   ///< what it has already is continued
};

/// One running curl. Its end removes nothing: the part that has arrived stays.
class Curl {
 public:
  static Result<Curl> start(const Download& download);
  Curl(Curl&& other) noexcept;
  Curl& operator=(Curl&& other) noexcept;
  ~Curl();

  /// Nullopt while it runs; then its exit status, 0 = the file is whole.
  std::optional<int> poll();
  /// What it said, one line.
  const std::string& message() const { return message_; }

 private:
  explicit Curl(pid_t pid, int errors) : pid_(pid), errors_(errors) {}
  void read_errors();
  void end();

  pid_t pid_ = -1;
  int errors_ = -1;  // a pipe
  std::string message_;
};

struct Fetched {
  int status = 0;  ///< of HTTP
  std::string body;
};
/// A small document, at most 64 MiB.
Result<Fetched> fetch(const std::string& url, const std::string& token);

}  // namespace fovea::hub
