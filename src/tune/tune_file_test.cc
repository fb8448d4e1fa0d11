#include "tune/tune_file.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

namespace fovea::tune {
namespace {

TuneFile example() {
  TuneFile out;
  out.key = {"NVIDIA H200", 132, 13000, build_name()};
  cuda::LinearChoice a;
  a.n = 6144;
  a.k = 4096;
  a.min_rows = 9;
  a.max_rows = 16;
  a.kernel = cuda::LinearKernel::stream;
  a.options.units = 3;
  a.options.halves = false;
  a.options.share = cuda::ClusterShare::x;
  cuda::LinearChoice b = a;
  b.gated = true;
  b.min_rows = b.max_rows = 512;
  b.kernel = cuda::LinearKernel::tile;
  b.options = {};
  b.options.share = cuda::ClusterShare::weights;
  b.options.raster = 4;
  b.options.groups = 2;
  out.linear = {{a, 11e-6, 12e-6}, {b, 100e-6, 130e-6}};
  return out;
}

TEST(TuneFile, IsReadAsItWasWritten) {
  const TuneFile file = example();
  const auto read = parse_tune_file(tune_file_text(file), "tune.json");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->key, file.key);
  ASSERT_EQ(read->linear.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    const cuda::LinearChoice &got = read->linear[i].choice, &want = file.linear[i].choice;
    EXPECT_EQ(got.n, want.n);
    EXPECT_EQ(got.k, want.k);
    EXPECT_EQ(got.gated, want.gated);
    EXPECT_EQ(got.min_rows, want.min_rows);
    EXPECT_EQ(got.max_rows, want.max_rows);
    EXPECT_EQ(got.kernel, want.kernel);
    EXPECT_EQ(got.options.units, want.options.units);
    EXPECT_EQ(got.options.halves, want.options.halves);
    EXPECT_EQ(got.options.share, want.options.share);
    EXPECT_EQ(got.options.groups, want.options.groups);
    EXPECT_EQ(got.options.raster, want.options.raster);
    EXPECT_NEAR(read->linear[i].seconds, file.linear[i].seconds, 1e-12);
    EXPECT_NEAR(read->linear[i].automatic_seconds, file.linear[i].automatic_seconds, 1e-12);
    EXPECT_EQ(describe(got), describe(want));
  }
}

/// One line that names the file.
void expect_refused(const std::string& text) {
  const auto read = parse_tune_file(text, "tune.json");
  ASSERT_FALSE(read) << text;
  EXPECT_NE(read.error().message.find("tune.json"), std::string::npos) << read.error().message;
  EXPECT_EQ(read.error().message.find('\n'), std::string::npos);
}

TEST(TuneFile, ValuesOutOfRangeAreRefused) {
  const std::string text = tune_file_text(example());
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string out = text;
    const size_t at = out.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return out.replace(at, from.size(), to);
  };
  for (const auto& [from, to] : std::initializer_list<std::pair<const char*, const char*>>{
           {"\"units\": 3", "\"units\": 17"},
           {"\"units\": 3", "\"units\": 0"},
           {"\"units\": 3", "\"units\": \"3\""},
           {"\"groups\": 2", "\"groups\": 3"},
           {"\"raster\": 4", "\"raster\": 0"},
           {"\"share\": \"x\"", "\"share\": \"y\""},
           {"\"kernel\": \"stream\"", "\"kernel\": \"mma\""},
           {"\"max_rows\": 16", "\"max_rows\": 8"},
           {"\"min_rows\": 9", "\"min_rows\": 0"},
           {"\"n\": 6144", "\"n\": -1"},
           {"\"n\": 6144", "\"n\": 1e99"},
           {"\"fovea_tune\": 1", "\"fovea_tune\": 2"},
           {"\"multiprocessors\": 132", "\"multiprocessors\": 0"},
           {"\"us\": ", "\"us\": -"}}) {
    SCOPED_TRACE(to);
    expect_refused(with(from, to));
  }
}

