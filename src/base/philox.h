#pragma once
// Philox4x32-10, the counter-based generator of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as
// easy as 1, 2, 3" (SC 2011). A draw is a pure function of key and counter, without state.
#include <array>
#include <cstdint>

#include "base/host_device.h"

namespace fovea {

using PhiloxBlock = std::array<uint32_t, 4>;

FOVEA_HOST_DEVICE inline PhiloxBlock philox4x32_10(PhiloxBlock counter, std::array<uint32_t, 2> key) {
  constexpr uint64_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9;  // golden ratio
  constexpr uint32_t kWeyl1 = 0xBB67AE85;  // sqrt(3) - 1
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = kMultiplier0 * counter[0];
    const uint64_t p1 = kMultiplier1 * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(p0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

/// 53 random bits, fixed by (seed, position).
FOVEA_HOST_DEVICE inline uint64_t philox_bits(uint64_t seed, uint64_t position) {
  const PhiloxBlock block =
      philox4x32_10({static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), 0, 0},
                    {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return (uint64_t{block[1]} << 32 | block[0]) >> 11;
}

/// Uniform in [0, 1), a multiple of 2^-53: philox_bits() as a fraction.
inline double philox_uniform(uint64_t seed, uint64_t position) {
  return static_cast<double>(philox_bits(seed, position)) * 0x1p-53;
}

/// The seed of a request without one, derived from (engine seed, request id) with a counter word that
/// philox_uniform() never uses.
inline uint64_t derive_seed(uint64_t engine_seed, uint64_t request_id) {
  const PhiloxBlock block =
      philox4x32_10({static_cast<uint32_t>(request_id), static_cast<uint32_t>(request_id >> 32), 0, 1},
                    {static_cast<uint32_t>(engine_seed), static_cast<uint32_t>(engine_seed >> 32)});
  return uint64_t{block[1]} << 32 | block[0];
}

/// The seed of answer `index` of a request. The first answer uses the request's seed, so it does not change
/// with n.
inline uint64_t choice_seed(uint64_t seed, int index) {
  if (index == 0) return seed;
  const PhiloxBlock block = philox4x32_10({static_cast<uint32_t>(index), 0, 0, 2},
                                          {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return uint64_t{block[1]} << 32 | block[0];
}

}  // namespace fovea
