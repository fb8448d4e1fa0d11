// Small utilities of base: names, edit distance, log, aligned arrays, instruction sets.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <regex>
#include <string>

#include "base/aligned.h"
#include "base/cpu_features.h"
#include "base/edit_distance.h"
#include "base/json_depth.h"
#include "base/log.h"
#include "fovea/dtype.h"

namespace fovea {
namespace {

TEST(DType, ParsesItsOwnNamesAndTheShortOnes) {
  for (DType d : {DType::f32, DType::f16, DType::bf16})
    EXPECT_EQ(parse_dtype(to_string(d)), d);
  EXPECT_EQ(parse_dtype("half"), DType::f16);
  EXPECT_EQ(parse_dtype("bf16"), DType::bf16);
  EXPECT_EQ(parse_dtype("fp32"), DType::f32);
  EXPECT_EQ(parse_dtype("BFloat16"), DType::bf16);
  EXPECT_EQ(parse_dtype("FP16"), DType::f16);
  for (const char* bad : {"", "float 32", "bfloat16 ", "fp8", "int8"})
    EXPECT_EQ(parse_dtype(bad), std::nullopt) << bad;
  EXPECT_EQ(size_of(DType::f32), 4u);
  EXPECT_EQ(size_of(DType::f16), 2u);
  EXPECT_EQ(size_of(DType::bf16), 2u);
}

TEST(DType, EveryKvCacheNameComesBackAndIsUnique) {
  for (int i = 0; i < static_cast<int>(KvCacheDType::count_); ++i) {
    const auto d = static_cast<KvCacheDType>(i);
    EXPECT_EQ(parse_kv_cache_dtype(to_string(d)), d) << i;
  }
  EXPECT_EQ(parse_kv_cache_dtype("fp8"), KvCacheDType::fp8_e4m3);
  EXPECT_EQ(parse_kv_cache_dtype("FP8"), KvCacheDType::fp8_e4m3);
  EXPECT_EQ(parse_kv_cache_dtype("Int8_Per_Token_Head"), KvCacheDType::int8_per_token_head);
  EXPECT_EQ(parse_kv_cache_dtype("AUTO"), KvCacheDType::auto_);
  EXPECT_EQ(parse_kv_cache_dtype("fp9"), std::nullopt);
  EXPECT_EQ(parse_kv_cache_dtype(""), std::nullopt);
}

TEST(EditDistance, KnownValues) {
  EXPECT_EQ(edit_distance("", ""), 0);
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("abc", ""), 3);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("saturday", "sunday"), 3);
  EXPECT_EQ(edit_distance("flaw", "lawn"), 2);
  EXPECT_EQ(edit_distance("CPU_ATTN", "cpu_attn"), 0);
  EXPECT_EQ(edit_distance("ab", "ba"), 2);
}

TEST(EditDistance, NearestNameSuggestsOnlyWhatIsNear) {
  const std::vector<std::string_view> names = {"triton", "torch_native", "flashinfer", "fa3"};
  EXPECT_EQ(nearest_name("tritn", names), "triton");
  EXPECT_EQ(nearest_name("Flash_Infer", names), "flashinfer");
  EXPECT_EQ(nearest_name("fa2", names), "fa3");
  EXPECT_EQ(nearest_name("completely_else", names), "");
  EXPECT_EQ(nearest_name("triton", {}), "");
  // At most a third of the length plus one: 2 of 3, 3 of 6.
  EXPECT_EQ(nearest_name("abc", {"axy"}), "axy");
  EXPECT_EQ(nearest_name("abc", {"xyz"}), "");
  EXPECT_EQ(nearest_name("abcdef", {"abcxyz"}), "abcxyz");
  EXPECT_EQ(nearest_name("abcdef", {"abwxyz"}), "");
}

class LogTest : public testing::Test {
 protected:
  ~LogTest() override { set_log_level(saved_); }

 private:
  LogLevel saved_ = log_level();
};

TEST_F(LogTest, WritesWholeLinesFromTheLevelOn) {
  set_log_level(LogLevel::info);
  testing::internal::CaptureStderr();
  FOVEA_LOG(debug) << "not this";
  FOVEA_LOG(info) << "pages " << 17;
  FOVEA_LOG(error) << "bad";
  const std::string time = R"(20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d\d\dZ )";
  EXPECT_TRUE(std::regex_match(testing::internal::GetCapturedStderr(),
                               std::regex(time + "\\[info\\] pages 17\n" + time + "\\[error\\] bad\n")));
}

TEST_F(LogTest, TimeIsOfNowInUtc) {
  const auto line = format_log_line(LogFormat::text, LogTime(std::chrono::milliseconds(1'700'000'000'042)),
                                    LogLevel::info, "x", {});
  EXPECT_EQ(line, "2023-11-14T22:13:20.042Z [info] x\n");
}

