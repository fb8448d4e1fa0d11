#pragma once
// Tables in GitHub's Markdown.
#include <string>
#include <string_view>
#include <vector>

namespace fovea::docs {

/// "`text`", or "" for an empty one.
std::string code(std::string_view text);

/// The items with `separator` between them.
std::string join(const std::vector<std::string>& items, std::string_view separator = ", ");

/// A table; cells may hold inline Markdown, pipes in them are escaped.
class Table {
 public:
  explicit Table(std::vector<std::string> titles) : titles_(std::move(titles)) {}
  /// One cell per title.
  void row(std::vector<std::string> cells);
  bool empty() const { return rows_.empty(); }
  /// Without a newline after the last row.
  std::string text() const;

 private:
  std::vector<std::string> titles_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace fovea::docs
