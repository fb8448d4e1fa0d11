// Any bytes as a server's streamed answer, split into pieces in two ways: both give the same result, and a
// refusal is one short line. The first byte sets the length of the pieces.
#include <algorithm>
#include <cstdint>
#include <string>

#include "base/check.h"
#include "fovea/result.h"
#include "load/stream_receiver.h"

namespace {

using namespace fovea::load;

struct Sink final : ResponseParser::Sink {
  explicit Sink(StreamReceiver& to) : receiver(to) {}
  fovea::Status on_head(const ResponseHead& head) override { return receiver.on_head(head, 1); }
  fovea::Status on_body(std::string_view bytes) override { return receiver.on_body(bytes, 2); }
  StreamReceiver& receiver;
};

Outcome read(std::string_view bytes, size_t piece) {
  Outcome outcome;
  StreamReceiver receiver(outcome, true);
  receiver.on_start(0);
  Sink sink(receiver);
  ResponseParser parser;
  fovea::Status status;
  for (size_t at = 0; at < bytes.size() && status; at += piece)
    status = parser.feed(std::string(bytes.substr(at, piece)), sink);
  if (status) status = parser.finish();
  if (status)
    receiver.on_end(3);
  else
    receiver.on_failure(status.error().message, 3);
  return outcome;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Outcome whole = read(bytes, std::max<size_t>(bytes.size(), 1));
  const Outcome cut = read(bytes, size_t{1} + data[0] % 32);
  FOVEA_CHECK(whole.ending == cut.ending && whole.ending != Ending::open);
  FOVEA_CHECK(whole.error == cut.error && whole.text == cut.text && whole.itl.size() == cut.itl.size());
  FOVEA_CHECK(whole.error.find('\n') == std::string::npos && whole.error.size() < 1000);
  if (whole.ending == Ending::success) FOVEA_CHECK(whole.error.empty() && whole.ttft > 0);
  return 0;
}
