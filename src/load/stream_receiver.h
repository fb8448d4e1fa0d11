#pragma once
// Measures one request from its streamed response.
#include "load/api.h"
#include "load/client.h"
#include "load/outcome.h"
#include "load/sse_parser.h"

namespace fovea::load {

class StreamReceiver final : public Receiver {
 public:
  StreamReceiver(Outcome& outcome, bool keep_text) : outcome_(outcome), keep_text_(keep_text) {}

  void on_start(double now) override;
  Status on_head(const ResponseHead& head, double now) override;
  Status on_body(std::string_view bytes, double now) override;
  void on_end(double now) override;
  void on_failure(const std::string& why, double now) override;
  /// The HTTP status; 0 before the response.
  int status() const { return status_; }

 private:
  static constexpr size_t kMaxErrorBody = 64 << 10;

  Status take_event(std::string_view type, std::string_view data, double now);

  Outcome& outcome_;
  SseParser parser_;
  std::string error_body_;
  int64_t events_ = 0;  // events with tokens
  int status_ = 0;
  double last_ = 0;
  bool keep_text_, done_ = false, finished_ = false, counted_ = false;
};

}  // namespace fovea::load
