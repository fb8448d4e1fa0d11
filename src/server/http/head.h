#pragma once
// Checks on a request's head before the parser sees it. They refuse heads that two parsers could interpret
// differently (request smuggling), and what the parser accepts although RFC 9112 forbids it.
#include <optional>
#include <string>
#include <string_view>

#include "server/http/server.h"

namespace fovea::http {

struct Refusal {
  int status = 400;
  std::string message;
};

/// `head`: from the request line to the empty line, inclusive; any bytes. Returns nullopt when it is valid: a
/// method of token characters, a target of visible characters, HTTP/1.0 or 1.1, lines that end in CR LF
/// without folding, no space between a name and its colon, no control characters, one Host (HTTP/1.0: at most
/// one), at most one Content-Length of digits or, instead, a single transfer coding "chunked", at most one
/// each of Content-Type, Authorization, Origin and Expect, all within `limits`.
std::optional<Refusal> check_head(std::string_view head, const Limits& limits);

/// Checks an incomplete head for errors that later bytes cannot repair. `from`: bytes already checked.
std::optional<Refusal> check_partial_head(std::string_view head, size_t from);

/// Checks the trailers, from after the last chunk to the empty line: header lines without folding.
std::optional<Refusal> check_trailers(std::string_view trailers);

/// Splits a valid request target (origin or absolute form) and decodes its path; nullopt for another form, a
/// malformed escape, or an escaped control character.
struct Target {
  std::string path;
  std::string query;
};
std::optional<Target> parse_target(std::string_view target);

bool equal_ignoring_case(std::string_view a, std::string_view b);

/// Whether a client's x-request-id is safe to repeat in logs and answers.
bool is_harmless_id(std::string_view id);

}  // namespace fovea::http
