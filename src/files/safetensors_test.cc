#include "files/safetensors.h"

#include <gtest/gtest.h>

#include "../tests/support/safetensors_writer.h"
#include "fovea/result.h"

namespace fovea {
namespace {

using test::raw_safetensors;

Result<std::vector<SafetensorsEntry>> parse(const std::string& file) {
  return parse_safetensors(std::as_bytes(std::span(file)), "m.safetensors");
}

std::string tensor(const std::string& name, const std::string& type, const std::string& shape,
                   const std::string& offsets) {
  return std::string("\"")
             .append(name)
             .append("\":{\"dtype\":\"")
             .append(type)
             .append("\",\"shape\":")
             .append(shape) +
         ",\"data_offsets\":" + offsets + "}";
}

/// A 2-byte U8 tensor "a" with a raw replacement for one part of it.
const std::string kGood = tensor("a", "U8", "[2]", "[0,2]");

struct Case {
  const char* what;
  std::string file;
  const char* message;  ///< part of the error; null = accepted
};

class Safetensors : public testing::TestWithParam<Case> {};

TEST_P(Safetensors, AcceptsOrSaysWhy) {
  const Case& c = GetParam();
  const auto result = parse(c.file);
  if (!c.message) {
    EXPECT_TRUE(result.ok()) << result.error().message;
    return;
  }
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.error().message.find(c.message), std::string::npos) << result.error().message;
  EXPECT_EQ(result.error().message.find('\n'), std::string::npos);
  EXPECT_EQ(result.error().message.rfind("m.safetensors: ", 0), 0u);
}

std::string nested(size_t depth) {
  return "{" + tensor("a", "U8", std::string(depth, '[') + std::string(depth, ']'), "[0,0]") + "}";
}

std::string many_overlapping(int count) {
  std::string header = "{";
  for (int i = 0; i < count; ++i)
    header += (i ? "," : "") + tensor("t" + std::to_string(i), "U8", "[1000]", "[0,1000]");
  return raw_safetensors(header + "}", std::string(1000, 'x'));
}

std::string many_dims(int count) {
  std::string shape = "[1";
  for (int i = 1; i < count; ++i)
    shape += ",1";
  return raw_safetensors("{" + tensor("a", "U8", shape + "]", "[0,1]") + "}", "x");
}

const Case kCases[] = {
    // Accepted.
    {"empty", raw_safetensors("{}"), nullptr},
    {"one", raw_safetensors("{" + kGood + "}", "xy"), nullptr},
    {"trailing spaces", raw_safetensors("{" + kGood + "}   ", "xy"), nullptr},
    {"metadata", raw_safetensors("{\"__metadata__\":{\"format\":\"pt\"}," + kGood + "}", "xy"), nullptr},
    {"scalar", raw_safetensors("{" + tensor("a", "F32", "[]", "[0,4]") + "}", "1234"), nullptr},
    {"no elements", raw_safetensors("{" + tensor("a", "F32", "[3,0]", "[0,0]") + "}"), nullptr},
    {"empty between",
     raw_safetensors("{" + tensor("a", "U8", "[1]", "[0,1]") + "," + tensor("b", "U8", "[0]", "[1,1]") + "," +
                         tensor("c", "U8", "[1]", "[1,2]") + "}",
                     "xy"),
     nullptr},
    {"any order in the header",
     raw_safetensors("{" + tensor("a", "U8", "[1]", "[1,2]") + "," + tensor("b", "U8", "[1]", "[0,1]") + "}",
                     "xy"),
     nullptr},
    {"sub-byte type", raw_safetensors("{" + tensor("a", "F4", "[4]", "[0,2]") + "}", "xy"), nullptr},
    {"escaped name", raw_safetensors("{" + tensor("\\u00e9\\n", "U8", "[2]", "[0,2]") + "}", "xy"), nullptr},
    {"most dimensions", many_dims(16), nullptr},

    // File length and header length.
    {"no bytes", "", "shorter than the 8"},
    {"short length", std::string(7, '\0'), "shorter than the 8"},
    {"no header", raw_safetensors(""), "begin with '{'"},
    {"header over the limit", raw_safetensors("{}", "", 100'000'001), "at most 100000000"},
    {"header length all ones", raw_safetensors("{}", "", ~uint64_t{0}), "at most 100000000"},
    {"header longer than the file", raw_safetensors("{}", "", 3), "ends after the file's 10"},
    {"header cut short", raw_safetensors("{" + kGood + "}", "xy", 10), "not valid JSON"},
    {"data cut short", raw_safetensors("{" + kGood + "}", "x"), "cut short"},
    {"bytes after the data", raw_safetensors("{" + kGood + "}", "xyz"), "1 bytes after the last tensor"},
    {"bytes without tensors", raw_safetensors("{}", "z"), "1 bytes after the last tensor"},

    // The header's JSON.
    {"leading space", raw_safetensors(" {}"), "begin with '{'"},
    {"byte order mark", raw_safetensors("\xef\xbb\xbf{}"), "begin with '{'"},
    {"array", raw_safetensors("[]"), "begin with '{'"},
    {"not JSON", raw_safetensors("{a"), "not valid JSON"},
    {"not closed", raw_safetensors("{" + kGood, "xy"), "not valid JSON"},
    {"two values", raw_safetensors("{}{}"), "not valid JSON"},
    {"text behind the object", raw_safetensors("{} PK"), "not valid JSON"},
    {"NUL and a second header", raw_safetensors(std::string("{}\0{}", 5)), "NUL"},
    {"not UTF-8", raw_safetensors("{" + tensor("\xff", "U8", "[2]", "[0,2]") + "}", "xy"), "not valid JSON"},
    {"comment", raw_safetensors("{/**/}"), "not valid JSON"},
    {"value no object", raw_safetensors("{\"a\":1}"), "a number"},
    {"value null", raw_safetensors("{\"a\":null}"), "null"},
    {"value array", raw_safetensors("{\"a\":[]}"), "an array"},
    {"deep nesting", raw_safetensors(nested(100'000)), "an array"},
    {"deep objects", raw_safetensors("{\"a\":{\"shape\":{\"a\":{}}}}"), "an object"},
    {"metadata number", raw_safetensors("{\"__metadata__\":{\"a\":1}}"), "a number"},
    {"metadata nested", raw_safetensors("{\"__metadata__\":{\"a\":{}}}"), "an object"},
    {"metadata no object", raw_safetensors("{\"__metadata__\":\"a\"}"), "a string"},

    // Duplicate keys.
    {"tensor twice", raw_safetensors("{" + kGood + "," + tensor("a", "U8", "[0]", "[2,2]") + "}", "xy"),
     "\"a\" appears twice"},
    {"tensor twice by escape",
     raw_safetensors("{" + kGood + "," + tensor("\\u0061", "U8", "[0]", "[2,2]") + "}", "xy"),
     "\"a\" appears twice"},
    {"metadata twice", raw_safetensors("{\"__metadata__\":{},\"__metadata__\":{}}"), "twice"},
    {"metadata key twice", raw_safetensors("{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}"), "\"k\" twice"},
    {"field twice",
     raw_safetensors("{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}",
                     "xy"),
     "\"dtype\" appears twice"},

    // Entries.
    {"no dtype", raw_safetensors("{\"a\":{\"shape\":[2],\"data_offsets\":[0,2]}}", "xy"), "needs dtype"},
    {"no shape", raw_safetensors("{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,2]}}", "xy"), "needs dtype"},
    {"no offsets", raw_safetensors("{\"a\":{\"dtype\":\"U8\",\"shape\":[2]}}", "xy"), "needs dtype"},
    {"extra field", raw_safetensors("{\"a\":{\"dtype\":\"U8\",\"strides\":[1]}}"), "unknown key \"strides\""},
    {"unknown type", raw_safetensors("{" + tensor("a", "F128", "[2]", "[0,2]") + "}", "xy"),
     "\"F128\" is unknown"},
    {"type no string", raw_safetensors("{\"a\":{\"dtype\":[\"U8\"]}}"), "an array"},
    {"one offset", raw_safetensors("{" + tensor("a", "U8", "[2]", "[0]") + "}", "xy"), "must be two numbers"},
    {"three offsets", raw_safetensors("{" + tensor("a", "U8", "[2]", "[0,2,2]") + "}", "xy"), "more than 2"},
    {"negative dimension", raw_safetensors("{" + tensor("a", "U8", "[-2]", "[0,2]") + "}", "xy"),
     "a negative number"},
    {"fraction", raw_safetensors("{" + tensor("a", "U8", "[2.0]", "[0,2]") + "}", "xy"),
     "not an unsigned 64-bit integer"},
    {"beyond 64 bits",
     raw_safetensors("{" + tensor("a", "U8", "[18446744073709551616]", "[0,2]") + "}", "xy"),
     "not an unsigned 64-bit integer"},
    {"string dimension", raw_safetensors("{" + tensor("a", "U8", "[\"2\"]", "[0,2]") + "}", "xy"),
     "a string"},
    {"nested shape", raw_safetensors("{" + tensor("a", "U8", "[[2]]", "[0,2]") + "}", "xy"), "an array"},
    {"too many dimensions", many_dims(17), "more than 16"},

    // Sizes and offsets.
    {"shape overflows",
     raw_safetensors("{" + tensor("a", "U8", "[4294967296,4294967296]", "[0,2]") + "}", "xy"), "overflows"},
    {"shape wraps to the right size",
     raw_safetensors("{" + tensor("a", "U8", "[9223372036854775809,2]", "[0,2]") + "}", "xy"), "overflows"},
    {"bits overflow", raw_safetensors("{" + tensor("a", "F32", "[576460752303423488]", "[0,0]") + "}"),
     "overflows"},
    {"half a byte", raw_safetensors("{" + tensor("a", "F4", "[3]", "[0,2]") + "}", "xy"), "whole bytes"},
    {"shape too large", raw_safetensors("{" + tensor("a", "U8", "[3]", "[0,2]") + "}", "xy"),
     "which is 3 bytes"},
    {"shape too small", raw_safetensors("{" + tensor("a", "U16", "[0]", "[0,2]") + "}", "xy"),
     "which is 0 bytes"},
    {"end before begin", raw_safetensors("{" + tensor("a", "U8", "[2]", "[2,0]") + "}", "xy"),
     "end before they begin"},
    {"first not at 0", raw_safetensors("{" + tensor("a", "U8", "[1]", "[1,2]") + "}", "xy"), "leave a hole"},
    {"hole",
     raw_safetensors("{" + tensor("a", "U8", "[1]", "[0,1]") + "," + tensor("b", "U8", "[1]", "[2,3]") + "}",
                     "xyz"),
     "leave a hole"},
    {"overlap",
     raw_safetensors("{" + tensor("a", "U8", "[2]", "[0,2]") + "," + tensor("b", "U8", "[2]", "[1,3]") + "}",
                     "xyz"),
     "overlap"},
    {"same place",
     raw_safetensors("{" + tensor("a", "U8", "[2]", "[0,2]") + "," + tensor("b", "U8", "[2]", "[0,2]") + "}",
                     "xy"),
     "overlap"},
    {"10k overlapping", many_overlapping(10'000), "overlap"},
    {"far offset",
     raw_safetensors("{" + tensor("a", "U8", "[18446744073709551615]", "[0,18446744073709551615]") + "}",
                     "xy"),
     "overflows"},
    {"large offset",
     raw_safetensors("{" + tensor("a", "U8", "[1152921504606846976]", "[0,1152921504606846976]") + "}", "xy"),
     "cut short"},
};

INSTANTIATE_TEST_SUITE_P(Rules, Safetensors, testing::ValuesIn(kCases), [](const auto& test) {
  std::string name = test.param.what;
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
});

TEST(SafetensorsEntries, AreSortedAndPlaced) {
  test::SafetensorsWriter writer;
  writer.add("b", {2, 3}, {1, 2, 3, 4, 5, 6}, DType::bf16);
  writer.add("a", {1}, {7}, DType::f32);
  const std::string file = writer.bytes(3);
  const auto entries = parse(file);
  ASSERT_TRUE(entries.ok());
  ASSERT_EQ(entries->size(), 2u);
  EXPECT_EQ((*entries)[0].name, "a");
  EXPECT_EQ((*entries)[0].type.dtype(), DType::f32);
  EXPECT_EQ((*entries)[1].shape, (std::vector<uint64_t>{2, 3}));
  EXPECT_EQ((*entries)[1].type.dtype(), DType::bf16);
  EXPECT_EQ((*entries)[0].end, file.size());
  EXPECT_EQ((*entries)[1].begin, file.size() - 16);
  EXPECT_EQ((*entries)[1].end, file.size() - 4);
}

TEST(SafetensorsEntries, HostileNamesStayOnOneLine) {
  const auto result =
      parse(raw_safetensors("{" + tensor("x\\n" + std::string(500, 'y'), "U8", "[3]", "[0,2]") + "}", "xy"));
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().message.find('\n'), std::string::npos);
  EXPECT_LT(result.error().message.size(), 400u);
}

}  // namespace
}  // namespace fovea
