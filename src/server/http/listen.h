#pragma once
// Listening sockets, with plain system calls, so that errors can name the fix.
#include <cstdint>
#include <string>

#include "fovea/result_fwd.h"

namespace fovea::http {

struct ListenSocket {
  int fd = -1;  ///< the caller closes it
  int family = 0;
  int port = 0;
  std::string address;  ///< "http://127.0.0.1:8000", "unix:/run/fovea.sock"
  uint64_t inode = 0;   ///< of a UNIX socket, so that only this server's own socket is removed
};

Result<ListenSocket> listen_tcp(const std::string& host, int port);
/// A stale socket at `path`, without a listener, is replaced.
Result<ListenSocket> listen_unix(const std::string& path);
void remove_unix_socket(const std::string& path, uint64_t inode);

/// The peer's address without its port; "unix" for a UNIX socket.
std::string peer_address(int fd);
/// The key for per-client limits: the address itself, or for IPv6 its /64, usually one client's.
std::string address_group(const std::string& address);
/// Sets TCP_NODELAY, and keep-alive probes that detect a vanished peer.
void tune_connection(int fd);
/// Raises the soft limit of open files to the hard limit.
void raise_file_limit();

}  // namespace fovea::http
