// An arbitrary line of an input file: a row, or an error in one line of printable characters.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "cli/json_io.h"

namespace {

void check_message(const std::string& message) {
  const auto printable = [](unsigned char c) { return c >= 0x20 && c < 0x7f; };
  if (message.empty() || !std::all_of(message.begin(), message.end(), printable)) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using fovea::cli::RowKind;
  const std::string line(reinterpret_cast<const char*>(data), size);
  for (const RowKind kind : {RowKind::generate, RowKind::score}) {
    for (const bool ignore_unknown : {false, true}) {
      fovea::cli::InputRow row;
      const auto read = fovea::cli::parse_row(line, "line 1", {kind, ignore_unknown}, row);
      const int prompts =
          row.text.has_value() + row.ids.has_value() + row.chat.has_value() + row.audio.has_value();
      if (!read)
        check_message(read.error().message);
      else if (prompts != 1)
        std::abort();
      for (const std::string& name : row.ignored)
        check_message(name);
    }
  }
  if (const auto bias = fovea::cli::parse_logit_bias(line); !bias) check_message(bias.error().message);
  return 0;
}
