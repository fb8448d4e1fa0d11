#include "audio/wav.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/printable.h"
#include "files/mapped_file.h"
#include "fovea/result.h"

namespace fovea {
namespace {

constexpr char kConvert[] =
    "; convert it, for instance with ffmpeg -i IN -ar 16000 -ac 1 -c:a pcm_s16le OUT.wav";
constexpr uint16_t kPcm = 1, kFloat = 3, kExtensible = 0xfffe;
constexpr uint32_t kUnknownSize = 0xffffffff;  // left by programs that write to a pipe

using Bytes = std::span<const std::byte>;

/// What a file that is not WAV begins with; "" = unknown.
std::string_view container_of(Bytes bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()),
                              std::min<size_t>(bytes.size(), 12));
  if (text.starts_with("ID3") || text.starts_with("\xff\xfb") || text.starts_with("\xff\xf3")) return "MP3";
  if (text.starts_with("\xff\xf1") || text.starts_with("\xff\xf9")) return "AAC";
  if (text.starts_with("fLaC")) return "FLAC";
  if (text.starts_with("OggS")) return "Ogg";
  if (text.starts_with("\x1a\x45\xdf\xa3")) return "WebM or Matroska";
  if (text.starts_with("RF64")) return "RF64";
  if (text.starts_with("FORM")) return "AIFF";
  if (text.substr(std::min<size_t>(text.size(), 4)).starts_with("ftyp")) return "MP4 or M4A";
  return "";
}

/// Little-endian, `count` bytes at `at`; the caller has checked the bounds.
uint64_t read_uint(Bytes bytes, size_t at, size_t count) {
  uint64_t value = 0;
  for (size_t i = 0; i < count; ++i)
    value |= std::to_integer<uint64_t>(bytes[at + i]) << (8 * i);
  return value;
}

std::string_view tag_at(Bytes bytes, size_t at) {
  return {reinterpret_cast<const char*>(bytes.data()) + at, 4};
}

Result<WavFormat> read_format(Bytes chunk, const std::string& name, int& sample_rate) {
  if (chunk.size() < 16)
    return invalid(name + ": its fmt chunk has " + std::to_string(chunk.size()) +
                   " bytes; 16 or more are needed");
  WavFormat f;
  f.tag = static_cast<uint16_t>(read_uint(chunk, 0, 2));
  f.channels = static_cast<uint16_t>(read_uint(chunk, 2, 2));
  const auto rate = static_cast<uint32_t>(read_uint(chunk, 4, 4));
  f.bits = static_cast<uint16_t>(read_uint(chunk, 14, 2));
  if (f.tag == kExtensible && chunk.size() >= 40)  // the real tag begins its GUID
    f.tag = static_cast<uint16_t>(read_uint(chunk, 24, 2));
  const bool pcm = f.tag == kPcm && (f.bits == 8 || f.bits == 16 || f.bits == 24 || f.bits == 32);
  const bool real = f.tag == kFloat && (f.bits == 32 || f.bits == 64);
  if (!pcm && !real)
    return unsupported(
        name + ": its samples have format " + std::to_string(f.tag) + " with " + std::to_string(f.bits) +
        " bits; supported are PCM (1) with 8, 16, 24 or 32 and float (3) with 32 or 64" + kConvert);
  if (f.channels < 1 || f.channels > 2)
    return unsupported(name + ": it has " + std::to_string(f.channels) +
                       " channels; supported are 1 and 2 (mixed down)" + kConvert);
  if (rate < 1 || rate > 1'000'000)
    return invalid(name + ": its sample rate is " + std::to_string(rate) + "; 1 to 1000000 are possible");
  sample_rate = static_cast<int>(rate);
  const auto block = read_uint(chunk, 12, 2);
  if (block != f.frame_bytes())
    return invalid(name + ": its block size is " + std::to_string(block) + "; its " +
                   std::to_string(f.channels) + " channels of " + std::to_string(f.bits) + " bits make " +
                   std::to_string(f.frame_bytes()));
  return f;
}

