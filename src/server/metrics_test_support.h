#pragma once
// A strict parser of the Prometheus text format, for tests.
#include <gtest/gtest.h>

#include <cctype>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <string_view>

namespace fovea::server::test {

inline bool is_metric_name(std::string_view name) {
  if (name.empty() || (std::isdigit(static_cast<unsigned char>(name[0])) != 0)) return false;
  for (const char c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '_' && c != ':') return false;
  return true;
}

/// The labels between braces: {name="value",...} with the three escapes. False = malformed.
inline bool labels_are_well_formed(std::string_view text) {
  std::set<std::string_view> seen;
  while (!text.empty()) {
    const size_t equals = text.find("=\"");
    if (equals == text.npos || !is_metric_name(text.substr(0, equals))) return false;
    if (!seen.insert(text.substr(0, equals)).second) return false;
    size_t at = equals + 2;
    for (; at < text.size() && text[at] != '"'; ++at)
      if (text[at] == '\\' &&
          (++at == text.size() || std::string_view("\\\"n").find(text[at]) == std::string_view::npos))
        return false;
    if (at >= text.size()) return false;
    text.remove_prefix(at + 1);
    if (!text.empty() && text[0] != ',') return false;
    if (!text.empty()) text.remove_prefix(1);
  }
  return true;
}

/// Each series, "name{labels}" as written, and its value. Fails the test if the text is malformed: samples
/// outside their metric, duplicate metrics or series, suffixes that contradict the type.
inline std::map<std::string, double> parse_metrics(const std::string& text) {
  std::map<std::string, double> series;
  std::set<std::string> metrics;
  std::string name, type;
  EXPECT_TRUE(text.empty() || text.back() == '\n');
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    if (line.starts_with("# HELP ")) {
      name = line.substr(7, line.find(' ', 7) - 7);
      EXPECT_TRUE(is_metric_name(name)) << line;
      EXPECT_TRUE(metrics.insert(name).second) << "twice: " << line;
      type.clear();
      continue;
    }
    if (line.starts_with("# TYPE ")) {
      EXPECT_TRUE(line.starts_with("# TYPE " + name + " ")) << line;
      type = line.substr(8 + name.size());
      EXPECT_EQ(type == "counter", name.ends_with("_total") && type != "histogram") << line;
      continue;
    }
    const size_t open = line.find('{'), close = line.rfind("} ");
    if (open == line.npos || close == line.npos) {
      ADD_FAILURE() << line;
      continue;
    }
    std::string suffix = line.substr(0, open);
    EXPECT_TRUE(suffix.starts_with(name)) << line;
    suffix.erase(0, name.size());
    if (type == "histogram")
      EXPECT_TRUE(suffix == "_bucket" || suffix == "_sum" || suffix == "_count") << line;
    else
      EXPECT_TRUE(suffix.empty() && (type == "counter" || type == "gauge" ||
                                     (type == "summary" && line.find("quantile=") != line.npos)))
          << line;
    EXPECT_TRUE(labels_are_well_formed(std::string_view(line).substr(open + 1, close - open - 1))) << line;
    char* parsed = nullptr;
    const std::string digits = line.substr(close + 2);
    const double value = std::strtod(digits.c_str(), &parsed);
    EXPECT_EQ(*parsed, '\0') << line;
    EXPECT_TRUE(std::isfinite(value)) << line;
    EXPECT_TRUE(series.emplace(line.substr(0, close + 1), value).second) << "twice: " << line;
  }
  return series;
}

}  // namespace fovea::server::test
