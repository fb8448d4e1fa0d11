#pragma once
// Streams one answer to the terminal.
#include "cli/terminal.h"

namespace fovea::cli {

struct StreamedAnswer {
  std::string text;
  RequestOutput last;
  double first_token_seconds = 0;  ///< from the request to the first output with tokens
  int first_tokens = 0;            ///< tokens in that output
  double last_token_seconds = 0;   ///< from the request to the last one
};

/// Runs a request and writes its text to standard output; Ctrl-C cancels it. Also returns the request's
/// error.
Result<StreamedAnswer> stream_answer(Engine& engine, GenerateRequest request, InterruptFlag& interrupt);

}  // namespace fovea::cli
