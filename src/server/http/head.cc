#include "server/http/head.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace fovea::http {
namespace {

constexpr size_t kMethodBytes = 32;  // the longest registered method has 17

constexpr bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
constexpr bool is_alnum(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/// tchar of RFC 9110, 5.6.2
constexpr bool is_token_char(char c) {
  return is_alnum(c) || std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}

bool is_token(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), is_token_char);
}

/// Space, visible characters, tab and the bytes from 0x80 (obs-text).
constexpr bool is_value_char(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte == '\t' || (byte >= 0x20 && byte != 0x7F);
}

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

std::string_view trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

Refusal bad(std::string message) {
  return {400, std::move(message)};
}

std::optional<Refusal> check_request_line(std::string_view line, const Limits& limits, bool& is_1_1) {
  const size_t method_end = line.find(' ');
  const size_t target_end = line.rfind(' ');
  if (method_end == std::string_view::npos || target_end == method_end)
    return bad("the request line is not METHOD TARGET VERSION");
  const std::string_view method = line.substr(0, method_end);
  const std::string_view target = line.substr(method_end + 1, target_end - method_end - 1);
  const std::string_view version = line.substr(target_end + 1);
  if (!is_token(method) || method.size() > kMethodBytes) return bad("the method is not a token");
  if (target.size() > limits.target_bytes)
    return Refusal{414, "the request target has " + std::to_string(target.size()) + " bytes; at most " +
                            std::to_string(limits.target_bytes) + " are allowed"};
  const auto visible = [](char c) { return c > 0x20 && c < 0x7F; };
  if (target.empty() || !std::all_of(target.begin(), target.end(), visible))
    return bad("the request target has a character that is not visible ASCII; write it as %XX");
  const bool is_version = version.size() == 8 && version.substr(0, 5) == "HTTP/" && is_digit(version[5]) &&
                          version[6] == '.' && is_digit(version[7]);
  if (!is_version) return bad("the request line does not end in HTTP/1.0 or HTTP/1.1");
  if (version != "HTTP/1.1" && version != "HTTP/1.0")
    return Refusal{505,
                   "the version is " + std::string(version) + "; only HTTP/1.0 and HTTP/1.1 are supported"};
  is_1_1 = version == "HTTP/1.1";
  return std::nullopt;
}

/// A loose check of host [ ":" port ] (RFC 3986): only characters of names, addresses and ports. Empty is
/// allowed.
bool is_host(std::string_view host) {
  return std::all_of(host.begin(), host.end(), [](char c) {
    return is_alnum(c) || std::string_view("-._~%!$&'()*+;=:[]").find(c) != std::string_view::npos;
  });
}

/// Fields that may occur at most once. With duplicates, one parser uses the first and another the last, so
/// that they disagree on the API key or on the end of the body.
constexpr std::array<std::string_view, 7> kSingle = {
    "Host", "Content-Length", "Transfer-Encoding", "Content-Type", "Authorization", "Origin", "Expect"};
enum : size_t { kHost, kLength, kCoding };  // indices into kSingle

/// The fields that determine where the request ends and which host it addresses.
struct FramingFields {
  std::array<int, kSingle.size()> counts{};

  std::optional<Refusal> take(std::string_view name, std::string_view value, const Limits& limits) {
    for (size_t i = 0; i < kSingle.size(); ++i)
      if (equal_ignoring_case(name, kSingle[i])) ++counts[i];
    if (equal_ignoring_case(name, "host")) {
      if (!is_host(value)) return bad("Host is not a host and port");
    } else if (equal_ignoring_case(name, "content-length")) {
      return check_length(value, limits);
    } else if (equal_ignoring_case(name, "transfer-encoding")) {
      if (!equal_ignoring_case(value, "chunked"))
        return Refusal{501, "the only supported transfer coding is chunked"};
    } else if (equal_ignoring_case(name, "expect") && !equal_ignoring_case(value, "100-continue")) {
      return Refusal{417, "the only supported expectation is 100-continue"};
    }
    return std::nullopt;
  }

  static std::optional<Refusal> check_length(std::string_view value, const Limits& limits) {
    if (value.empty() || !std::all_of(value.begin(), value.end(), is_digit))
      return bad("Content-Length is not a number of bytes");
    uint64_t length = 0;
    for (const char c : value) {
      // No overflow: the loop returns once `length` exceeds body_bytes, and ten times that is far below 2^64.
      length = length * 10 + static_cast<uint64_t>(c - '0');
      if (length > limits.body_bytes)
        return Refusal{413, "the body is larger than the allowed " + std::to_string(limits.body_bytes) +
                                " bytes; send less"};
    }
    return std::nullopt;
  }

  std::optional<Refusal> check(bool is_1_1) const {
    for (size_t i = 0; i < kSingle.size(); ++i)
      if (counts[i] > 1) return bad("there are several " + std::string(kSingle[i]) + " headers; send one");
    if (is_1_1 && counts[kHost] == 0) return bad("there is no Host header");
    if (counts[kCoding] > 0 && counts[kLength] > 0)
      return bad("Content-Length and Transfer-Encoding exclude each other");
    if (counts[kCoding] > 0 && !is_1_1) return bad("HTTP/1.0 has no Transfer-Encoding");
    return std::nullopt;
  }
};

