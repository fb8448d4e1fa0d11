#include "server/host_rule.h"

#include <arpa/inet.h>

#include <algorithm>

#include "fovea/result.h"
#include "server/text.h"

namespace fovea::server {
namespace {

/// `host` without its port and without the trailing dot of an absolute name.
std::string_view name_of(std::string_view host) {
  if (host.starts_with('[')) {
    const size_t end = host.find(']') + 1;  // 0 = no bracket
    return end == host.size() || host[end] == ':' ? host.substr(0, end) : std::string_view();
  }
  host = host.substr(0, host.find(':'));
  if (host.ends_with('.')) host.remove_suffix(1);
  return host;
}

bool is_address(std::string_view name) {
  in_addr v4;
  in6_addr v6;
  if (!name.starts_with('[')) return inet_pton(AF_INET, std::string(name).c_str(), &v4) == 1;
  return name.ends_with(']') &&
         inet_pton(AF_INET6, std::string(name.substr(1, name.size() - 2)).c_str(), &v6) == 1;
}

bool is_loopback(std::string_view name) {
  constexpr std::string_view kLocal = "localhost";
  if (name.size() > kLocal.size() && name[name.size() - kLocal.size() - 1] != '.') return false;
  return name.size() >= kLocal.size() && same_letters(name.substr(name.size() - kLocal.size()), kLocal);
}

bool is_name(std::string_view name) {
  return !name.empty() && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  });
}

}  // namespace

Result<HostRule> HostRule::create(const std::vector<std::string>& names) {
  HostRule rule;
  rule.any_ = false;
  for (const std::string& name : names) {
    if (name == "*") {
      rule.any_ = true;
      continue;
    }
    if (!is_name(name))
      return invalid(
          "--allowed-host " + escaped(name) +
          " is not a host name; give the name that clients use, without a scheme and a port, as in "
          "llm.example.org, or * for any");
    rule.names_.emplace_back(name_of(name));
  }
  return rule;
}

bool HostRule::allows(std::string_view host) const {
  if (any_ || host.empty()) return true;
  const std::string_view name = name_of(host);
  return is_address(name) || is_loopback(name) ||
         std::ranges::any_of(names_, [&](const std::string& allowed) { return same_letters(allowed, name); });
}

std::string HostRule::refusal(std::string_view host) {
  return "the Host " + escaped(host) +
         " is not served; call the server by an address or as localhost, or start it with --allowed-host " +
         escaped(name_of(host)) + " or an API key";
}

}  // namespace fovea::server
