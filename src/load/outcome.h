#pragma once
// The measured result of one request.
#include <cstdint>
#include <string>
#include <vector>

namespace fovea::load {

enum class Ending { open, success, failure };  ///< open: not sent, or cut off by the end of the run

struct Outcome {
  Ending ending = Ending::open;
  int64_t prompt_tokens = 0;  ///< as reported by the server, else as intended
  int64_t output_tokens = 0;  ///< as reported by the server, else the number of events with tokens
  double start = 0;           ///< seconds since the run began
  double ttft = 0;            ///< seconds from start to the first event with a token
  double latency = 0;         ///< seconds from start to the last one
  std::vector<double> itl;    ///< seconds between such events
  std::string text, error;
  bool sent = false;
};

}  // namespace fovea::load
