#include "load/sse_parser.h"

#include "fovea/result.h"

namespace fovea::load {

Status SseParser::feed(std::string_view bytes, const OnEvent& on_event) {
  while (!bytes.empty()) {
    if (after_cr_) {
      after_cr_ = false;
      if (bytes.front() == '\n') bytes.remove_prefix(1);
      continue;
    }
    const size_t end = bytes.find_first_of("\r\n");
    const std::string_view piece = bytes.substr(0, end);
    if (line_.size() + piece.size() + data_.size() > kMaxEvent)
      return io_error("an event of the stream passes " + std::to_string(kMaxEvent) + " bytes");
    if (end == std::string_view::npos) {
      line_ += piece;
      return {};
    }
    after_cr_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    if (line_.empty()) {  // usually a whole line: no copy
      FOVEA_RETURN_IF_ERROR(take_line(piece, on_event));
    } else {
      line_ += piece;
      FOVEA_RETURN_IF_ERROR(take_line(line_, on_event));
      line_.clear();
    }
  }
  return {};
}

Status SseParser::finish(const OnEvent& on_event) {
  if (!line_.empty()) FOVEA_RETURN_IF_ERROR(take_line(line_, on_event));
  line_.clear();
  return dispatch(on_event);
}

Status SseParser::take_line(std::string_view line, const OnEvent& on_event) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (first_line_ && line.starts_with(kByteOrderMark)) line.remove_prefix(kByteOrderMark.size());
  first_line_ = false;
  if (line.empty()) return dispatch(on_event);
  const size_t colon = line.find(':');
  const std::string_view field = line.substr(0, colon);
  std::string_view value = colon == std::string_view::npos ? std::string_view() : line.substr(colon + 1);
  if (value.starts_with(' ')) value.remove_prefix(1);
  if (field == "data") {
    if (has_data_) data_ += '\n';
    data_ += value;
    has_data_ = true;
  } else if (field == "event") {
    type_ = value;
  }
  return {};
}

Status SseParser::dispatch(const OnEvent& on_event) {
  Status status;
  if (has_data_) status = on_event(type_, data_);
  type_.clear();
  data_.clear();
  has_data_ = false;
  return status;
}

}  // namespace fovea::load
