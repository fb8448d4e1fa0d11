#include "server/metrics_text.h"

#include <array>
#include <charconv>
#include <cmath>

#include "base/check.h"
#include "text/utf8.h"

namespace fovea::server {
namespace {

void append_escaped(std::string_view value, std::string& out) {
  for (const char c : text::to_valid_utf8(value)) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '\\' || c == '"') out += '\\';
    out += c;
  }
}

void append_label(std::string_view key, std::string_view value, std::string& out) {
  out.append(key).append("=\"");
  append_escaped(value, out);
  out += '"';
}

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  std::array<char, 32> digits;
  return {digits.data(), std::to_chars(digits.begin(), digits.end(), value).ptr};
}

/// Formats like Prometheus' own clients: other programs compare the label `le` as text.
std::string bound(double value) {
  std::string text = number(value);
  if (text.find_first_not_of("0123456789") == std::string::npos) text += ".0";
  return text;
}

}  // namespace

MetricsText::MetricsText(std::string_view model_name) {
  append_label("model_name", model_name, model_label_);
}

void MetricsText::metric(std::string_view name, std::string_view type, std::string_view help) {
  name_ = name;
  text_.append("# HELP ").append(name).append(" ").append(help);
  text_.append("\n# TYPE ").append(name).append(" ").append(type).append("\n");
}

void MetricsText::line(std::string_view suffix, Labels labels, double value) {
  text_.append(name_).append(suffix).append("{").append(model_label_);
  for (const auto& [key, label] : labels) {
    text_ += ',';
    append_label(key, label, text_);
  }
  text_.append("} ").append(number(value)).append("\n");
}

void MetricsText::sample(double value, Labels labels) {
  line("", labels, value);
}

void MetricsText::histogram(std::span<const double> bounds, std::span<const int64_t> counts, double sum) {
  FOVEA_CHECK(counts.size() == bounds.size() + 1);
  int64_t total = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    total += counts[i];
    const std::string end = i < bounds.size() ? bound(bounds[i]) : "+Inf";
    line("_bucket", {{"le", end}}, static_cast<double>(total));
  }
  line("_sum", {}, sum);
  line("_count", {}, static_cast<double>(total));
}

void MetricsText::counter(std::string_view name, std::string_view help, double value) {
  metric(name, "counter", help);
  sample(value);
}

void MetricsText::gauge(std::string_view name, std::string_view help, double value) {
  metric(name, "gauge", help);
  sample(value);
}

}  // namespace fovea::server
