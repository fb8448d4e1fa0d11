#include "base/printable.h"

#include <gtest/gtest.h>

namespace fovea {
namespace {

TEST(Printable, IsOneLine) {
  EXPECT_EQ(printable("a\nb\tc\x7f"), "a?b?c?");
  EXPECT_EQ(printable(std::string_view("\0", 1)), "?");
  EXPECT_EQ(printable("größe"), "größe");
}

TEST(Printable, CutsBetweenCharacters) {
  EXPECT_EQ(printable("abcdef", 6), "abcdef");
  EXPECT_EQ(printable("abcdef", 3), "abc...");
  EXPECT_EQ(printable("ab€d", 4), "ab...");  // the sign has three bytes
}

}  // namespace
}  // namespace fovea
