#pragma once
// The allow-list for Host headers. A hostile page can resolve its own name to 127.0.0.1 (DNS rebinding) and
// then read this server's answers as same-origin; only the Host header tells such a request from others.
#include <string>
#include <string_view>
#include <vector>

#include "fovea/result_fwd.h"

namespace fovea::server {

/// The default allows any Host.
class HostRule {
 public:
  HostRule() = default;
  /// Allows IP addresses, loopback names (localhost and *.localhost) and `names`, each with any port. "*" as
  /// a name allows any Host. A `names` entry that is not a name, such as a URL or a name with a port, is an
  /// error.
  static Result<HostRule> create(const std::vector<std::string>& names);

  bool any() const { return any_; }
  /// `host`: the Host header, "localhost:8000". "" (no header) is allowed: a browser always sends one.
  bool allows(std::string_view host) const;
  /// The error message for a Host that is not allowed.
  static std::string refusal(std::string_view host);

 private:
  bool any_ = true;
  std::vector<std::string> names_;
};

}  // namespace fovea::server
