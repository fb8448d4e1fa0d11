#pragma once
// Listening sockets, by the system's own calls: their errors say what to change.
#include <cstdint>
#include <string>

#include "fovea/result.h"

namespace fovea::http {

struct ListenSocket {
  int fd = -1;  ///< the caller's to close
  int family = 0;
  int port = 0;
  std::string address;  ///< "http://127.0.0.1:8000", "unix:/run/fovea.sock"
  uint64_t inode = 0;   ///< of a UNIX socket, so that another's is not removed at the end
};

Result<ListenSocket> listen_tcp(const std::string& host, int port);
/// A socket at `path` that no one listens on any more is replaced.
Result<ListenSocket> listen_unix(const std::string& path);
void remove_unix_socket(const std::string& path, uint64_t inode);

/// The other side's address without its port; "unix" for a UNIX socket.
std::string peer_address(int fd);
/// What an address is counted under: itself, or of IPv6 the /64 that one client mostly has all of.
std::string address_group(const std::string& address);
/// No delay of small writes, and probes that find out that the other side has vanished.
void tune_connection(int fd);
/// As many open files as the system lets this process have.
void raise_file_limit();

}  // namespace fovea::http
