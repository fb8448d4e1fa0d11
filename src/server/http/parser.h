#pragma once
// Boost.Beast's request parser, which fills a Request. Its input has passed check_head().
#include <boost/beast/http/basic_parser.hpp>
#include <cstdint>
#include <string_view>

#include "server/http/head.h"
#include "server/http/server.h"

namespace fovea::http {

class RequestParser final : public boost::beast::http::basic_parser<true> {
 public:
  explicit RequestParser(const Limits& limits);

  /// Takes a complete head; returns a refusal when it is not valid.
  std::optional<Refusal> take_head(std::string_view head);
  /// Returns the number of body bytes consumed; sets `refusal` on an error.
  size_t take_body(std::string_view bytes, std::optional<Refusal>& refusal);

  Request& request() { return request_; }
  bool expects_continue() const;
  bool is_1_1() const { return version_1_1_; }

 private:
  bool breaks_chunk(std::string_view rest) const;

  using string_view = boost::beast::string_view;
  using error_code = boost::beast::error_code;

  void on_request_impl(boost::beast::http::verb, string_view method, string_view target, int version,
                       error_code& ec) override;
  void on_response_impl(int, string_view, int, error_code&) override {}
  void on_field_impl(boost::beast::http::field, string_view name, string_view value, error_code& ec) override;
  void on_header_impl(error_code&) override { in_body_ = true; }
  void on_body_init_impl(const boost::optional<std::uint64_t>&, error_code&) override {}
  size_t on_body_impl(string_view bytes, error_code& ec) override;
  void on_chunk_header_impl(std::uint64_t size, string_view extensions, error_code& ec) override;
  size_t on_chunk_body_impl(std::uint64_t, string_view bytes, error_code& ec) override;
  void on_finish_impl(error_code&) override {}

  const Limits& limits_;
  Request request_;
  bool version_1_1_ = false;
  bool in_body_ = false;      // fields are trailers, which are ignored
  bool at_size_ = true;       // the next byte belongs to a chunk's size, after
  bool chunk_ended_ = false;  // the CR LF of the chunk before
  size_t spent_on_extensions_ = 0;
  const char* trailers_ = nullptr;  // into the bytes given last; set after the last chunk's size
};

}  // namespace fovea::http
