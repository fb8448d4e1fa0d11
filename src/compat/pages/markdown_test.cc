#include "compat/pages/markdown.h"

#include <gtest/gtest.h>

namespace fovea::docs {
namespace {

TEST(Markdown, TableHasATitleARuleAndRows) {
  Table table({"A", ""});
  EXPECT_TRUE(table.empty());
  table.row({"x", ""});
  table.row({"a|b", code("c|d")});
  EXPECT_FALSE(table.empty());
  EXPECT_EQ(table.text(), "| A | |\n|---|---|\n| x | |\n| a\\|b | `c\\|d` |");
}

TEST(Markdown, JoinsAndMarksCode) {
  EXPECT_EQ(join({"a", "b", "c"}, "; "), "a; b; c");
  EXPECT_EQ(join({}), "");
  EXPECT_EQ(code(""), "");
  EXPECT_EQ(code("x"), "`x`");
}

}  // namespace
}  // namespace fovea::docs
