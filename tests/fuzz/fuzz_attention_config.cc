// Any text as the arguments of a command, one per line: unrecognised arguments are left to the command,
// settings are within the ranges that select() relies on, and a refusal is one line.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "compat/launch/attention_keys.h"
#include "fovea/result.h"

namespace {

void check(bool condition) {
  if (!condition) std::abort();
}

void check_message(const std::string& message) {
  check(!message.empty() && message.find('\n') == std::string::npos && message.size() < 20000);
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    lines.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

std::optional<fovea::OwnFlag> own(std::string_view name) {
  if (name == "--model" || name == "-m") return fovea::OwnFlag{"--model", true};
  if (name == "--batch-invariant") return fovea::OwnFlag{"--batch-invariant", false};
  return std::nullopt;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto arguments = lines_of({reinterpret_cast<const char*>(data), size});
  const auto line = fovea::read_launch_line(arguments, own);
  if (!line) {
    check_message(line.error().message);
    return 0;
  }
  check(line->arguments.size() <= arguments.size());
  fovea::AttentionConfig config;
  std::vector<fovea::FlagNote> notes = line->notes;
  if (const auto status = fovea::apply_attention_arguments(line->attention, config, notes); !status) {
    check_message(status.error().message);
    return 0;
  }
  check(!config.page_size || *config.page_size > 0);
  check(!config.flash_attn_version || (*config.flash_attn_version >= 2 && *config.flash_attn_version <= 4));
  for (const auto& [kind, backend] : config.backend_per_kind)
    check(kind < fovea::LayerKind::count_ && !backend.empty());
  if (const auto status = fovea::check_refused(notes); !status) check_message(status.error().message);
  return 0;
}
