#include "audio/wav.h"
#include "fovea/result.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>

namespace fovea {
namespace {

using Bytes = std::vector<std::byte>;

void put(Bytes& out, uint64_t value, size_t count) {
  for (size_t i = 0; i < count; ++i)  // more bytes than the value has: zeros
    out.push_back(i < sizeof value ? static_cast<std::byte>(value >> (8 * i)) : std::byte{});
}
void put(Bytes& out, const char* text) {
  for (; *text; ++text)
    out.push_back(static_cast<std::byte>(*text));
}

struct File {
  int tag = 1, channels = 1, rate = 16000, bits = 16;
  Bytes data;
  bool extensible = false, other_chunk = false;
  uint32_t data_size = 0;  ///< 0 = the true one
  int block = 0;           ///< 0 = the true one
};

Bytes make(const File& f) {
  Bytes out;
  put(out, "RIFF");
  put(out, 0, 4);
  put(out, "WAVE");
  if (f.other_chunk) {  // odd length, padded by one byte
    put(out, "LIST");
    put(out, 3, 4);
    put(out, 0, 4);
  }
  put(out, "fmt ");
  put(out, f.extensible ? 40 : 16, 4);
  put(out, static_cast<uint64_t>(f.extensible ? 0xfffe : f.tag), 2);
  put(out, static_cast<uint64_t>(f.channels), 2);
  put(out, static_cast<uint64_t>(f.rate), 4);
  put(out, 0, 4);
  put(out, static_cast<uint64_t>(f.block ? f.block : f.channels * f.bits / 8), 2);
  put(out, static_cast<uint64_t>(f.bits), 2);
  if (f.extensible) {
    put(out, 22, 2);
    put(out, 0, 6);
    put(out, static_cast<uint64_t>(f.tag), 2);
    put(out, 0, 14);
  }
  put(out, "data");
  put(out, f.data_size ? f.data_size : f.data.size(), 4);
  out.insert(out.end(), f.data.begin(), f.data.end());
  return out;
}

Bytes words(std::initializer_list<int64_t> values, size_t size) {
  Bytes out;
  for (const int64_t v : values)
    put(out, static_cast<uint64_t>(v), size);
  return out;
}

std::vector<float> samples(const File& file) {
  const auto audio = parse_wav(make(file), "a.wav");
  EXPECT_TRUE(audio.ok()) << audio.error().message;
  return audio.ok() ? audio->samples : std::vector<float>();
}

std::string error_of(const Bytes& bytes) {
  const auto audio = parse_wav(bytes, "a.wav");
  EXPECT_FALSE(audio.ok());
  return audio.ok() ? "" : audio.error().message;
}

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos && text.find("a.wav: ") == 0 && text.find('\n') == text.npos;
}

TEST(Wav, EveryFormatReadsTheSameSamples) {
  const std::vector<float> expected = {0.0f, 0.5f, -1.0f, -0.25f};
  EXPECT_EQ(samples({.bits = 8, .data = words({128, 192, 0, 96}, 1)}), expected);
  EXPECT_EQ(samples({.bits = 16, .data = words({0, 16384, -32768, -8192}, 2)}), expected);
  EXPECT_EQ(samples({.bits = 24, .data = words({0, 1 << 22, -(1 << 23), -(1 << 21)}, 3)}), expected);
  EXPECT_EQ(samples({.bits = 32, .data = words({0, 1 << 30, -(int64_t{1} << 31), -(1 << 29)}, 4)}), expected);
  Bytes singles, doubles;
  for (const float v : expected) {
    uint32_t s;
    uint64_t d;
    const double wide = static_cast<double>(v);
    std::memcpy(&s, &v, 4);
    std::memcpy(&d, &wide, 8);
    put(singles, s, 4);
    put(doubles, d, 8);
  }
  EXPECT_EQ(samples({.tag = 3, .bits = 32, .data = singles}), expected);
  EXPECT_EQ(samples({.tag = 3, .bits = 64, .data = doubles}), expected);
  EXPECT_EQ(samples({.tag = 3, .bits = 32, .data = singles, .extensible = true}), expected);
}

TEST(Wav, StereoIsMixedDownAndOtherChunksAreSkipped) {
  const File file = {
      .channels = 2, .rate = 44100, .data = words({16384, 0, -8192, -8192}, 2), .other_chunk = true};
  EXPECT_EQ(samples(file), (std::vector<float>{0.25f, -0.25f}));
  EXPECT_EQ(parse_wav(make(file), "a.wav")->sample_rate, 44100);
}

TEST(Wav, APipesFileEndsWhereItEnds) {
  const File file = {.data = words({16384, -16384}, 2), .data_size = 0xffffffff};
  EXPECT_EQ(samples(file), (std::vector<float>{0.5f, -0.5f}));
}

TEST(Wav, BrokenFilesAreRefusedByName) {
  const Bytes data = words({1, 2, 3, 4}, 2);
  EXPECT_TRUE(says(error_of({}), "not a WAV file"));
  EXPECT_TRUE(says(error_of(make({.tag = 6, .bits = 8, .data = data})), "format 6 with 8 bits"));
  EXPECT_TRUE(says(error_of(make({.bits = 12, .data = data})), "12 bits"));
  EXPECT_TRUE(says(error_of(make({.channels = 6, .data = data})), "6 channels"));
  EXPECT_TRUE(says(error_of(make({.channels = 0, .data = data, .block = 2})), "0 channels"));
  EXPECT_TRUE(says(error_of(make({.rate = 0, .data = data})), "sample rate is 0"));
  EXPECT_TRUE(says(error_of(make({.data = data, .block = 3})), "block size is 3"));
  EXPECT_TRUE(says(error_of(make({.data = words({1, 2, 3}, 1)})), "3 bytes isn't a whole number of 2-byte"));
  EXPECT_TRUE(says(error_of(make({.data = data, .data_size = 9})), "claims 9 bytes and the file has 8 left"));
  EXPECT_TRUE(
      says(error_of(make({.tag = 3, .bits = 32, .data = words({0x7fc00000}, 4)})), "sample 0 is not"));
  Bytes no_format = make({.data = data});
  no_format.erase(no_format.begin() + 12, no_format.begin() + 36);
  EXPECT_TRUE(says(error_of(no_format), "before any fmt chunk"));
}

TEST(Wav, RefusesSoundThatIsTooLong) {
  const Bytes three_seconds = make({.rate = 2, .data = words({1, 2, 3, 4, 5}, 2)});  // 2.5 s: the third begun
  EXPECT_TRUE(parse_wav(three_seconds, "a.wav", 3).ok());
  const auto refused = parse_wav(three_seconds, "a.wav", 2);
  ASSERT_FALSE(refused.ok());
  EXPECT_TRUE(
      says(refused.error().message, "it is 3 seconds long; this model takes at most 2 seconds: cut it"));
}

TEST(Wav, EveryCutIsAnErrorOrShorter) {
  const Bytes whole = make({.data = words({1, 2, 3, 4}, 2), .other_chunk = true});
  for (size_t size = 0; size < whole.size(); ++size) {
    const Bytes cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_FALSE(parse_wav(cut, "a.wav").ok()) << size;
  }
}

}  // namespace
}  // namespace fovea
