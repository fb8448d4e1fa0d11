#include "server/http/raw_client_test.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace fovea::http {

RawClient::RawClient(const std::string& address, int receive_buffer) {
  const bool is_unix = address.rfind("unix:", 0) == 0;
  fd_ = socket(is_unix ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (receive_buffer > 0) setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
  int rc = -1;
  if (is_unix) {
    sockaddr_un to{};
    to.sun_family = AF_UNIX;
    std::strncpy(to.sun_path, address.c_str() + 5, sizeof to.sun_path - 1);
    rc = connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to);
  } else {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(std::atoi(address.c_str() + address.rfind(':') + 1)));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    rc = connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to);
  }
  if (rc != 0) close();
}

RawClient::~RawClient() {
  close();
}

void RawClient::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

void RawClient::reset() {
  const linger hard{1, 0};
  setsockopt(fd_, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
  close();
}

void RawClient::shutdown_send() {
  shutdown(fd_, SHUT_WR);
}

bool RawClient::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

bool RawClient::fill(std::chrono::milliseconds patience) {
  if (ended_ || fd_ < 0) return false;
  pollfd waiting{fd_, POLLIN, 0};
  if (poll(&waiting, 1, static_cast<int>(patience.count())) <= 0) return false;
  std::array<char, 1 << 16> bytes;
  const ssize_t got = recv(fd_, bytes.data(), bytes.size(), 0);
  if (got <= 0) {
    ended_ = true;
    return false;
  }
  in_.append(bytes.data(), static_cast<size_t>(got));
  return true;
}

bool RawClient::read_until(std::string_view text, std::chrono::milliseconds patience) {
  while (in_.find(text) == std::string::npos)
    if (!fill(patience)) return false;
  return true;
}

std::string RawClient::rest(bool* closed, std::chrono::milliseconds patience) {
  while (fill(patience)) {
  }
  if (closed != nullptr) *closed = ended_;
  return std::exchange(in_, {});
}

std::string RawClient::answer(bool for_head, std::chrono::milliseconds patience) {
  for (;;) {
    const size_t head = in_.find("\r\n\r\n");
    size_t end = std::string::npos;
    if (head != std::string::npos) {
      const std::string_view fields = std::string_view(in_).substr(0, head + 2);
      const size_t length = fields.find("Content-Length: ");
      if (for_head || status_of(in_) < 200) {
        end = head + 4;
      } else if (length != std::string_view::npos) {
        end = head + 4 + std::strtoull(in_.c_str() + length + 16, nullptr, 10);
      } else if (const size_t last = in_.find("0\r\n\r\n", head + 4); last != std::string::npos) {
        end = last + 5;  // no body in these tests contains it
      }
    }
    if (end <= in_.size()) {
      std::string out = in_.substr(0, end);
      in_.erase(0, end);
      return out;
    }
    if (!fill(patience)) return std::exchange(in_, {});
  }
}

int status_of(std::string_view answer) {
  return answer.substr(0, 9) == "HTTP/1.1 " ? std::atoi(std::string(answer.substr(9, 3)).c_str()) : 0;
}

std::string body_of(std::string_view answer) {
  const size_t head = answer.find("\r\n\r\n");
  if (head == std::string_view::npos) return {};
  std::string_view rest = answer.substr(head + 4);
  if (answer.substr(0, head).find("Transfer-Encoding: chunked") == std::string_view::npos)
    return std::string(rest);
  std::string out;
  for (;;) {
    const size_t line = rest.find("\r\n");
    if (line == std::string_view::npos) return out + "<cut>";
    const size_t size = std::strtoull(std::string(rest.substr(0, line)).c_str(), nullptr, 16);
    if (size == 0) return out;
    out += rest.substr(line + 2, size);
    rest.remove_prefix(std::min(rest.size(), line + 2 + size + 2));
  }
}

}  // namespace fovea::http
