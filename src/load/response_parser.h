#pragma once
// Incremental parser of HTTP/1.1 responses, in pieces of any size. Input is untrusted: sizes are bounded, and
// an ambiguous response is an error.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fovea/result_fwd.h"

namespace fovea::load {

struct ResponseHead {
  int status = 0;
  std::vector<std::pair<std::string, std::string>> headers;  ///< names in lower case
  /// The first header of that name (in lower case); "" if there is none.
  std::string_view header(std::string_view name) const;
};

/// Parses one response. Interim responses (1xx) are skipped.
class ResponseParser {
 public:
  static constexpr size_t kMaxHead = 64
                                     << 10;  ///< bytes of the status line and all headers, or of all trailers

  class Sink {
   public:
    virtual ~Sink() = default;
    virtual Status on_head(const ResponseHead& head) = 0;
    virtual Status on_body(std::string_view bytes) = 0;  ///< without chunk framing
  };

  /// Bytes after the end of the response are an error, as there was only one request. An error is final.
  Status feed(std::string_view bytes, Sink& sink);
  /// Call when the server has closed the connection: an error unless the response is complete.
  Status finish();
  bool done() const { return state_ == State::done; }

 private:
  enum class State {
    status_line,
    headers,
    sized_body,
    chunk_size,
    chunk_data,
    chunk_end,
    trailers,
    until_close,
    done
  };

  Status take_line(std::string_view line, Sink& sink);
  Status take_status_line(std::string_view line);
  Status take_header(std::string_view line);
  Status end_of_head(Sink& sink);
  Status take_chunk_size(std::string_view line);

  State state_ = State::status_line;
  std::string line_;       // an incomplete line
  size_t head_bytes_ = 0;  // bytes of the head or the trailers so far
  ResponseHead head_;
  uint64_t left_ = 0;  // bytes left in the body or the chunk
};

}  // namespace fovea::load
