#pragma once
// Leveled log lines on standard error: FOVEA_LOG(info) << "text".
#include <optional>
#include <sstream>
#include <string_view>

namespace fovea {

enum class LogLevel { debug, info, warning, error, off };

void set_log_level(LogLevel level);
LogLevel log_level();
std::optional<LogLevel> parse_log_level(std::string_view name);

/// Collects one line and writes it, whole, when destroyed.
class LogLine {
 public:
  explicit LogLine(LogLevel level) : level_(level) {}
  ~LogLine();
  std::ostream& stream() { return text_; }

 private:
  LogLevel level_;
  std::ostringstream text_;
};

}  // namespace fovea

#define FOVEA_LOG(level)                                 \
  if (::fovea::LogLevel::level < ::fovea::log_level()) { \
  } else                                                 \
    ::fovea::LogLine(::fovea::LogLevel::level).stream()
