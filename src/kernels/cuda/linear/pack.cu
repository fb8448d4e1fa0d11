#include <algorithm>
#include <string>

#include "device/cuda/cuda_error.h"
#include "device/cuda/cuda_stream.h"
#include "fovea/result.h"
#include "kernels/cuda/linear/linear.h"

namespace fovea::cuda {
namespace {

struct PackArgs {
  const uint16_t* src;
  uint8_t* dst;
  int64_t src_stride, k;
  int64_t first_row, rows, padded_rows;  ///< of the part; padded rows are zeros
  PackedPart part;
  bool vectors;  ///< rows of src are 16-byte aligned
};

/// Thread = one 16-byte chunk of a packed row.
__global__ void pack_rows(PackArgs a) {
  const int64_t chunks = packed_blocks(a.k) * 8;
  const int64_t chunk = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (chunk >= chunks) return;
  for (int64_t row = blockIdx.y; row < a.padded_rows; row += gridDim.y) {
    uint32_t v[4] = {};
    const int64_t first = chunk * 8;
    if (row < a.rows) {
      const uint16_t* from = a.src + row * a.src_stride + first;
      if (a.vectors && first + 8 <= a.k) {
        const uint4 all = *reinterpret_cast<const uint4*>(from);
        v[0] = all.x, v[1] = all.y, v[2] = all.z, v[3] = all.w;
      } else {
#pragma unroll
        for (int i = 0; i < 8; ++i)
          if (first + i < a.k) v[i / 2] |= uint32_t{from[i]} << (16 * (i % 2));
      }
    }
    const int64_t at = packed_offset(packed_row(a.part, a.first_row + row), first, a.k);
    *reinterpret_cast<uint4*>(a.dst + at) = uint4{v[0], v[1], v[2], v[3]};
  }
}

}  // namespace

Status launch_pack(const PackParams& p, CudaStream& stream) {
  const bool gated = p.part != PackedPart::plain;
  const int64_t part_rows = gated ? p.n / 2 : p.n;
  if (p.n < 1 || p.k < 1 || p.first_row < 0 || p.rows < 0 || p.first_row + p.rows > part_rows)
    return invalid("packing rows " + std::to_string(p.first_row) + " to " +
                   std::to_string(p.first_row + p.rows) + " of a part of " + std::to_string(part_rows) +
                   " rows and " + std::to_string(p.k) + " inputs; rows of the part are allowed");
  if (p.rows == 0) return {};
  PackArgs a{static_cast<const uint16_t*>(p.src),
             static_cast<uint8_t*>(p.dst),
             p.src_stride,
             p.k,
             p.first_row,
             p.rows,
             p.rows,
             p.part,
             false};
  const int64_t unit = gated ? 8 : kPanelRows;
  if (p.first_row + p.rows == part_rows) a.padded_rows += (unit - part_rows % unit) % unit;
  a.vectors = reinterpret_cast<uintptr_t>(p.src) % 16 == 0 && p.src_stride % 8 == 0;
  const int64_t chunks = packed_blocks(p.k) * 8;
  constexpr int kThreads = 128;
  const dim3 grid(static_cast<unsigned>((chunks + kThreads - 1) / kThreads),
                  static_cast<unsigned>(std::min<int64_t>(a.padded_rows, 65535)));
  pack_rows<<<grid, kThreads, 0, stream.handle()>>>(a);
  FOVEA_CUDA_TRY(cudaGetLastError());
  return {};
}

}  // namespace fovea::cuda
