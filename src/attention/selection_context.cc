#include "attention/selection_context.h"

#include <algorithm>
#include <cctype>

#include "base/same_name.h"
#include "fovea/attention_config.h"

namespace fovea {

std::string setting(const AttentionConfig& config, std::string_view key) {
  const auto at = config.sources.find(key);
  return at == config.sources.end() ? "AttentionConfig::" + std::string(key) : at->second;
}

std::string join(const std::vector<std::string>& items, std::string_view separator) {
  std::string out;
  for (const std::string& item : items) {
    if (!out.empty()) out += separator;
    out += item;
  }
  return out;
}

std::string squash(std::string_view name) {
  std::string out;
  for (unsigned char c : name)
    if (std::isalnum(c) != 0) out += static_cast<char>(std::tolower(c));
  return out;
}

bool is_auto(std::string_view name) {
  return name.empty() || same_name(name, "auto");
}

}  // namespace fovea
