#include "server/http/parser.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/error.hpp>
#include <limits>

namespace fovea::http {
namespace beast = boost::beast::http;

namespace {

/// Chunk extensions are ignored; a body with more bytes of them than this is refused as an attack.
constexpr size_t kChunkExtensionBytes = 4096;

Refusal refusal_of(const boost::beast::error_code& ec, const Limits& limits) {
  if (ec == beast::error::body_limit)
    return {413,
            "the body is larger than the allowed " + std::to_string(limits.body_bytes) + " bytes; send less"};
  return {400, "the request is malformed: " + ec.message()};
}

}  // namespace

RequestParser::RequestParser(const Limits& limits) : limits_(limits) {
  header_limit(std::numeric_limits<std::uint32_t>::max());  // check_head() has applied our limit
  body_limit(limits.body_bytes);
  eager(true);
}

std::optional<Refusal> RequestParser::take_head(std::string_view head) {
  error_code ec;
  put(boost::asio::buffer(head.data(), head.size()), ec);
  if (ec && ec != beast::error::need_more) return refusal_of(ec, limits_);
  if (!is_header_done()) return Refusal{400, "the request's head is malformed"};
  return std::nullopt;
}

size_t RequestParser::take_body(std::string_view bytes, std::optional<Refusal>& refusal) {
  // Beast checks a chunk's end only when the next size line is complete.
  const auto broken = [&](std::string_view rest) {
    if (breaks_chunk(rest))
      refusal = Refusal{400, "a chunk does not end in CR LF, or its size is not a hexadecimal number"};
    return refusal.has_value();
  };
  if (broken(bytes)) return 0;
  // Before a chunk size at least these bytes are still to come; Beast's own assertion fails on fewer.
  if (chunked() && at_size_ && bytes.size() < std::string_view("0\r\n\r\n").size()) return 0;
  error_code ec;
  const size_t used = put(boost::asio::buffer(bytes.data(), bytes.size()), ec);
  if (ec && ec != beast::error::need_more) refusal = refusal_of(ec, limits_);
  if (!refusal && !is_done() && broken(bytes.substr(used))) return used;
  if (!refusal && is_done() && trailers_ != nullptr)
    refusal = check_trailers({trailers_, static_cast<size_t>(bytes.data() + used - trailers_)});
  // Unused bytes are an incomplete size line or trailers.
  if (!refusal && !is_done() && bytes.size() - used > limits_.header_bytes)
    refusal = Refusal{400, "a chunk's size or the trailers have no end"};
  return used;
}

/// Whether the unused bytes `rest` cannot be the start of a chunk's end and the next chunk's size.
bool RequestParser::breaks_chunk(std::string_view rest) const {
  constexpr std::string_view kEnd = "\r\n", kHex = "0123456789abcdefABCDEF", kBehindSize = "; \t\r";
  if (!chunked() || !at_size_) return false;
  if (chunk_ended_) {
    if (!kEnd.starts_with(rest.substr(0, kEnd.size()))) return true;
    rest.remove_prefix(std::min(rest.size(), kEnd.size()));
  }
  if (rest.empty()) return false;
  const size_t digits = std::min(rest.find_first_not_of(kHex), rest.size());
  return digits == 0 || (digits < rest.size() && kBehindSize.find(rest[digits]) == std::string_view::npos);
}

bool RequestParser::expects_continue() const {
  return version_1_1_ && equal_ignoring_case(request_.header("expect"), "100-continue");
}

void RequestParser::on_request_impl(beast::verb, string_view method, string_view target, int version,
                                    error_code& ec) {
  version_1_1_ = version == 11;
  request_.method.assign(method.data(), method.size());
  auto parts = http::parse_target({target.data(), target.size()});
  if (!parts) {
    ec = beast::error::bad_target;
    return;
  }
  request_.path = std::move(parts->path);
  request_.query = std::move(parts->query);
}

void RequestParser::on_field_impl(beast::field, string_view name, string_view value, error_code&) {
  if (in_body_) return;
  request_.headers.emplace_back(std::string(name.data(), name.size()),
                                std::string(value.data(), value.size()));
}

size_t RequestParser::on_body_impl(string_view bytes, error_code&) {
  request_.body.append(bytes.data(), bytes.size());
  return bytes.size();
}

size_t RequestParser::on_chunk_body_impl(std::uint64_t left, string_view bytes, error_code& ec) {
  at_size_ = chunk_ended_ = left == bytes.size();
  return on_body_impl(bytes, ec);
}

void RequestParser::on_chunk_header_impl(std::uint64_t size, string_view extensions, error_code& ec) {
  // A quoted extension could contain a line end, which another parser would take for the size line's.
  const auto control = [](char c) { return static_cast<unsigned char>(c) < 0x20; };
  at_size_ = chunk_ended_ = false;
  spent_on_extensions_ += extensions.size();
  if (spent_on_extensions_ > kChunkExtensionBytes ||
      std::any_of(extensions.begin(), extensions.end(), control))
    ec = beast::error::bad_chunk_extension;
  if (size == 0) trailers_ = extensions.data() + extensions.size() + 2;  // after the CR LF
}

}  // namespace fovea::http
