#include "text/json_value.h"
#include "fovea/result.h"

#include <gtest/gtest.h>

namespace fovea::text {
namespace {

TEST(Json, KeepsOrderAndTypes) {
  auto json =
      parse_json(R"({"b": 1, "a": [true, null, 1.5, "x"], "b": 2, "big": 18446744073709551615})", "t");
  ASSERT_TRUE(json) << json.error().message;
  const Json::Object& members = *json->object();
  EXPECT_EQ(members[0].first, "b");
  EXPECT_EQ(members[1].first, "a");
  EXPECT_EQ(*json->find("b")->integer(), 2) << "the last of equal keys counts";
  EXPECT_EQ(*json->find("big")->real(), 18446744073709551615.0);
  EXPECT_EQ(json->find("big")->large_integer()->digits, "18446744073709551615");
  EXPECT_EQ(parse_json("-9223372036854775809", "t")->large_integer()->digits, "-9223372036854775809");
  EXPECT_EQ(parse_json("1e30", "t")->large_integer(), nullptr);
  const Json::Array& list = *json->find("a")->array();
  EXPECT_TRUE(*list[0].boolean());
  EXPECT_TRUE(list[1].is_null());
  EXPECT_EQ(*list[2].real(), 1.5);
  EXPECT_EQ(*list[3].string(), "x");
  EXPECT_EQ(json->find("none"), nullptr);
}

TEST(Json, ErrorsSayWhereAndWhat) {
  EXPECT_EQ(parse_json("{\"a\": }", "file.json").error().message, "file.json: not valid JSON at byte 7");
  EXPECT_FALSE(parse_json("", "f"));
  EXPECT_FALSE(parse_json("\"\xff\"", "f"));
  EXPECT_FALSE(parse_json("1 2", "f"));
}

TEST(Json, NestingIsBounded) {
  const auto nested = [](size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_TRUE(parse_json(nested(100), "f"));
  EXPECT_EQ(parse_json(nested(101), "f").error().message, "f: nested deeper than 100 levels");
  EXPECT_FALSE(parse_json(std::string(1'000'000, '['), "f"));
}

TEST(Json, FieldsCheckTheirType) {
  auto json = parse_json(R"({"flag": "yes", "text": 3, "null": null})", "f");
  ASSERT_TRUE(json);
  EXPECT_EQ(bool_field(*json, "f", "flag", false).error().message,
            "f.flag is \"yes\"; true or false is needed");
  EXPECT_EQ(string_field(*json, "f", "text", "").error().message, "f.text is 3; a string is needed");
  EXPECT_TRUE(*bool_field(*json, "f", "null", true));
  EXPECT_EQ(*string_field(*json, "f", "absent", "d"), "d");
}

TEST(Json, DescribesLongTextsShortly) {
  EXPECT_LT(Json(std::string(1000, 'x')).describe().size(), 70u);
  EXPECT_EQ(Json(std::string("a\nb")).describe(), "\"a?b\"");
}

}  // namespace
}  // namespace fovea::text
