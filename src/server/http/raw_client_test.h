#pragma once
// For tests: a client that sends what it is told, byte for byte.
#include <chrono>
#include <string>
#include <string_view>

namespace fovea::http {

class RawClient {
 public:
  /// "http://127.0.0.1:PORT" or "unix:PATH"; `receive_buffer` bytes of the kernel's, 0 = as usual.
  explicit RawClient(const std::string& address, int receive_buffer = 0);
  ~RawClient();
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  bool connected() const { return fd_ >= 0; }
  /// False when the other side has closed.
  bool send(std::string_view bytes);
  /// One whole answer by Content-Length or chunks, the rest stays for the next call; what came until then
  /// when the connection ends or is silent for `patience`. `for_head`: it has no body.
  std::string answer(bool for_head = false, std::chrono::milliseconds patience = std::chrono::seconds(10));
  /// Until `text` has come; false at the end or after the patience.
  bool read_until(std::string_view text, std::chrono::milliseconds patience = std::chrono::seconds(10));
  /// All until the end; `closed` says whether there was one within the patience.
  std::string rest(bool* closed = nullptr, std::chrono::milliseconds patience = std::chrono::seconds(10));
  void shutdown_send();
  /// Closes so that the other side gets a reset.
  void reset();
  void close();

 private:
  bool fill(std::chrono::milliseconds patience);

  int fd_ = -1;
  bool ended_ = false;
  std::string in_;
};

/// The status in an answer; 0 when there is none.
int status_of(std::string_view answer);
/// What is behind an answer's head, chunks put together.
std::string body_of(std::string_view answer);

}  // namespace fovea::http
