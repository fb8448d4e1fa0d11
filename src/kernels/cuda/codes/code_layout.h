#pragma once
// How quantised weights of 4 and 8 bits lie in a GPU's memory: in the order in which the lanes of a warp hold
// the A operand of m16n8k16, so that a lane reads its codes by 16-byte loads and widens them in registers.
// Plain functions for host and device.
//
// As in packed_layout.h, a weight [n, k] is cut into panels of 16 outputs (a gated pair interleaved by 8) and
// blocks of 64 inputs, and the blocks of a panel are contiguous. Lane 4 g + q of a block holds outputs g and
// g + 8 and, of each 16 inputs, 2 q, 2 q + 1, 2 q + 8 and 2 q + 9.
//
//   e4m3, 1 KiB: two parts of 32 inputs of [lane][16 bytes]: for each of the part's two k16 steps 4 bytes of
//     output g, then 4 of output g + 8: bytes 1 and 3 are inputs 2 q and 2 q + 1, bytes 0 and 2 are inputs
//     2 q + 8 and 2 q + 9.
//   mxfp4, 544 bytes: [lane][16 bytes], then the scales. A lane has a 4-byte word for each 32 inputs and each
//     of its outputs (inputs 0-31 of g, of g + 8, inputs 32-63 of g, of g + 8). A half of a word has one of
//     each pair of inputs; the bits of four values lie so that few operations bring each to bf16's places
//     (mxfp4_bit()). The scales: 4 bytes for each g, in the order of the words.
//
// Padding is zero.
#include <cstdint>

#include "base/host_device.h"
#include "kernels/cuda/linear/packed_layout.h"

namespace fovea::cuda {

enum class WeightCode : uint8_t {
  none,   ///< 16-bit or fp32 values
  mxfp4,  ///< e2m1, for each 32 inputs of an output a scale 2^(byte - 127); k is a multiple of 32
  e4m3,   ///< e4m3 without NaN; fp32 scales are applied to sums
};

FOVEA_HOST_DEVICE constexpr int code_block_bytes(WeightCode code) {
  return code == WeightCode::mxfp4 ? 544 : 1024;
}

/// Bytes of a weight. `gated`: n counts gates and ups.
FOVEA_HOST_DEVICE constexpr int64_t code_bytes(WeightCode code, int64_t n, int64_t k, bool gated = false) {
  return packed_panels(n, gated) * packed_blocks(k) * code_block_bytes(code);
}

/// Bytes of a row of codes as launch_pack_codes() takes it: e4m3: k; mxfp4: k / 2, value 2 i in the low half
/// of byte i, then the k / 32 scales.
FOVEA_HOST_DEVICE constexpr int64_t code_row_bytes(WeightCode code, int64_t k) {
  return code == WeightCode::mxfp4 ? k / 2 + k / 32 : k;
}

inline constexpr int kMxfp4ScaleOffset = 512;  // of the scales in a block

/// The bit of half a word that holds bit `bit` (0 = sign, then exponent high, exponent low, mantissa) of
/// value i.
FOVEA_HOST_DEVICE constexpr int mxfp4_bit(int i, int bit) {
  constexpr int kBits[4][4] = {{15, 8, 7, 6}, {12, 5, 4, 3}, {9, 2, 1, 0}, {14, 11, 10, 13}};
  return kBits[i][bit];
}

}  // namespace fovea::cuda
