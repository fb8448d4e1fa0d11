#pragma once
// Leveled, timestamped log lines on standard error: FOVEA_LOG(info) << "text".
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <variant>

namespace fovea {

enum class LogLevel { debug, info, warning, error, off };

void set_log_level(LogLevel level);
LogLevel log_level();
std::optional<LogLevel> parse_log_level(std::string_view name);

enum class LogFormat {
  text,  ///< 2026-01-31T23:59:59.123Z [info] text name=value ...
  json,  ///< {"time":"2026-01-31T23:59:59.123Z","level":"info","message":"text","name":value,...}
};

void set_log_format(LogFormat format);
LogFormat log_format();
std::optional<LogFormat> parse_log_format(std::string_view name);

/// A named value of a log line.
struct LogField {
  std::string_view name;
  std::variant<std::string_view, int64_t, double> value;
};

using LogTime = std::chrono::sys_time<std::chrono::milliseconds>;

/// Always a single line: control characters and ill-formed UTF-8 are escaped.
std::string format_log_line(LogFormat format, LogTime time, LogLevel level, std::string_view message,
                            std::span<const LogField> fields);

/// Writes the line with one fwrite, regardless of the log level.
void write_log_line(LogLevel level, std::string_view message, std::span<const LogField> fields = {});

/// Collects one line and writes it when destroyed.
class LogLine {
 public:
  explicit LogLine(LogLevel level) : level_(level) {}
  ~LogLine() { write_log_line(level_, text_.str()); }
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
