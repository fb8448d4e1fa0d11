#pragma once
// For tests: a client that sends raw bytes.
#include <chrono>
#include <string>
#include <string_view>

namespace fovea::http {

class RawClient {
 public:
  /// "http://127.0.0.1:PORT" or "unix:PATH"; `receive_buffer`: SO_RCVBUF in bytes, 0 = default.
  explicit RawClient(const std::string& address, int receive_buffer = 0);
  ~RawClient();
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  bool connected() const { return fd_ >= 0; }
  /// False when the peer has closed.
  bool send(std::string_view bytes);
  /// Reads one answer, framed by Content-Length or chunks; later bytes stay for the next call. Returns what
  /// was received if the connection ends or is silent for `patience`. `for_head`: the answer has no body.
  std::string answer(bool for_head = false, std::chrono::milliseconds patience = std::chrono::seconds(10));
  /// Reads until `text` is received; false at the end or after `patience`.
  bool read_until(std::string_view text, std::chrono::milliseconds patience = std::chrono::seconds(10));
  /// Reads until the connection ends; `closed`: whether it did within `patience`.
  std::string rest(bool* closed = nullptr, std::chrono::milliseconds patience = std::chrono::seconds(10));
  void shutdown_send();
  /// Closes with a reset (RST).
  void reset();
  void close();

 private:
  bool fill(std::chrono::milliseconds patience);

  int fd_ = -1;
  bool ended_ = false;
  std::string in_;
};

/// The status of an answer; 0 when there is none.
int status_of(std::string_view answer);
/// The body of an answer, chunks concatenated.
std::string body_of(std::string_view answer);

}  // namespace fovea::http
