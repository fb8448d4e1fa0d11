#pragma once
// One answer for a person, as it comes.
#include "cli/terminal.h"

namespace fovea::cli {

struct StreamedAnswer {
  std::string text;
  RequestOutput last;
  double first_token_seconds = 0;  ///< from the request to the first output with tokens
  int first_tokens = 0;            ///< of that output
  double last_token_seconds = 0;   ///< to the last one
};

/// Runs a request and writes its text to standard output; Ctrl-C cancels it. The request's own error is an
/// error.
Result<StreamedAnswer> stream_answer(Engine& engine, GenerateRequest request, InterruptFlag& interrupt);

}  // namespace fovea::cli
