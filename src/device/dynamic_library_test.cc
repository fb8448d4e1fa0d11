#include "device/dynamic_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fovea {
namespace {

using ::testing::HasSubstr;

TEST(DynamicLibrary, TakesTheFirstNameThatIsThere) {
  auto library = DynamicLibrary::open("the C library", {"libfovea-none.so.7", "libc.so.6"}, "install it");
  ASSERT_TRUE(library.ok()) << library.error().message;
  EXPECT_EQ(library->name(), "libc.so.6");
  int (*absolute)(int) = nullptr;
  ASSERT_TRUE(library->find("abs", absolute).ok());
  EXPECT_EQ(absolute(-3), 3);
  DynamicLibrary moved = std::move(*library);
  EXPECT_TRUE(moved.find("abs", absolute).ok());
}

TEST(DynamicLibrary, SaysWhatIsMissing) {
  const auto library =
      DynamicLibrary::open("libfovea-none", {"libfovea-none.so.7", "libfovea-none.so"}, "install it");
  ASSERT_FALSE(library.ok());
  EXPECT_EQ(library.error().code, ErrorCode::not_found);
  EXPECT_THAT(library.error().message, HasSubstr("libfovea-none.so.7"));
  EXPECT_THAT(library.error().message, HasSubstr("install it"));
  auto c = DynamicLibrary::open("the C library", {"libc.so.6"}, "install it");
  ASSERT_TRUE(c.ok());
  void (*function)() = nullptr;
  const Status status = c->find("fovea_no_such_function", function);
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message, HasSubstr("fovea_no_such_function"));
}

}  // namespace
}  // namespace fovea
