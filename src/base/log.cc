#include "base/log.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <ctime>

#include "base/same_name.h"

namespace fovea {
namespace {

std::atomic<LogLevel> g_level{LogLevel::warning};
std::atomic<LogFormat> g_format{LogFormat::text};
constexpr std::string_view kNames[] = {"debug", "info", "warning", "error", "off"};

/// Length of the UTF-8 character at the start of `text`; 0 if it is ill-formed.
size_t character_bytes(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const size_t size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4) return 0;
  for (size_t i = 1; i < size; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  const bool overlong = (first == 0xe0 && byte(1) < 0xa0) || (first == 0xf0 && byte(1) < 0x90);
  const bool beyond = (first == 0xed && byte(1) >= 0xa0) || (first == 0xf4 && byte(1) >= 0x90);
  return overlong || beyond ? 0 : size;
}

/// Appends `text` with JSON escapes, so that it contains no terminal control sequences; quotes and
/// backslashes are escaped too if `quoted`.
void append_escaped(std::string& out, std::string_view text, bool quoted) {
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = character_bytes(text.substr(at));
    if (bytes == 0) {
      out += "\\ufffd";
      ++at;
      continue;
    }
    const std::string_view character = text.substr(at, bytes);
    at += bytes;
    const auto last = static_cast<unsigned char>(character.back());
    const bool c1 = bytes == 2 && character[0] == '\xc2' && last < 0xa0;
    if (c1 || (bytes == 1 && (last < 0x20 || last == 0x7f))) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", last);
      out += escape;
    } else {
      if (quoted && (last == '"' || last == '\\') && bytes == 1) out += '\\';
      out += character;
    }
  }
}

void append_quoted(std::string& out, std::string_view text) {
  out += '"';
  append_escaped(out, text, true);
  out += '"';
}

void append_number(std::string& out, double value) {
  char text[32];
  const auto [end, error] = std::to_chars(text, text + sizeof text, value);
  out += std::isfinite(value) ? std::string_view(text, end) : std::string_view("null");
}

void append_value(std::string& out, const LogField& field, LogFormat format) {
  if (const auto* number = std::get_if<int64_t>(&field.value)) {
    out += std::to_string(*number);
  } else if (const auto* real = std::get_if<double>(&field.value)) {
    append_number(out, *real);
  } else {
    const auto text = std::get<std::string_view>(field.value);
    const bool plain = !text.empty() && std::ranges::all_of(text, [](char c) {
      return c > ' ' && c < '\x7f' && c != '"' && c != '\\' && c != '=';
    });
    if (plain && format == LogFormat::text)
      out += text;
    else
      append_quoted(out, text);
  }
}

/// RFC 3339, in UTC.
std::string to_text(LogTime time) {
  const auto day_second = std::chrono::floor<std::chrono::seconds>(time);
  const std::time_t seconds = day_second.time_since_epoch().count();
  std::tm parts = {};
  gmtime_r(&seconds, &parts);
  char text[32];
  const size_t size = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
  std::snprintf(text + size, sizeof text - size, ".%03dZ", static_cast<int>((time - day_second).count()));
  return text;
}

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

void set_log_format(LogFormat format) {
  g_format.store(format, std::memory_order_relaxed);
}
LogFormat log_format() {
  return g_format.load(std::memory_order_relaxed);
}

std::optional<LogFormat> parse_log_format(std::string_view name) {
  if (same_name(name, "text")) return LogFormat::text;
  if (same_name(name, "json")) return LogFormat::json;
  return std::nullopt;
}

std::string format_log_line(LogFormat format, LogTime time, LogLevel level, std::string_view message,
                            std::span<const LogField> fields) {
  const std::string_view name = kNames[static_cast<int>(level)];
  std::string line;
  if (format == LogFormat::text) {
    line = to_text(time) + " [" + std::string(name) + "] ";
    append_escaped(line, message, false);
    for (const LogField& field : fields) {
      line.append(" ").append(field.name).append("=");
      append_value(line, field, format);
    }
    return line + "\n";
  }
  line = R"({"time":")" + to_text(time) + R"(","level":")" + std::string(name) + R"(","message":)";
  append_quoted(line, message);
  for (const LogField& field : fields) {
    line.append(",\"").append(field.name).append("\":");
    append_value(line, field, format);
  }
  return line + "}\n";
}

void write_log_line(LogLevel level, std::string_view message, std::span<const LogField> fields) {
  const auto now = std::chrono::floor<std::chrono::milliseconds>(std::chrono::system_clock::now());
  const std::string line = format_log_line(log_format(), now, level, message, fields);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace fovea
