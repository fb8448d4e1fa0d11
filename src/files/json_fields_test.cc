#include "files/json_fields.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace fovea {
namespace {

std::string parse_error(const std::string& text) {
  const auto root = parse_json_object(text, "c.json");
  return root.ok() ? "" : root.error().message;
}

TEST(JsonObject, IsParsedOrSaysWhatIsWrong) {
  EXPECT_EQ(parse_error(R"({"a": 1})"), "");
  EXPECT_EQ(parse_error("[1]"), "c.json: must hold a JSON object, {...}");
  EXPECT_EQ(parse_error("{]"), "c.json: not valid JSON at byte 2; copy or download it again");
  EXPECT_EQ(parse_json_object("{]", "--flag").error().message,
            "--flag: not valid JSON at byte 2; correct it");
  EXPECT_EQ(parse_error(R"({"a": 1e999})"), "c.json: holds a number out of range");
  EXPECT_EQ(parse_error(std::string(101, '[')), "c.json: nested deeper than 100 levels");
}

class FieldsTest : public testing::Test {
 protected:
  nlohmann::json object_ = {
      {"size", 7}, {"none", nullptr}, {"ids", {1, 2}}, {"name", "x"}, {"in", {{"p", 2.5}}}};
  Status status_;
  Fields fields_{object_, "c.json", status_};
};

TEST_F(FieldsTest, AreReadOrFallBack) {
  EXPECT_EQ(fields_.integer("size", 7, 7), 7);
  EXPECT_EQ(fields_.small("absent", 0, 9, 3), 3);
  EXPECT_EQ(fields_.small("none", 0, 9, 3), 3);
  EXPECT_TRUE(fields_.has("none"));
  EXPECT_EQ(fields_.find("none"), nullptr);
  EXPECT_EQ(fields_.token_ids("ids"), (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(fields_.token_ids("size"), std::vector<int32_t>{7});
  EXPECT_TRUE(fields_.is("name", "x"));
  EXPECT_EQ(fields_.optional_number("absent", 0, 1), std::nullopt);
  EXPECT_EQ(fields_.nested("in").number("p", 0, 3), 2.5);
  EXPECT_TRUE(fields_.ok());
}

TEST_F(FieldsTest, TheFirstErrorIsKept) {
  EXPECT_EQ(fields_.small("size", 8, 9), 8);
  EXPECT_FALSE(fields_.ok());
  EXPECT_EQ(fields_.string("size", "fallback"), "fallback");
  EXPECT_EQ(status_.error().message, "c.json: size is 7; an integer from 8 to 9 is needed");
}

TEST_F(FieldsTest, ANestedErrorNamesItsObject) {
  fields_.nested("in").boolean("p", false);
  ASSERT_FALSE(fields_.ok());
  EXPECT_EQ(status_.error().message, "c.json: in: p is 2.5; true or false is needed");
}

}  // namespace
}  // namespace fovea
