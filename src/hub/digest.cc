#include "hub/digest.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include "fovea/result.h"

namespace fovea::hub {
namespace {

constexpr uint32_t kSha256[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t word(const uint8_t* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
}

void sha256_block(uint32_t* state, const uint8_t* bytes) {
  uint32_t w[64];
  for (size_t i = 0; i < 16; ++i)
    w[i] = word(bytes + 4 * i);
  for (size_t i = 16; i < 64; ++i) {
    const uint32_t a = w[i - 15], b = w[i - 2];
    w[i] = w[i - 16] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ a >> 3) + w[i - 7] +
           (std::rotr(b, 17) ^ std::rotr(b, 19) ^ b >> 10);
  }
  uint32_t s[8];
  std::copy_n(state, 8, s);
  for (size_t i = 0; i < 64; ++i) {
    const uint32_t t1 = s[7] + (std::rotr(s[4], 6) ^ std::rotr(s[4], 11) ^ std::rotr(s[4], 25)) +
                        ((s[4] & s[5]) ^ (~s[4] & s[6])) + kSha256[i] + w[i];
    const uint32_t t2 = (std::rotr(s[0], 2) ^ std::rotr(s[0], 13) ^ std::rotr(s[0], 22)) +
                        ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
    std::copy_backward(s, s + 7, s + 8);
    s[4] += t1;
    s[0] = t1 + t2;
  }
  for (size_t i = 0; i < 8; ++i)
    state[i] += s[i];
}

void sha1_block(uint32_t* state, const uint8_t* bytes) {
  uint32_t w[80];
  for (size_t i = 0; i < 16; ++i)
    w[i] = word(bytes + 4 * i);
  for (size_t i = 16; i < 80; ++i)
    w[i] = std::rotl(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
  uint32_t a = state[0], b = state[1], c = state[2], d = state[3], e = state[4];
  for (size_t i = 0; i < 80; ++i) {
    const uint32_t f = i < 20              ? (b & c) | (~b & d)
                       : i < 40 || i >= 60 ? b ^ c ^ d
                                           : (b & c) | (b & d) | (c & d);
    const uint32_t k = i < 20 ? 0x5a827999 : i < 40 ? 0x6ed9eba1 : i < 60 ? 0x8f1bbcdc : 0xca62c1d6;
    const uint32_t next = std::rotl(a, 5) + f + e + k + w[i];
    e = d;
    d = c;
    c = std::rotl(b, 30);
    b = a;
    a = next;
  }
  const uint32_t add[5] = {a, b, c, d, e};
  for (size_t i = 0; i < 5; ++i)
    state[i] += add[i];
}

}  // namespace

Digest::Digest(Kind kind) : kind_(kind) {
  constexpr uint32_t kStart1[5] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
  constexpr uint32_t kStart256[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                     0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  if (kind == Kind::sha1)
    std::copy_n(kStart1, 5, state_);
  else
    std::copy_n(kStart256, 8, state_);
}

void Digest::block(const uint8_t* bytes) {
  if (kind_ == Kind::sha1)
    sha1_block(state_, bytes);
  else
    sha256_block(state_, bytes);
}

void Digest::add(std::string_view bytes) {
  size_t filled = size_ % 64;
  size_ += bytes.size();
  while (!bytes.empty()) {
    if (filled == 0 && bytes.size() >= 64) {
      block(reinterpret_cast<const uint8_t*>(bytes.data()));
      bytes.remove_prefix(64);
      continue;
    }
    const size_t take = std::min(64 - filled, bytes.size());
    std::memcpy(rest_ + filled, bytes.data(), take);
    bytes.remove_prefix(take);
    filled += take;
    if (filled < 64) return;
    block(rest_);
    filled = 0;
  }
}

std::string Digest::hex() {
  const uint64_t bits = size_ * 8;
  std::string end(1, '\x80');
  end.append((119 - size_ % 64) % 64, '\0');
  for (int shift = 56; shift >= 0; shift -= 8)
    end += static_cast<char>(bits >> shift & 0xFF);
  add(end);
  std::string out;
  for (size_t i = 0; i < (kind_ == Kind::sha1 ? 5U : 8U); ++i)
    for (int shift = 28; shift >= 0; shift -= 4)
      out += "0123456789abcdef"[state_[i] >> shift & 15];
  return out;
}

Result<std::string> file_digest(const std::string& path, bool as_git) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (!file) return io_error(path + ": cannot be read: " + std::strerror(errno));
  Digest digest(as_git ? Digest::Kind::sha1 : Digest::Kind::sha256);
  if (as_git) {
    if (std::fseek(file.get(), 0, SEEK_END) != 0)
      return io_error(path + ": cannot be read: " + std::strerror(errno));
    digest.add("blob " + std::to_string(std::ftell(file.get())) + std::string(1, '\0'));
    if (std::fseek(file.get(), 0, SEEK_SET) != 0)
      return io_error(path + ": cannot be read: " + std::strerror(errno));
  }
  std::vector<char> buffer(1 << 20);
  while (const size_t got = std::fread(buffer.data(), 1, buffer.size(), file.get()))
    digest.add({buffer.data(), got});
  if (std::ferror(file.get())) return io_error(path + ": cannot be read to its end");
  return digest.hex();
}

}  // namespace fovea::hub
