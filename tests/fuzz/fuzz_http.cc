// Any bytes as a request: an accepted head satisfies the rules in a second parser, a refusal is one line, and
// the body does not depend on how its bytes are split on arrival.
#include <algorithm>
#include <cstdint>
#include <string>

#include "base/check.h"
#include "server/http/parser.h"

namespace {

using namespace fovea::http;

size_t count(std::string_view text, std::string_view what) {
  size_t out = 0;
  for (size_t at = text.find(what); at != std::string_view::npos; at = text.find(what, at + what.size()))
    ++out;
  return out;
}

/// A complete body. (In an incomplete one, some bytes may still wait for more.)
struct Outcome {
  bool done = false;
  std::string body;
  bool operator==(const Outcome&) const = default;
};

/// The body in pieces of `step` bytes.
Outcome read_body(std::string_view head, std::string_view rest, size_t step, const Limits& limits) {
  RequestParser parser(limits);
  if (parser.take_head(head)) return {};
  std::string waiting;
  while (!parser.is_done() && !rest.empty()) {
    const size_t size = std::min(step, rest.size());
    waiting += rest.substr(0, size);
    rest.remove_prefix(size);
    std::optional<Refusal> refusal;
    waiting.erase(0, parser.take_body(waiting, refusal));
    if (refusal) return {};
  }
  if (!parser.is_done()) return {};
  return {true, parser.request().body};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Limits limits;
  limits.body_bytes = 1000;
  limits.target_bytes = 200;
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const size_t end = all.find("\r\n\r\n");
  const std::string_view head = all.substr(0, end == std::string_view::npos ? size : end + 4);
  const auto refusal = check_head(head, limits);
  if (refusal) {
    FOVEA_CHECK(refusal->status >= 400 && refusal->message.size() < 300);
    FOVEA_CHECK(refusal->message.find_first_of("\r\n") == std::string::npos);
    return 0;
  }
  FOVEA_CHECK(!check_partial_head(head, 0));
  FOVEA_CHECK(count(head, "\r") == count(head, "\r\n") && count(head, "\n") == count(head, "\r\n"));
  FOVEA_CHECK(count(head, "\r\n ") == 0 && count(head, "\r\n\t") == 0);
  const std::string_view rest = all.substr(head.size());
  const Outcome whole = read_body(head, rest, rest.size(), limits);
  FOVEA_CHECK(whole.body.size() <= limits.body_bytes);
  for (const size_t step : {size_t{1}, size_t{7}})
    FOVEA_CHECK(read_body(head, rest, step, limits) == whole);
  return 0;
}
