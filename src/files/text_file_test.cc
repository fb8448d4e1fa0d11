#include "files/text_file.h"

#include <gtest/gtest.h>

#include "../tests/support/temp_dir.h"
#include "fovea/result.h"

namespace fovea {
namespace {

TEST(TextFile, IsReadUpToItsLimit) {
  test::TempDir dir;
  const std::string path = dir.write("text", std::string("a\0b\n", 4));
  const auto text = read_text_file(path, 4);
  ASSERT_TRUE(text.ok()) << text.error().message;
  EXPECT_EQ(*text, std::string("a\0b\n", 4));
  const auto longer = read_text_file(path, 3);
  ASSERT_FALSE(longer.ok());
  EXPECT_EQ(longer.error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(longer.error().message, path + ": 4 bytes; at most 3 are read from such a file");
}

TEST(TextFile, MayBeEmpty) {
  test::TempDir dir;
  const auto text = read_text_file(dir.write("empty", ""), 0);
  ASSERT_TRUE(text.ok()) << text.error().message;
  EXPECT_EQ(*text, "");
}

TEST(TextFile, MustBeThereAndBeAFile) {
  test::TempDir dir;
  const auto missing = read_text_file(dir.path() + "/none", 100);
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ErrorCode::not_found);
  EXPECT_EQ(missing.error().message, dir.path() + "/none: No such file or directory");
  const auto folder = read_text_file(dir.path(), 100);
  ASSERT_FALSE(folder.ok());
  EXPECT_EQ(folder.error().code, ErrorCode::io);
  EXPECT_EQ(folder.error().message, dir.path() + ": not a regular file");
}

}  // namespace
}  // namespace fovea
