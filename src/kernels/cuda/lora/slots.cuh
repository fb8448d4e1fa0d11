#pragma once
// What the kernels of this folder read of a step: arguments, a tile's slot, places of x A^T.
#include <cstddef>
#include <cstdint>

#include "base/host_device.h"
#include "kernels/cuda/lora/lora.h"
#include "kernels/cuda/tiles/common.cuh"

namespace fovea::cuda {

/// As LoraParams.
struct LoraArgs {
  const std::byte* slots;
  int64_t slot_bytes, matrices, a, b;
  int line, k, a_stride, n, modules;
  int first_output[4];
  const int32_t* order;
  const int4* tiles;
  int num_tiles, parts, low_stride;
  const void* x;
  int64_t x_stride;
  float* low;
  int shrinks;    // CTAs of a tile that compute x A^T
  int* counters;  // [tiles, 2]
  bool early_input;
};

inline constexpr int kLoraColumns = 256;  ///< outputs of a CTA, all of one module

FOVEA_HOST_DEVICE constexpr int lora_blocks(int outputs) {
  return (outputs + kLoraColumns - 1) / kLoraColumns;
}

/// The outputs of CTA `block` of a layer's: [first, end) of a module. Arrays are indexed by constants, which
/// keeps them in registers and parameters.
struct LoraColumns {
  int index = 0, first = 0, end = 0;  ///< `index`: of the module

  FOVEA_DEVICE LoraColumns(const LoraArgs& p, int block) {
#pragma unroll
    for (int m = 0; m < 3; ++m) {
      if (m >= p.modules || block < 0) continue;
      first = p.first_output[m] + block * kLoraColumns;
      end = p.first_output[m + 1];
      index = m;
      block -= lora_blocks(p.first_output[m + 1] - p.first_output[m]);
    }
  }
};

/// The place of rank `rank` of all modules, of one part of the inputs.
FOVEA_DEVICE float* low_of(const LoraArgs& p, int place, int part, int rank) {
  return p.low + (static_cast<int64_t>(place) * p.parts + part) * p.low_stride + rank;
}

/// A tile and its adapter's matrices.
template <class T>
struct LoraSlot {
  int slot, first, rows;
  int rank = 8;
  float scale[3] = {};
  const T *a = nullptr, *b = nullptr;

  FOVEA_DEVICE LoraSlot(const LoraArgs& p, int tile) {
    const int4 t = p.tiles[tile];
    slot = t.x, first = t.y, rows = t.z;
    if (slot < 0 || rows == 0) return;
    const std::byte* const memory = p.slots + slot * p.slot_bytes;
    const float4 line = reinterpret_cast<const float4*>(memory)[p.line];
    scale[0] = line.x, scale[1] = line.y, scale[2] = line.z;
    rank = __float_as_int(line.w);
    const auto* const matrices = reinterpret_cast<const T*>(memory + p.matrices);
    a = matrices + p.a * rank;
    b = matrices + p.b * rank;
  }

  FOVEA_DEVICE float scale_of(int module) const {
    return module == 0 ? scale[0] : module == 1 ? scale[1] : scale[2];
  }
  /// Whether the adapter has a module of this layer.
  FOVEA_DEVICE bool adapts() const {
    return slot >= 0 && rows > 0 && (scale[0] != 0.0f || scale[1] != 0.0f || scale[2] != 0.0f);
  }
};

}  // namespace fovea::cuda