double read_sample(Bytes data, size_t at, const WavFormat& f) {
  const uint64_t raw = read_uint(data, at, f.bits / 8u);
  if (f.tag == kFloat && f.bits == 32) {
    const auto bits = static_cast<uint32_t>(raw);
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return static_cast<double>(value);
  }
  if (f.tag == kFloat) {
    double value;
    std::memcpy(&value, &raw, sizeof value);
    return value;
  }
  if (f.bits == 8) return (static_cast<double>(raw) - 128.0) / 128.0;  // the only unsigned format
  const int64_t half = int64_t{1} << (f.bits - 1);
  const auto value = static_cast<int64_t>(raw);
  return static_cast<double>(value >= half ? value - 2 * half : value) / static_cast<double>(half);
}

}  // namespace

Result<WavFile> WavFile::parse(Bytes bytes, const std::string& name) {
  if (bytes.size() < 12 || tag_at(bytes, 0) != "RIFF" || tag_at(bytes, 8) != "WAVE")
    return unsupported(name + ": not a WAV file (RIFF ... WAVE)" +
                       (container_of(bytes).empty() ? "" : " but " + std::string(container_of(bytes))) +
                       kConvert);
  // The RIFF size is ignored: streaming writers leave 0 or 2^32 - 1 there.
  WavFile file;
  file.name_ = name;
  bool has_format = false;
  for (size_t at = 12; bytes.size() - at >= 8;) {
    const std::string_view tag = tag_at(bytes, at);
    const uint64_t size = read_uint(bytes, at + 4, 4);
    at += 8;
    const bool to_the_end = tag == "data" && size == kUnknownSize;
    if (!to_the_end && size > bytes.size() - at)
      return invalid(name + ": its chunk \"" + printable(tag) + "\" at byte " + std::to_string(at - 8) +
                     " claims " + std::to_string(size) + " bytes and the file has " +
                     std::to_string(bytes.size() - at) + " left; was it cut off?");
    const Bytes chunk = bytes.subspan(at, to_the_end ? bytes.size() - at : static_cast<size_t>(size));
    if (tag == "fmt " && !has_format) {
      FOVEA_TRY(format, read_format(chunk, name, file.sample_rate_));
      file.format_ = format;
      has_format = true;
    } else if (tag == "data") {
      if (!has_format) return invalid(name + ": its data chunk comes before any fmt chunk");
      const size_t frame = file.format_.frame_bytes();
      if (chunk.size() % frame != 0)
        return invalid(name + ": its data chunk of " + std::to_string(chunk.size()) +
                       " bytes isn't a whole number of " + std::to_string(frame) + "-byte frames");
      file.data_ = chunk;
      return file;
    }
    at += chunk.size();
    if (chunk.size() % 2 == 1 && at < bytes.size()) ++at;  // chunks begin at even bytes
  }
  return invalid(name + ": it has no data chunk; was it cut off?");
}

Result<std::vector<float>> WavFile::read(int64_t first, int64_t count) const {
  FOVEA_CHECK(0 <= first && 0 <= count && first <= samples() && count <= samples() - first);
  std::vector<float> out(static_cast<size_t>(count));
  const size_t frame = format_.frame_bytes(), sample = format_.bits / 8u;
  for (size_t i = 0; i < out.size(); ++i) {
    const size_t at = (static_cast<size_t>(first) + i) * frame;
    double sum = 0;
    for (size_t c = 0; c < format_.channels; ++c)
      sum += read_sample(data_, at + c * sample, format_);
    out[i] = static_cast<float>(sum / format_.channels);
    if (!std::isfinite(out[i]))
      return invalid(name_ + ": sample " + std::to_string(static_cast<size_t>(first) + i) +
                     " is not a finite number" + kConvert);
  }
  return out;
}

Result<Audio> parse_wav(Bytes bytes, const std::string& name, std::optional<int> most_seconds) {
  FOVEA_TRY(file, WavFile::parse(bytes, name));
  const int64_t rate = file.sample_rate();
  if (const int64_t seconds = (file.samples() + rate - 1) / rate; most_seconds && seconds > *most_seconds)
    return invalid(name + ": it is " + std::to_string(seconds) + " seconds long; this model takes at most " +
                   std::to_string(*most_seconds) + " seconds: cut it into pieces");
  FOVEA_TRY(samples, file.read(0, file.samples()));
  return Audio{file.sample_rate(), std::move(samples)};
}

Result<Audio> load_wav(const std::string& path, std::optional<int> most_seconds) {
  FOVEA_TRY(file, MappedFile::open(path));
  return parse_wav(file.bytes(), path, most_seconds);
}

}  // namespace fovea