TEST_F(LogTest, FieldsFollowTheText) {
  const LogField fields[] = {
      {"path", "/v1/models"}, {"id", "two \"words\"\x1b"}, {"status", 200}, {"ms", 1.5}, {"none", ""}};
  EXPECT_EQ(
      format_log_line(LogFormat::text, LogTime(), LogLevel::info, "request", fields),
      "1970-01-01T00:00:00.000Z [info] request path=/v1/models id=\"two \\\"words\\\"\\u001b\" status=200 "
      "ms=1.5 none=\"\"\n");
  EXPECT_EQ(format_log_line(LogFormat::json, LogTime(), LogLevel::info, "request", fields),
            R"({"time":"1970-01-01T00:00:00.000Z","level":"info","message":"request","path":"/v1/models",)"
            R"("id":"two \"words\"\u001b","status":200,"ms":1.5,"none":""})"
            "\n");
}

TEST_F(LogTest, ALineIsOneLineWhateverItSays) {
  const std::string bad = "a\nb\\\x80\xc3\xa9\xc2\x9b\xe2\x82\xed\xa0\x80";
  EXPECT_EQ(format_log_line(LogFormat::text, LogTime(), LogLevel::error, bad, {}),
            "1970-01-01T00:00:00.000Z [error] "
            "a\\u000ab\\\\ufffd\xc3\xa9\\u009b\\ufffd\\ufffd\\ufffd\\ufffd\\ufffd\n");
  EXPECT_EQ(format_log_line(LogFormat::json, LogTime(), LogLevel::error, bad, {}),
            "{\"time\":\"1970-01-01T00:00:00.000Z\",\"level\":\"error\",\"message\":"
            "\"a\\u000ab\\\\\\ufffd\xc3\xa9\\u009b\\ufffd\\ufffd\\ufffd\\ufffd\\ufffd\"}\n");
}

TEST_F(LogTest, OffIsSilentAndEvaluatesNothing) {
  set_log_level(LogLevel::off);
  int evaluated = 0;
  testing::internal::CaptureStderr();
  FOVEA_LOG(error) << ++evaluated;
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(evaluated, 0);
}

TEST_F(LogTest, IsOneStatement) {
  set_log_level(LogLevel::off);
  bool otherwise = false;
  if (log_level() == LogLevel::debug)
    FOVEA_LOG(error) << "never";
  else
    otherwise = true;
  EXPECT_TRUE(otherwise);
}

TEST_F(LogTest, ParsesLevels) {
  EXPECT_EQ(parse_log_format("JSON"), LogFormat::json);
  EXPECT_EQ(parse_log_format("xml"), std::nullopt);
  EXPECT_EQ(parse_log_level("debug"), LogLevel::debug);
  EXPECT_EQ(parse_log_level("warn"), LogLevel::warning);
  EXPECT_EQ(parse_log_level("warning"), LogLevel::warning);
  EXPECT_EQ(parse_log_level("off"), LogLevel::off);
  EXPECT_EQ(parse_log_level("loud"), std::nullopt);
}

TEST(JsonDepth, CountsBracketsOutsideStrings) {
  EXPECT_FALSE(json_nests_deeper("", 0));
  EXPECT_TRUE(json_nests_deeper("[]", 0));
  EXPECT_FALSE(json_nests_deeper(R"({"a": [1], "b": [[], {}]})", 3));
  EXPECT_TRUE(json_nests_deeper(R"({"a": [1], "b": [[], {}]})", 2));
  EXPECT_FALSE(json_nests_deeper(R"(["[[[", "\\", "\"[[["])", 1));
  EXPECT_TRUE(json_nests_deeper(R"(["\\", [[]]])", 2));
}

TEST(AlignedArray, IsAlignedAndWritable) {
  for (size_t count : {size_t{0}, size_t{1}, size_t{63}, size_t{1000}, size_t{5} << 20}) {
    AlignedArray<char> array(count);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(array.data()) % 64, 0u);
    EXPECT_EQ(array.size(), count);
    if (count) array[count - 1] = 1;
  }
  AlignedArray<float> a(3);
  float* data = a.data();
  const AlignedArray<float> b(std::move(a));
  EXPECT_EQ(b.data(), data);
}

TEST(AlignedArray, SizesThatOverflowAreRefused) {
  constexpr size_t kHuge = std::numeric_limits<size_t>::max();
  EXPECT_THROW(AlignedArray<double>(kHuge / 2), std::bad_alloc);
  EXPECT_THROW(AlignedArray<char>(kHuge - 8), std::bad_alloc);
}

TEST(CpuFeatures, OnlyWhatTheCpuHasCanBeChosen) {
  const Isa saved = current_isa();
  for (Isa isa : {Isa::generic, Isa::avx2, Isa::avx512}) {
    EXPECT_EQ(set_isa(isa), isa <= detect_isa());
    EXPECT_EQ(current_isa(), std::min(isa, detect_isa()));
  }
  set_isa(saved);
  EXPECT_EQ(to_string(Isa::generic), "generic");
  EXPECT_EQ(to_string(Isa::avx512), "avx512");
}

}  // namespace
}  // namespace fovea
