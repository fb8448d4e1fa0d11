#pragma once
// Destination of requests: an http:// URL or a UNIX socket.
#include <string>
#include <string_view>

#include "fovea/result_fwd.h"

namespace fovea::load {

struct Target {
  std::string host;       ///< a name or an address, without the brackets of IPv6
  int port = 80;          ///< unused with a UNIX socket
  std::string unix_path;  ///< "" = TCP
  std::string prefix;     ///< prefix of every path: "" or "/like/this"

  /// The value of the Host header.
  std::string authority() const;
  /// The URL, for messages.
  std::string name() const;
  /// The path of `endpoint` ("/v1/models") on the server. A prefix may end in /v1, as OpenAI's clients
  /// expect: /v1 is not doubled, and /tokenize is not placed below it.
  std::string path(std::string_view endpoint) const;
};

/// "http://HOST[:PORT][/PREFIX]" or "unix:/PATH/TO/SOCKET". https:// is refused; a proxy can provide TLS.
Result<Target> parse_target(std::string_view url);

}  // namespace fovea::load
