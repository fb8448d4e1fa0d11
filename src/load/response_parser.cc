#include "load/response_parser.h"

#include <algorithm>
#include <charconv>

#include "fovea/result.h"

namespace fovea::load {
namespace {

Error malformed(const std::string& what) {
  return io_error("the answer is not HTTP/1.1: " + what);
}

/// Printable and truncated, for messages.
std::string shown(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 60))
    out += c >= ' ' && c <= '~' ? c : '?';
  return out + (text.size() > 60 ? "..." : "");
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t'))
    text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t'))
    text.remove_suffix(1);
  return text;
}

bool is_token(std::string_view text) {
  constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~";
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           kMarks.find(c) != std::string_view::npos;
  });
}

/// Digits only: no sign, no space, no overflow.
std::optional<uint64_t> parse_number(std::string_view text, int base) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

std::string_view ResponseHead::header(std::string_view name) const {
  for (const auto& [key, value] : headers)
    if (key == name) return value;
  return {};
}

Status ResponseParser::feed(std::string_view bytes, Sink& sink) {
  while (!bytes.empty()) {
    switch (state_) {
      case State::done: return malformed("bytes follow its end");
      case State::until_close: return sink.on_body(bytes);
      case State::sized_body:
      case State::chunk_data: {
        const std::string_view piece = bytes.substr(0, std::min<uint64_t>(left_, bytes.size()));
        FOVEA_RETURN_IF_ERROR(sink.on_body(piece));
        bytes.remove_prefix(piece.size());
        left_ -= piece.size();
        if (left_ == 0) state_ = state_ == State::sized_body ? State::done : State::chunk_end;
        break;
      }
      default: {
        const size_t end = bytes.find('\n');
        const std::string_view piece = bytes.substr(0, end);
        head_bytes_ += piece.size() + (end != std::string_view::npos ? 1 : 0);
        if (head_bytes_ > kMaxHead)
          return malformed("its head, or a line of its chunks, passes " + std::to_string(kMaxHead) +
                           " bytes");
        line_ += piece;
        if (end == std::string_view::npos) return {};
        bytes.remove_prefix(end + 1);
        if (line_.ends_with('\r')) line_.pop_back();
        FOVEA_RETURN_IF_ERROR(take_line(line_, sink));
        line_.clear();
      }
    }
  }
  return {};
}

Status ResponseParser::finish() {
  if (state_ == State::done) return {};
  if (state_ == State::until_close) {
    state_ = State::done;
    return {};
  }
  if (state_ == State::status_line && head_bytes_ == 0)
    return io_error("the server closed the connection without an answer");
  return io_error("the server closed the connection in the middle of its answer");
}

Status ResponseParser::take_line(std::string_view line, Sink& sink) {
  switch (state_) {
    case State::status_line: return take_status_line(line);
    case State::headers: return line.empty() ? end_of_head(sink) : take_header(line);
    case State::chunk_size: return take_chunk_size(line);
    case State::chunk_end:
      if (!line.empty()) return malformed("a chunk is longer than its size says");
      state_ = State::chunk_size;
      head_bytes_ = 0;
      return {};
    default:  // trailers are ignored
      if (line.empty()) state_ = State::done;
      return {};
  }
}

Status ResponseParser::take_status_line(std::string_view line) {
  if (line.size() < 12 || !line.starts_with("HTTP/1.") || (line[7] != '0' && line[7] != '1') ||
      line[8] != ' ' || (line.size() > 12 && line[12] != ' '))
    return malformed("it begins with \"" + shown(line) + "\"");
  const auto status = parse_number(line.substr(9, 3), 10);
  if (!status || *status < 100 || *status > 599)
    return malformed("its status is \"" + shown(line.substr(9)) + "\"");
  head_ = {};
  head_.status = static_cast<int>(*status);
  state_ = State::headers;
  return {};
}

Status ResponseParser::take_header(std::string_view line) {
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos || !is_token(line.substr(0, colon)))
    return malformed("a header is \"" + shown(line) + "\"");
  head_.headers.emplace_back(lower(line.substr(0, colon)), trim(line.substr(colon + 1)));
  return {};
}

Status ResponseParser::end_of_head(Sink& sink) {
  head_bytes_ = 0;
  if (head_.status < 200) {
    if (head_.status == 101) return malformed("it switches to another protocol");
    state_ = State::status_line;
    return {};
  }
  std::optional<uint64_t> length;
  bool chunked = false;
  for (const auto& [name, value] : head_.headers) {
    if (name == "content-length") {
      const auto number = parse_number(value, 10);
      if (!number || (length && *length != *number))
        return malformed("its Content-Length is \"" + shown(value) + "\"");
      length = number;
    } else if (name == "transfer-encoding") {
      if (chunked || lower(value) != "chunked")
        return malformed("its Transfer-Encoding is \"" + shown(value) + "\", not chunked");
      chunked = true;
    }
  }
  if (chunked && length) return malformed("it has both a Content-Length and a Transfer-Encoding");
  FOVEA_RETURN_IF_ERROR(sink.on_head(head_));
  left_ = length.value_or(0);
  if (head_.status == 204 || head_.status == 304 || (length && *length == 0))
    state_ = State::done;
  else if (chunked)
    state_ = State::chunk_size;
  else
    state_ = length ? State::sized_body : State::until_close;
  return {};
}

Status ResponseParser::take_chunk_size(std::string_view line) {
  const auto size = parse_number(trim(line.substr(0, line.find(';'))), 16);
  if (!size) return malformed("a chunk's size is \"" + shown(line) + "\"");
  left_ = *size;
  head_bytes_ = 0;
  state_ = left_ == 0 ? State::trailers : State::chunk_data;
  return {};
}

}  // namespace fovea::load
