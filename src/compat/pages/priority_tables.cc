#include "compat/pages/priority_tables.h"

#include <algorithm>
#include <utility>

#include "attention/priorities.h"
#include "compat/pages/markdown.h"

namespace fovea::docs {

std::string priority_table(bool mla) {
  std::vector<std::string> titles = {"Device"};
  size_t longest = 0;
  for (const PriorityList& list : priority_lists())
    if (list.mla == mla) longest = std::max(longest, list.names.size());
  for (size_t i = 1; i <= longest; ++i)
    titles.push_back(std::to_string(i));
  Table table(titles);
  for (const PriorityList& list : priority_lists()) {
    if (list.mla != mla) continue;
    std::vector<std::string> cells = {std::string(list.title)};
    for (const std::string_view name : list.names)
      cells.push_back(code(name));
    cells.resize(titles.size());
    table.row(std::move(cells));
  }
  return table.text();
}

}  // namespace fovea::docs
