#include "base/log.h"

#include <atomic>
#include <cstdio>
#include <string>

#include "base/same_name.h"

namespace fovea {
namespace {
std::atomic<LogLevel> g_level{LogLevel::warning};
constexpr std::string_view kNames[] = {"debug", "info", "warning", "error", "off"};
}  // namespace

void set_log_level(LogLevel level) {
  g_level.store(level, std::memory_order_relaxed);
}
LogLevel log_level() {
  return g_level.load(std::memory_order_relaxed);
}

std::optional<LogLevel> parse_log_level(std::string_view name) {
  for (int i = 0; i < 5; ++i)
    if (same_name(name, kNames[i])) return static_cast<LogLevel>(i);
  if (same_name(name, "warn")) return LogLevel::warning;
  return std::nullopt;
}

LogLine::~LogLine() {
  std::string line = "[";
  line += kNames[static_cast<int>(level_)];
  line += "] " + text_.str() + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace fovea
