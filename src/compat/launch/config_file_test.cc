#include "compat/launch/config_file.h"
#include "fovea/result.h"

#include <gmock/gmock.h>
#include <utility>

namespace fovea {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

bool is_command(const std::vector<std::string>& path) {
  return path == std::vector<std::string>{"serve"} || path == std::vector<std::string>{"bench"} ||
         path == std::vector<std::string>{"bench", "serve"};
}

std::vector<ConfigEntry> parse(std::string_view text) {
  auto entries = parse_config_file(text, "f.toml", is_command);
  EXPECT_TRUE(entries) << (entries ? "" : entries.error().message);
  return entries ? *std::move(entries) : std::vector<ConfigEntry>();
}

std::string error(std::string_view text) {
  const auto entries = parse_config_file(text, "f.toml", is_command);
  return entries ? "" : entries.error().message;
}

TEST(ConfigFile, EntriesInTheOrderOfTheLines) {
  const auto entries = parse(R"(log-level = "info"
# a comment
[serve]
port = 8080
memory_share = 0.25
no-playground = true
api-key = ["a", 7]

[bench.serve]
request-rate = inf
)");
  ASSERT_EQ(entries.size(), 6U);
  EXPECT_THAT(entries[0].section, ElementsAre());
  EXPECT_EQ(entries[0].key, "log-level");
  EXPECT_EQ(std::get<std::string>(entries[0].value), "info");
  EXPECT_THAT(entries[1].section, ElementsAre("serve"));
  EXPECT_EQ(entries[1].line, 4);
  EXPECT_EQ(std::get<std::string>(entries[1].value), "8080");
  EXPECT_EQ(entries[2].key, "memory-share");
  EXPECT_EQ(std::get<std::string>(entries[2].value), "0.25");
  EXPECT_TRUE(std::get<bool>(entries[3].value));
  EXPECT_THAT(std::get<std::vector<std::string>>(entries[4].value), ElementsAre("a", "7"));
  EXPECT_THAT(entries[5].section, ElementsAre("bench", "serve"));
  EXPECT_EQ(std::get<std::string>(entries[5].value), "inf");
}

TEST(ConfigFile, ATableThatIsNoSectionIsJson) {
  const auto entries =
      parse("[serve]\nattention-config = {backend = \"fa\\\"3\", page_size = 16, on = true}\n");
  ASSERT_EQ(entries.size(), 1U);
  const auto json = std::get<std::string>(entries[0].value);
  EXPECT_THAT(json,
              AllOf(StartsWith("{"), HasSubstr(R"("backend")"), HasSubstr(R"("fa\"3")"), HasSubstr("16")));
}

TEST(ConfigFile, ErrorsNameTheLine) {
  EXPECT_THAT(error("[serve]\nport 8080\n"), AllOf(StartsWith("f.toml:2: "), HasSubstr("KEY = VALUE")));
  EXPECT_THAT(error("\n\nport = 1\nport = 2\n"), StartsWith("f.toml:4: "));
  EXPECT_THAT(error("[serve]\n\nwhen = 2026-01-31\n"),
              AllOf(StartsWith("f.toml:3: "), HasSubstr("when"), HasSubstr("give a string")));
  EXPECT_THAT(error("a = [[1], [2]]\n"), StartsWith("f.toml:1: "));
  EXPECT_THAT(error("a = \"\xff\"\n"), StartsWith("f.toml:1: "));
  EXPECT_THAT(error(std::string(100000, '[')), StartsWith("f.toml:1: "));
  EXPECT_EQ(error(""), "");
}

}  // namespace
}  // namespace fovea
