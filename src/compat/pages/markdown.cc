#include "compat/pages/markdown.h"

#include "base/check.h"

namespace fovea::docs {
namespace {

std::string line(const std::vector<std::string>& cells) {
  std::string out = "|";
  for (const std::string& cell : cells) {
    out += ' ';
    for (const char c : cell) {
      FOVEA_CHECK(c != '\n');
      if (c == '|') out += '\\';
      out += c;
    }
    out += cell.empty() ? "|" : " |";
  }
  return out;
}

}  // namespace

std::string code(std::string_view text) {
  return text.empty() ? "" : "`" + std::string(text) + "`";
}

std::string join(const std::vector<std::string>& items, std::string_view separator) {
  std::string out;
  for (const std::string& item : items) {
    if (&item != items.data()) out += separator;
    out += item;
  }
  return out;
}

void Table::row(std::vector<std::string> cells) {
  FOVEA_CHECK(cells.size() == titles_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::text() const {
  std::string out = line(titles_) + "\n|";
  for (size_t i = 0; i < titles_.size(); ++i)
    out += "---|";
  for (const auto& row : rows_)
    out += "\n" + line(row);
  return out;
}

}  // namespace fovea::docs
