#include "load/target.h"

#include <sys/un.h>

#include <charconv>

#include "fovea/result.h"

namespace fovea::load {
namespace {

constexpr std::string_view kAllowed = "allowed are http://HOST[:PORT][/PREFIX] and unix:/PATH/TO/SOCKET";

Error bad_url(std::string_view url, const std::string& what) {
  return invalid("--base-url " + std::string(url) + ": " + what + "; " + std::string(kAllowed));
}

/// Whether the text has characters that would end a line or a field of the request head.
bool has_space_or_control(std::string_view text) {
  for (const char c : text)
    if (static_cast<unsigned char>(c) <= ' ' || c == '\x7f') return true;
  return false;
}

Result<int> parse_port(std::string_view url, std::string_view text) {
  int port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || end != text.data() + text.size() || port < 1 || port > 65535)
    return bad_url(url, "the port is \"" + std::string(text) + "\", not a number of 1 to 65535");
  return port;
}

Result<Target> parse_unix(std::string_view url, std::string_view path) {
  if (path.starts_with("///")) path.remove_prefix(2);  // unix:///run/a.sock
  if (!path.starts_with('/')) return bad_url(url, "the socket's path does not begin with /");
  if (path.size() >= sizeof(sockaddr_un::sun_path))
    return bad_url(url, "the socket's path has " + std::to_string(path.size()) + " bytes, at most " +
                            std::to_string(sizeof(sockaddr_un::sun_path) - 1) + " are possible");
  Target target;
  target.host = "localhost";
  target.unix_path = path;
  return target;
}

}  // namespace

std::string Target::authority() const {
  if (!unix_path.empty()) return host;
  const std::string bracketed = host.find(':') == std::string::npos ? host : "[" + host + "]";
  return bracketed + ":" + std::to_string(port);
}

std::string Target::name() const {
  return unix_path.empty() ? "http://" + authority() + prefix : "unix:" + unix_path;
}

std::string Target::path(std::string_view endpoint) const {
  std::string_view before = prefix;
  if (before.ends_with("/v1") && (endpoint.starts_with("/v1/") || endpoint == "/tokenize"))
    before.remove_suffix(3);
  return std::string(before) + std::string(endpoint);
}

Result<Target> parse_target(std::string_view url) {
  if (has_space_or_control(url)) return bad_url("(it has a space or a control character)", "not a URL");
  constexpr std::string_view kHttp = "http://", kUnix = "unix:";
  if (url.starts_with("https://"))
    return unsupported("--base-url " + std::string(url) +
                       ": TLS is not supported; connect through a proxy that handles TLS, or give http://");
  if (url.starts_with(kUnix)) return parse_unix(url, url.substr(kUnix.size()));
  if (!url.starts_with(kHttp)) return bad_url(url, "not a URL of a supported kind");
  std::string_view rest = url.substr(kHttp.size());
  Target target;
  const size_t slash = rest.find_first_of("/?#");
  std::string_view authority = rest.substr(0, slash);
  if (slash != std::string_view::npos) target.prefix = rest.substr(slash);
  if (target.prefix.find_first_of("?#") != std::string::npos)
    return bad_url(url, "a query or fragment has no place in it");
  while (target.prefix.ends_with('/'))
    target.prefix.pop_back();
  if (authority.find('@') != std::string_view::npos)
    return bad_url(url, "a user's name has no place in it (a key is given by --api-key)");
  size_t colon = authority.rfind(':');
  if (authority.starts_with('[')) {
    const size_t bracket = authority.find(']');
    if (bracket == std::string_view::npos) return bad_url(url, "a ']' is missing");
    target.host = authority.substr(1, bracket - 1);
    colon = bracket + 1 < authority.size() ? bracket + 1 : std::string_view::npos;
    if (colon != std::string_view::npos && authority[colon] != ':')
      return bad_url(url, "what follows ']' is not a port");
  } else {
    target.host = authority.substr(0, colon);
  }
  if (target.host.empty()) return bad_url(url, "it has no host");
  if (colon != std::string_view::npos) {
    FOVEA_TRY(port, parse_port(url, authority.substr(colon + 1)));
    target.port = port;
  }
  return target;
}

}  // namespace fovea::load
