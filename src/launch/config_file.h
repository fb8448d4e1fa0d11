#pragma once
// A configuration file, in TOML: keys are flags without their dashes, tables are commands.
#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "fovea/result.h"

namespace fovea {

/// One key. Numbers are text as a flag would have it, and a table that is no section is JSON.
struct ConfigEntry {
  std::vector<std::string> section;  ///< {} at the top, {"bench", "serve"} below [bench.serve]
  std::string key;                   ///< dashes, also where the file has vLLM's underscores
  int line = 0;
  bool is_table = false;
  std::variant<bool, std::string, std::vector<std::string>> value;
};

/// Whether these names lead to a section; a table of another name is the value of a key.
using IsSection = std::function<bool(const std::vector<std::string>& path)>;

/// Every entry, in the order of the lines. An error begins with "FILE:LINE: "; `file` is its name for people.
Result<std::vector<ConfigEntry>> parse_config_file(std::string_view text, const std::string& file,
                                                   const IsSection& is_section);

}  // namespace fovea
