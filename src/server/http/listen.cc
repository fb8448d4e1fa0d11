#include "server/http/listen.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "fovea/result.h"

namespace fovea::http {
namespace {

constexpr int kBacklog = 4096;

void set_option(int fd, int level, int name, int value) {
  setsockopt(fd, level, name, &value, sizeof value);
}

int open_socket(int family) {
  return socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

Error failed(const std::string& what, int error, const std::string& fix) {
  return io_error(what + ": " + std::strerror(error) + (fix.empty() ? "" : "; " + fix));
}

int bound_port(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<sockaddr_in6*>(&address)->sin6_port);
  return ntohs(reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

std::string numeric_address(const sockaddr* address, socklen_t size) {
  std::array<char, NI_MAXHOST> text{};
  if (getnameinfo(address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0) return "unknown";
  const std::string_view shown = text.data();
  // An IPv4 client of a dual-stack socket.
  constexpr std::string_view mapped = "::ffff:";
  const bool is_mapped =
      shown.substr(0, mapped.size()) == mapped && shown.find('.') != std::string_view::npos;
  return std::string(is_mapped ? shown.substr(mapped.size()) : shown);
}

/// 0, or the error.
int bind_and_listen(int fd, const sockaddr* address, socklen_t size) {
  if (bind(fd, address, size) != 0 || listen(fd, kBacklog) != 0) return errno;
  return 0;
}

/// Removes `path` if it is a socket without a listener.
Status clear_stale(const std::string& path, const sockaddr_un& address) {
  struct stat info{};
  if (lstat(path.c_str(), &info) != 0) return {};
  if (!S_ISSOCK(info.st_mode))
    return invalid("socket path " + path + " exists and is not a socket; give another path");
  const int fd = open_socket(AF_UNIX);
  if (fd < 0) return failed("socket " + path, errno, "");
  const int rc = connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address);
  const int error = rc == 0 ? 0 : errno;
  close(fd);
  if (error != ECONNREFUSED)
    return invalid("socket path " + path + " is in use by another server; stop it or give another path");
  unlink(path.c_str());
  return {};
}

}  // namespace

Result<ListenSocket> listen_tcp(const std::string& host, int port) {
  if (port < 0 || port > 65535)
    return invalid("port is " + std::to_string(port) + "; 0 (any free one) to 65535 are allowed");
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int rc =
      getaddrinfo(host.empty() ? nullptr : host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (rc != 0)
    return invalid("host is " + host + ", which is not found (" + gai_strerror(rc) +
                   "); give an address such as 127.0.0.1 or 0.0.0.0");
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, freeaddrinfo);
  const bool several = found->ai_next != nullptr;
  int error = 0;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    const int fd = open_socket(each->ai_family);
    if (fd < 0) {
      error = errno;
      continue;
    }
    set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    error = bind_and_listen(fd, each->ai_addr, each->ai_addrlen);
    if (error == 0) {
      const int bound = bound_port(fd);
      // With several addresses, the first may be of a family that clients do not use: show the name as given.
      const std::string shown = several || host.empty() ? (host.empty() ? "0.0.0.0" : host)
                                                        : numeric_address(each->ai_addr, each->ai_addrlen);
      const bool brackets = shown.find(':') != std::string::npos;
      return ListenSocket{fd, each->ai_family, bound,
                          "http://" + (brackets ? "[" + shown + "]" : shown) + ":" + std::to_string(bound),
                          0};
    }
    close(fd);
    if (error == EADDRINUSE) break;  // do not fall back to another address of the name
  }
  const std::string what = host + ":" + std::to_string(port);
  if (error == EADDRINUSE)
    return failed(what, error, "stop the other server or give another port (0 = any free one)");
  if (error == EACCES) return failed(what, error, "ports below 1024 need a privilege; give another");
  return failed(what, error, "give an address of this machine");
}

Result<ListenSocket> listen_unix(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path)
    return invalid("socket path " + path + " has " + std::to_string(path.size()) + " bytes; 1 to " +
                   std::to_string(sizeof address.sun_path - 1) + " are allowed");
  std::memcpy(address.sun_path, path.data(), path.size());
  FOVEA_RETURN_IF_ERROR(clear_stale(path, address));
  const int fd = open_socket(AF_UNIX);
  if (fd < 0) return failed("socket " + path, errno, "");
  if (const int error = bind_and_listen(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address)) {
    close(fd);
    return failed("socket " + path, error, "give a path in a folder that exists and is writable");
  }
  struct stat info{};
  lstat(path.c_str(), &info);
  return ListenSocket{fd, AF_UNIX, 0, "unix:" + path, info.st_ino};
}

void remove_unix_socket(const std::string& path, uint64_t inode) {
  struct stat info{};
  if (lstat(path.c_str(), &info) == 0 && S_ISSOCK(info.st_mode) && info.st_ino == inode) unlink(path.c_str());
}

std::string peer_address(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "unknown";
  if (address.ss_family == AF_UNIX) return "unix";
  return numeric_address(reinterpret_cast<sockaddr*>(&address), size);
}

std::string address_group(const std::string& address) {
  in6_addr bytes{};
  const std::string without_zone = address.substr(0, address.find('%'));
  if (inet_pton(AF_INET6, without_zone.c_str(), &bytes) != 1) return address;
  std::fill(std::begin(bytes.s6_addr) + 8, std::end(bytes.s6_addr), uint8_t{0});
  std::array<char, INET6_ADDRSTRLEN> text{};
  inet_ntop(AF_INET6, &bytes, text.data(), text.size());
  return std::string(text.data()) + "/64";
}

void tune_connection(int fd) {
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 60);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 15);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 4);
}

void raise_file_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace fovea::http
