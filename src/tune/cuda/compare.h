#pragma once
#include <cstddef>
#include <cstdint>

struct CUstream_st;

namespace fovea::tune {

/// Adds to `differ` the words of 4 bytes in which a and b, of `words` words, differ. Returns a CUDA error
/// code.
int count_different_words(const void* a, const void* b, size_t words, unsigned long long* differ,
                          CUstream_st* stream);

/// Fills with bf16 (or, read as f16, likewise small) random numbers of either sign.
int fill_random(void* to, size_t words, uint32_t seed, CUstream_st* stream);

}  // namespace fovea::tune
