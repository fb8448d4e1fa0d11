#pragma once
// Incremental parser of server-sent events (WHATWG HTML, 9.2.6), in pieces of any size.
#include <functional>
#include <string>
#include <string_view>

#include "fovea/result_fwd.h"

namespace fovea::load {

class SseParser {
 public:
  static constexpr size_t kMaxEvent = 16 << 20;  ///< bytes of one event's lines

  /// The type ("" = message) and the data, its lines joined by '\n'. An error ends feed().
  using OnEvent = std::function<Status(std::string_view type, std::string_view data)>;

  /// Lines end in LF, CR or CRLF; comments and unused fields are skipped.
  Status feed(std::string_view bytes, const OnEvent& on_event);
  /// End of the stream: an event without its final empty line counts (some servers omit it after [DONE]).
  Status finish(const OnEvent& on_event);

 private:
  Status take_line(std::string_view line, const OnEvent& on_event);
  Status dispatch(const OnEvent& on_event);

  std::string line_;  // an incomplete line
  std::string type_, data_;
  bool has_data_ = false, after_cr_ = false, first_line_ = true;
};

}  // namespace fovea::load
