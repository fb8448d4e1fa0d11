#pragma once
// Where requests go: an http:// URL or a UNIX socket.
#include <string>
#include <string_view>

#include "fovea/result.h"

namespace fovea::load {

struct Target {
  std::string host;       ///< a name or an address, without the brackets of IPv6
  int port = 80;          ///< unused with a UNIX socket
  std::string unix_path;  ///< "" = TCP
  std::string prefix;     ///< of every path: "" or "/like/this"

  /// Of the Host header.
  std::string authority() const;
  /// For messages: the URL.
  std::string name() const;
  /// The path of `endpoint` ("/v1/models") on the server. A prefix may end in /v1, as OpenAI's clients want
  /// it: it is not doubled, and /tokenize is beside it.
  std::string path(std::string_view endpoint) const;
};

/// "http://HOST[:PORT][/PREFIX]" or "unix:/PATH/TO/SOCKET". https:// is refused: a proxy can do TLS.
Result<Target> parse_target(std::string_view url);

}  // namespace fovea::load
