#include "flex/gpu_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "flex/kernel_cache.h"
#include "flex/nvrtc.h"
#include "flex/random_expression_test_support.h"

namespace fovea::flex {
namespace {

using ::testing::HasSubstr;

std::vector<BufferType> types() {
  return {{"doc", Type::integer, 1},
          {"grid", Type::integer, 2},
          {"bias", Type::real, 1},
          {"flag", Type::boolean, 1}};
}

TEST(FlexGpuSource, HasOneLineForEachOperation) {
  const auto program = make_program("k <= q && doc[q] == doc[k]", "s * 2 + grid[h, -1]", types());
  const std::string text = gpu_source(*program, {DType::bf16, 128, 64, true, true});
  EXPECT_THAT(text, HasSubstr("#define FLEX_DV 64\n"));
  EXPECT_THAT(text,
              HasSubstr("flex_mask(const Args& args, int b, int h, int q, int k, int qlen, int klen) {\n"
                        "  const int n0 = k;\n  const int n1 = q;\n  const bool n2 = n0 <= n1;\n"
                        "  const int n3 = fx_read1<int>(args.buffers[0], n1);\n"
                        "  const int n4 = fx_read1<int>(args.buffers[0], n0);\n  const bool n5 = n3 == n4;\n"
                        "  const bool n6 = n2 & n5;\n  return n6;\n}\n"));
  EXPECT_THAT(text, HasSubstr("fx_read2<int>(args.buffers[1], "));
  EXPECT_THAT(text, HasSubstr("= __uint_as_float(0x40000000u);\n"));
  EXPECT_THAT(text, HasSubstr("= int(4294967295u);\n"));
}

TEST(FlexGpuSource, RefusesWhatTheKernelLacks) {
  const auto program = make_program("k <= q", "", {});
  EXPECT_TRUE(check_gpu(*program, {DType::bf16, 256, 256, true, true}).ok());
  EXPECT_THAT(check_gpu(*program, {DType::bf16, 257, 64, true, true}).error().message,
              HasSubstr("takes head sizes up to 256, not 257"));
  std::vector<BufferType> many;
  for (int i = 0; i < 17; ++i)
    many.push_back({"b" + std::to_string(i), Type::real, 1});
  EXPECT_THAT(check_gpu(*make_program("", "", many), {DType::bf16, 64, 64, true, true}).error().message,
              HasSubstr("takes up to 16 buffers, not 17"));
}

/// Generated programs compile; no GPU is needed.
TEST(FlexGpuSource, Compiles) {
#ifdef FOVEA_SANITIZED
  GTEST_SKIP() << "NVRTC is not built for sanitizers";
#endif
  const auto version = nvrtc_version();
  if (!version) {
    EXPECT_THAT(version.error().message,
                HasSubstr("nvidia-cuda-nvrtc and its folder in LD_LIBRARY_PATH), or run "
                          "flex_attention on the CPU, which needs no compiler"));
    GTEST_SKIP() << version.error().message;
  }
  const auto compile = [](const Program& program, const GpuVariant& variant, const char* arch) {
    const auto compiled = nvrtc_compile(gpu_source(program, variant), arch);
    EXPECT_TRUE(compiled.ok()) << compiled.error().message;
    if (compiled.ok()) {
      EXPECT_GT(compiled->cubin.size(), 1000u);
    }
  };
  compile(*make_program("k <= q", "tanh(s)", {}), {DType::f16, 72, 40, false, true}, "sm_80");
  compile(*make_program("k <= q && doc[q] == doc[k]", "s + bias[k - q]", types()),
          {DType::f32, 33, 65, true, false}, "sm_90");
  RandomExpression random(5);
  compile(*make_program(random.condition(5), random.real(4) + " + s", types()),
          {DType::bf16, 64, 64, true, true}, "sm_90");
  const auto broken = nvrtc_compile("int f() { return x; }", "sm_90");
  ASSERT_FALSE(broken.ok());
  EXPECT_THAT(broken.error().message, HasSubstr("\"x\" is undefined"));
  EXPECT_FALSE(nvrtc_compile("", "sm_1").ok());
}

class FlexKernelCache : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "/flex_cache_" + std::to_string(getpid());
    std::filesystem::remove_all(folder_);
    std::string note;
    write_kernel(folder_, key_, code_, note);
    EXPECT_EQ(note, "");
    for (const auto& entry : std::filesystem::directory_iterator(folder_))
      path_ = entry.path();
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string bytes() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void put(const std::string& bytes) const {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes;
  }
  /// "" = read, "none" = absent without a note.
  std::string outcome(const KernelKey& key) const {
    std::string note;
    const auto read = read_kernel(folder_, key, note);
    if (read) return *read == code_ ? note : "other code";
    return note.empty() ? "none" : note;
  }

  const KernelKey key_ = {0x1234, "sm_90", "0.1 nvrtc 13.0"};
  const std::string code_ = std::string(
      "\x7f"
      "ELF\0\n\ncode",
      11);
  std::string folder_, path_;
};

TEST_F(FlexKernelCache, ReadsWhatItWrote) {
  EXPECT_EQ(outcome(key_), "");
  EXPECT_EQ(outcome({0x1235, "sm_90", key_.version}), "none");
  EXPECT_EQ(outcome({0x1234, "sm_80", key_.version}), "none");
  std::string note;
  EXPECT_FALSE(read_kernel("", key_, note).has_value());
}

TEST_F(FlexKernelCache, IgnoresWhatDoesNotFitWithALine) {
  const std::string good = bytes();
  for (size_t i = 0; i < good.size(); ++i) {  // any byte that is changed, any length
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 1);
    put(bad);
    EXPECT_THAT(outcome(key_), HasSubstr(" is ignored: ")) << i;
    put(good.substr(0, i));
    EXPECT_THAT(outcome(key_), HasSubstr(" is ignored: ")) << i;
  }
  put(good + "x");
  EXPECT_THAT(outcome(key_), HasSubstr("it is corrupt; the kernel is compiled again"));
  put(good);
  EXPECT_THAT(outcome({0x1234, "sm_90", "0.2 nvrtc 13.0"}),
              HasSubstr("it is of version 0.1 nvrtc 13.0, not 0.2 nvrtc 13.0"));
  std::filesystem::rename(path_, folder_ + "/0000000000001234-sm_80.cubin");
  EXPECT_THAT(outcome({0x1234, "sm_80", key_.version}), HasSubstr("it is for sm_90, not sm_80"));
}

TEST_F(FlexKernelCache, AFolderThatCannotBeWrittenIsToldOnly) {
  std::string note;
  write_kernel(path_ + "/below_a_file", key_, code_, note);
  EXPECT_THAT(note, HasSubstr("can't be written"));
}

}  // namespace
}  // namespace fovea::flex