/// The line at `at`, which advances past its CR LF; nullopt when it has a lone CR or LF, or no end.
std::optional<std::string_view> next_line(std::string_view head, size_t& at) {
  const size_t end = head.find_first_of("\r\n", at);
  if (end == std::string_view::npos || head.substr(end, 2) != "\r\n") return std::nullopt;
  const std::string_view line = head.substr(at, end - at);
  at = end + 2;
  return line;
}

int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  const char small = lower(c);
  return small >= 'a' && small <= 'f' ? small - 'a' + 10 : -1;
}

}  // namespace

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(), [](char x, char y) { return lower(x) == lower(y); });
}

bool is_harmless_id(std::string_view id) {
  return !id.empty() && id.size() <= 128 && std::all_of(id.begin(), id.end(), [](char c) {
    return is_alnum(c) || c == '-' || c == '_' || c == '.' || c == ':';
  });
}

std::string_view Request::header(std::string_view name) const {
  for (const auto& [key, value] : headers)
    if (equal_ignoring_case(key, name)) return value;
  return {};
}

std::optional<Refusal> check_head(std::string_view head, const Limits& limits) {
  Refusal endings = bad("a line does not end in CR LF");
  if (head.size() > limits.header_bytes)
    return Refusal{431, "the request line and headers have more than the allowed " +
                            std::to_string(limits.header_bytes) + " bytes"};
  size_t at = 0;
  const auto request_line = next_line(head, at);
  if (!request_line) return endings;
  bool is_1_1 = false;
  if (auto refusal = check_request_line(*request_line, limits, is_1_1)) return refusal;
  FramingFields framing;
  for (int fields = 0;; ++fields) {
    const auto line = next_line(head, at);
    if (!line) return endings;
    if (line->empty()) break;
    if (fields == limits.header_fields)
      return Refusal{431,
                     "there are more than the allowed " + std::to_string(limits.header_fields) + " headers"};
    const size_t colon = line->find(':');
    // Also refuses obs-fold: a continuation line begins with a space, so its name is not a token.
    if (colon == std::string_view::npos || !is_token(line->substr(0, colon)))
      return bad("a header's name is not a token directly followed by a colon");
    const std::string_view value = line->substr(colon + 1);
    if (!std::all_of(value.begin(), value.end(), is_value_char))
      return bad("a header's value has a control character");
    if (auto refusal = framing.take(line->substr(0, colon), trim(value), limits)) return refusal;
  }
  if (at != head.size()) return bad("the head continues after its empty line");
  return framing.check(is_1_1);
}

std::optional<Refusal> check_partial_head(std::string_view head, size_t from) {
  for (size_t i = from; i < head.size(); ++i) {
    const char c = head[i];
    if (c == '\n' ? i == 0 || head[i - 1] != '\r' : (i > 0 && head[i - 1] == '\r'))
      return bad("a line does not end in CR LF");
    if (c != '\r' && c != '\n' && !is_value_char(c)) return bad("the head has a control character");
  }
  return std::nullopt;
}

std::optional<Refusal> check_trailers(std::string_view trailers) {
  for (size_t at = 0; at < trailers.size();) {
    const auto line = next_line(trailers, at);
    if (!line || !std::all_of(line->begin(), line->end(), is_value_char))
      return bad("a trailer has a control character");
    if (!line->empty() && !is_token(line->substr(0, line->find(':'))))
      return bad("a trailer's name is not a token directly followed by a colon");
  }
  return std::nullopt;
}

std::optional<Target> parse_target(std::string_view target) {
  if (!target.empty() && target[0] != '/') {  // the absolute form, as sent to a proxy
    const size_t scheme = target.find("://");
    if (scheme == std::string_view::npos) return std::nullopt;
    const std::string_view name = target.substr(0, scheme);
    if (!equal_ignoring_case(name, "http") && !equal_ignoring_case(name, "https")) return std::nullopt;
    const size_t path = target.find_first_of("/?", scheme + 3);
    if (path == scheme + 3 || path == std::string_view::npos || target[path] != '/') return std::nullopt;
    target.remove_prefix(path);
  }
  if (target.empty() || target.find('#') != std::string_view::npos) return std::nullopt;
  const size_t mark = target.find('?');
  const std::string_view path = target.substr(0, mark);
  Target out;
  if (mark != std::string_view::npos) out.query = target.substr(mark + 1);
  for (size_t i = 0; i < path.size(); ++i) {
    if (path[i] != '%') {
      out.path += path[i];
      continue;
    }
    if (path.size() - i < 3) return std::nullopt;
    const int high = hex_digit(path[i + 1]);
    const int low = hex_digit(path[i + 2]);
    if (high < 0 || low < 0) return std::nullopt;
    const auto byte = static_cast<unsigned char>(high * 16 + low);
    if (byte < 0x20 || byte == 0x7F) return std::nullopt;
    out.path += static_cast<char>(byte);
    i += 2;
  }
  return out;
}

}  // namespace fovea::http
