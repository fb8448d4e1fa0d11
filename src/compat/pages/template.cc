#include "compat/pages/template.h"

#include <algorithm>
#include <set>
#include <vector>

#include "base/edit_distance.h"
#include "fovea/result.h"

namespace fovea::docs {
namespace {

Error unknown_place(const std::string& where, std::string_view name, const Values& values) {
  std::vector<std::string_view> known;
  for (const auto& [key, value] : values)
    known.push_back(key);
  const std::string_view near = nearest_name(name, known);
  return invalid(where + ": {{" + std::string(name) + "}} has no value" +
                 (near.empty() ? "" : "; did you mean {{" + std::string(near) + "}}?"));
}

}  // namespace

Result<std::string> fill_template(std::string_view file, std::string_view text, const Values& values) {
  std::string out;
  std::set<std::string_view> used;
  size_t at = 0;
  for (size_t open; (open = text.find("{{", at)) != std::string_view::npos;) {
    const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(open), '\n');
    const std::string where = std::string(file) + ":" + std::to_string(line);
    const size_t close = text.find("}}", open);
    const size_t end_of_line = text.find('\n', open);
    if (close == std::string_view::npos || close > end_of_line)
      return invalid(where + ": {{ is not closed by }} on its line");
    const std::string_view name = text.substr(open + 2, close - open - 2);
    const auto value = values.find(name);
    if (value == values.end()) return unknown_place(where, name, values);
    used.insert(value->first);
    out.append(text.substr(at, open - at)).append(value->second);
    at = close + 2;
  }
  out += text.substr(at);
  for (const auto& [key, value] : values)
    if (!used.contains(key))
      return invalid(std::string(file) + ": it has no place {{" + key +
                     "}}; add one, or drop the value from the page");
  return out;
}

}  // namespace fovea::docs
