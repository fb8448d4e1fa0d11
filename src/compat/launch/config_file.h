#pragma once
// A TOML configuration file: keys are flags without their leading dashes, tables are commands.
#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "fovea/result_fwd.h"

namespace fovea {

/// One key. Numbers are text in the form of a flag's value; a table that is not a section is JSON.
struct ConfigEntry {
  std::vector<std::string> section;  ///< {} at the top, {"bench", "serve"} below [bench.serve]
  std::string key;                   ///< with dashes, even if the file has vLLM's underscores
  int line = 0;
  bool is_table = false;
  std::variant<bool, std::string, std::vector<std::string>> value;
};

/// Whether `path` names a section; any other table is the value of a key.
using IsSection = std::function<bool(const std::vector<std::string>& path)>;

/// All entries in line order. An error begins with "FILE:LINE: "; `file` is the displayed name.
Result<std::vector<ConfigEntry>> parse_config_file(std::string_view text, const std::string& file,
                                                   const IsSection& is_section);

}  // namespace fovea
