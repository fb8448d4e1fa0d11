#include "model/dummy.h"

#include <cmath>

#include "base/check.h"
#include "base/float16.h"
#include "base/thread_pool.h"

namespace fovea {
namespace {

/// The finaliser of SplitMix64: every input bit affects every output bit.
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

uint64_t key_of(uint64_t seed, std::string_view name) {
  uint64_t key = mix(seed);
  for (const char c : name)
    key = mix(key ^ static_cast<unsigned char>(c));
  return key;
}

/// x with P(normal < x) = p, by bisection of erfc: exact, and runs only 4096 times.
double normal_quantile(double p) {
  double low = -10, high = 10;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (0.5 * std::erfc(-middle / std::sqrt(2.0)) < p ? low : high) = middle;
  }
  return (low + high) / 2;
}

/// One hash yields four elements, 12 bits each.
template <class T, size_t N>
void draw(uint64_t key, const T (&table)[N], int64_t first, int64_t begin, int64_t end, T* out) {
  for (int64_t i = begin; i < end; i += 4) {
    const uint64_t bits = mix(key + static_cast<uint64_t>(first + i) / 4);
    for (int64_t j = 0; j < 4 && i + j < end; ++j)
      out[i + j] = table[bits >> (16 * j) & (N - 1)];
  }
}

}  // namespace

DummyWeights::DummyWeights(uint64_t seed, DType dtype) : seed_(seed), dtype_(dtype) {
  for (int i = 0; i < kSteps; ++i) {
    table_[i] = static_cast<float>(kStd * normal_quantile((i + 0.5) / kSteps));
    half_[i] = dtype == DType::f16 ? float_to_fp16(table_[i]) : float_to_bf16(table_[i]);
  }
}

void DummyWeights::fill(std::string_view name, int64_t first, int64_t count, void* out,
                        ThreadPool& pool) const {
  FOVEA_CHECK(first % 4 == 0);
  const uint64_t key = key_of(seed_, name);
  pool.parallel_ranges(count, 4,
                       [&](int64_t begin, int64_t end, int) { draw_range(key, first, begin, end, out); });
}

void DummyWeights::fill(std::string_view name, int64_t first, int64_t count, void* out) const {
  FOVEA_CHECK(first % 4 == 0);
  draw_range(key_of(seed_, name), first, 0, count, out);
}

void DummyWeights::draw_range(uint64_t key, int64_t first, int64_t begin, int64_t end, void* out) const {
  if (dtype_ == DType::f32)
    draw(key, table_, first, begin, end, static_cast<float*>(out));
  else
    draw(key, half_, first, begin, end, static_cast<uint16_t*>(out));
}

void DummyWeights::fill_vector(std::string_view name, float mean, int64_t count, float* out) const {
  draw(key_of(seed_, name), table_, 0, 0, count, out);
  for (int64_t i = 0; i < count; ++i)
    out[i] += mean;
}

}  // namespace fovea
