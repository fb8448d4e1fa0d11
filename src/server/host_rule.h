#pragma once
// Which Host headers are served. A page of another site may give its own name the address 127.0.0.1 (DNS
// rebinding) and then reads what this server answers, as its own: all that tells such a request from others
// is its Host.
#include <string>
#include <string_view>
#include <vector>

#include "fovea/result.h"

namespace fovea::server {

/// The default serves any Host.
class HostRule {
 public:
  HostRule() = default;
  /// Serves IP addresses, names of the loopback (localhost and *.localhost) and `names`, each with any port.
  /// "*" as a name: any Host. What is no name, such as a URL or a name with its port, is refused.
  static Result<HostRule> create(const std::vector<std::string>& names);

  bool any() const { return any_; }
  /// Of a Host header, "localhost:8000"; "" where there is none, as a browser always sends one.
  bool allows(std::string_view host) const;
  /// What a client is told whose Host is not served.
  static std::string refusal(std::string_view host);

 private:
  bool any_ = true;
  std::vector<std::string> names_;
};

}  // namespace fovea::server
