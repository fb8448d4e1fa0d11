#pragma once
// What is checked of a request's head before the parser sees it: the shapes that two parsers could read
// differently (request smuggling) and what the parser lets pass although RFC 9112 forbids it.
#include <optional>
#include <string>
#include <string_view>

#include "server/http/server.h"

namespace fovea::http {

struct Refusal {
  int status = 400;
  std::string message;
};

/// `head`: from the request line to the empty line, inclusive; any bytes. Nothing when it is sound: a method
/// of token characters, a target of visible characters, HTTP/1.0 or 1.1, lines that end in CR LF and do not
/// fold, names right before their colons, no control characters, one Host (HTTP/1.0: at most one), at most
/// one Content-Length of digits, or else the one transfer coding "chunked", at most one each of Content-Type,
/// Authorization, Origin and Expect, all within `limits`.
std::optional<Refusal> check_head(std::string_view head, const Limits& limits);

/// Of a head that has not ended yet: what cannot become sound any more. `from`: bytes checked before.
std::optional<Refusal> check_partial_head(std::string_view head, size_t from);

/// What stands behind the last chunk, to the empty line: lines as a head's, which do not fold.
std::optional<Refusal> check_trailers(std::string_view trailers);

/// Splits a sound request target (origin or absolute form) and decodes its path; nothing when it is of
/// another form, or has a bad or control character's escape.
struct Target {
  std::string path;
  std::string query;
};
std::optional<Target> parse_target(std::string_view target);

bool equal_ignoring_case(std::string_view a, std::string_view b);

/// Whether a client's x-request-id may go into logs and answers.
bool is_harmless_id(std::string_view id);

}  // namespace fovea::http
