#include "load/stream_receiver.h"

#include "fovea/result.h"

namespace fovea::load {

void StreamReceiver::on_start(double now) {
  outcome_.start = now;
  outcome_.sent = true;
}

Status StreamReceiver::on_head(const ResponseHead& head, double) {
  status_ = head.status;
  if (status_ == 200 && !head.header("content-type").starts_with("text/event-stream"))
    return io_error("the answer is not a stream of events: its Content-Type is \"" +
                    std::string(head.header("content-type").substr(0, 60)) + "\", not text/event-stream");
  return {};
}

Status StreamReceiver::on_body(std::string_view bytes, double now) {
  if (status_ != 200) {
    error_body_ += bytes.substr(0, kMaxErrorBody - error_body_.size());
    return {};
  }
  return parser_.feed(
      bytes, [&](std::string_view type, std::string_view data) { return take_event(type, data, now); });
}

Status StreamReceiver::take_event(std::string_view type, std::string_view data, double now) {
  if (data == kDone) {
    done_ = true;
    return {};
  }
  FOVEA_TRY(event, parse_stream_event(type, data));
  finished_ = finished_ || event.finished;
  if (event.prompt_tokens) outcome_.prompt_tokens = *event.prompt_tokens;
  if (event.completion_tokens) {
    outcome_.output_tokens = *event.completion_tokens;
    counted_ = true;
  }
  if (!event.has_token) return {};
  if (events_++ == 0)
    outcome_.ttft = now - outcome_.start;
  else
    outcome_.itl.push_back(now - last_);
  last_ = now;
  outcome_.latency = now - outcome_.start;
  if (!counted_) outcome_.output_tokens = events_;
  if (keep_text_) outcome_.text += event.text;
  return {};
}

void StreamReceiver::on_end(double now) {
  if (status_ != 200) return on_failure(error_message(status_, error_body_), now);
  const Status last = parser_.finish(
      [&](std::string_view type, std::string_view data) { return take_event(type, data, now); });
  if (!last) return on_failure(last.error().message, now);
  if (!done_ && !finished_) return on_failure("the stream ended before the answer did", now);
  if (events_ == 0) return on_failure("the answer has no token", now);
  outcome_.ending = Ending::success;
}

void StreamReceiver::on_failure(const std::string& why, double) {
  outcome_.ending = Ending::failure;
  outcome_.error = why;
}

}  // namespace fovea::load