TEST(TuneFile, OtherTextsAreRefused) {
  for (const char* text :
       {"", "{", "[]", "1", "null", "{}", "{\"fovea_tune\":1}", "\xff\xfe", "{\"linear\":3}",
        "{\"fovea_tune\":1,\"device\":\"d\",\"build\":\"b\",\"multiprocessors\":1,"
        "\"driver\":1,\"linear\":{}}",
        "{\"fovea_tune\":1,\"device\":\"d\",\"build\":\"b\",\"multiprocessors\":1,"
        "\"driver\":1,\"linear\":[1]}"})
    expect_refused(text);
}

TEST(TuneFile, DamagedTextsAreRefusedOrHarmless) {
  const std::string text = tune_file_text(example());
  const auto harmless = [](const Result<TuneFile>& read) {
    if (!read) return read.error().message.find('\n') == std::string::npos;
    for (const TunedLinear& tuned : read->linear) {
      const cuda::LinearChoice& c = tuned.choice;
      const cuda::WgmmaPlan plan =
          plan_wgmma(c.max_rows, c.n, c.k, c.gated && c.n % 2 == 0, 132, c.kernel, c.options);
      if (plan.stages < 2 || plan.ctas < 1 || plan.shared_bytes > 232448) return false;
    }
    return true;
  };
  for (size_t length = 0; length < text.size(); length += 3)
    EXPECT_TRUE(harmless(parse_tune_file(text.substr(0, length), "tune.json"))) << length;
  uint32_t state = 1;
  for (int i = 0; i < 3000; ++i) {
    std::string damaged = text;
    for (int changes = 0; changes <= i % 3; ++changes) {
      state = state * 1664525u + 1013904223u;
      const size_t at = (state >> 8) % damaged.size();
      state = state * 1664525u + 1013904223u;
      damaged[at] = i % 2 == 0 ? static_cast<char>('0' + (state >> 24) % 10) : static_cast<char>(state >> 24);
    }
    EXPECT_TRUE(harmless(parse_tune_file(damaged, "tune.json"))) << damaged;
  }
}

TEST(TuneFile, IsOfOneDeviceDriverAndBuild) {
  const TuneFile file = example();
  EXPECT_EQ(why_not(file, file.key), "");
  for (int i = 0; i < 4; ++i) {
    TuneKey key = file.key;
    if (i == 0) key.device = "NVIDIA H100 80GB HBM3";
    if (i == 1) key.multiprocessors = 114;
    if (i == 2) key.driver = 12080;
    if (i == 3) key.build += "x";
    EXPECT_NE(why_not(file, key), "") << i;
  }
}

TEST(TuneFile, IsWrittenWithItsFolder) {
  const std::filesystem::path folder = ::testing::TempDir() + "/fovea_tune_test";
  std::filesystem::remove_all(folder);
  const std::string path = folder / "a/b/tune.json";
  for (int i = 0; i < 2; ++i) {  // also in the place of another
    const Status written = write_tune_file(path, example());
    ASSERT_TRUE(written) << written.error().message;
    EXPECT_TRUE(read_tune_file(path));
  }
  EXPECT_FALSE(std::filesystem::exists(path + ".partial"));
  const auto missing = read_tune_file(folder / "none.json");
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("none.json"), std::string::npos);
  EXPECT_FALSE(write_tune_file("/dev/null/tune.json", example()));
  std::filesystem::remove_all(folder);
}

TEST(TuneFile, TheUsualPlaceIsTheCache) {
  const auto with = [](const char* cache, const char* home) {
    for (const auto& [name, value] : {std::pair("XDG_CACHE_HOME", cache), {"HOME", home}})
      value == nullptr ? ::unsetenv(name) : ::setenv(name, value, 1);
    return default_tune_file();
  };
  const char* old_cache = std::getenv("XDG_CACHE_HOME");
  const char* old_home = std::getenv("HOME");
  const std::string cache = old_cache == nullptr ? "" : old_cache, home = old_home == nullptr ? "" : old_home;
  EXPECT_EQ(with("/cache", "/home/u"), "/cache/fovea/tune.json");
  EXPECT_EQ(with(nullptr, "/home/u"), "/home/u/.cache/fovea/tune.json");
  EXPECT_EQ(with("relative", "/home/u"), "/home/u/.cache/fovea/tune.json");
  EXPECT_EQ(with("", nullptr), "");
  with(old_cache == nullptr ? nullptr : cache.c_str(), old_home == nullptr ? nullptr : home.c_str());
}

}  // namespace
}  // namespace fovea::tune
