#include "kernels/cuda/codes/pack_codes.h"

#include <algorithm>
#include <string>

#include "device/cuda/cuda_error.h"
#include "device/cuda/cuda_stream.h"

namespace fovea::cuda {
namespace {

struct PackArgs {
  const uint8_t* src;
  uint8_t* dst;
  int64_t k, row_bytes;
  int64_t first_row, rows, padded_rows;  ///< of the part; padded rows are zeros
  PackedPart part;
};

/// Where a row's codes of the 32 inputs `part` go: block, and the lanes 4 g to 4 g + 3.
struct RowPlace {
  uint8_t* block;
  int g;     ///< row of the panel % 8
  int high;  ///< row of the panel / 8
};

__device__ RowPlace place_of(const PackArgs& a, int64_t row, int64_t part, int block_bytes) {
  const int64_t packed = packed_row(a.part, a.first_row + row);
  const int64_t block = packed / kPanelRows * packed_blocks(a.k) + part / 2;
  const int in_panel = static_cast<int>(packed % kPanelRows);
  return {a.dst + block * block_bytes, in_panel % 8, in_panel / 8};
}

__device__ void pack_e4m3(const PackArgs& a, int64_t row, int64_t part) {
  const RowPlace to = place_of(a, row, part, code_block_bytes(WeightCode::e4m3));
  const uint8_t* from = a.src + row * a.row_bytes + part * 32;
  const auto value = [&](int i) -> uint32_t { return row < a.rows && part * 32 + i < a.k ? from[i] : 0; };
  for (int step = 0; step < 2; ++step)
    for (int q = 0; q < 4; ++q) {
      const int i = 16 * step + 2 * q;
      const uint32_t word = value(i) << 8 | value(i + 1) << 24 | value(i + 8) | value(i + 9) << 16;
      uint8_t* at = to.block + part % 2 * 512 + (4 * to.g + q) * 16 + step * 8 + to.high * 4;
      *reinterpret_cast<uint32_t*>(at) = word;
    }
}

__device__ void pack_mxfp4(const PackArgs& a, int64_t row, int64_t part) {
  const RowPlace to = place_of(a, row, part, code_block_bytes(WeightCode::mxfp4));
  const uint8_t* from = a.src + row * a.row_bytes;
  const bool exists = row < a.rows && part * 32 < a.k;
  const auto value = [&](int i) -> uint32_t {
    return exists ? from[part * 16 + i / 2] >> (i % 2 * 4) & 15u : 0u;
  };
  for (int q = 0; q < 4; ++q) {
    uint32_t word = 0;
    for (int i = 0; i < 4; ++i)  // inputs 0-7, 8-15, 16-23, 24-31
      for (int half = 0; half < 2; ++half) {
        const uint32_t code = value(8 * i + 2 * q + half);
        for (int bit = 0; bit < 4; ++bit)
          word |= (code >> (3 - bit) & 1u) << (mxfp4_bit(i, bit) + 16 * half);
      }
    *reinterpret_cast<uint32_t*>(to.block + (4 * to.g + q) * 16 + part % 2 * 8 + to.high * 4) = word;
  }
  to.block[kMxfp4ScaleOffset + to.g * 4 + part % 2 * 2 + to.high] =
      exists ? from[a.k / 2 + part] : uint8_t{0};
}

/// Thread = 32 inputs of a row.
__global__ void pack_codes(PackArgs a, bool mxfp4) {
  const int64_t parts = packed_blocks(a.k) * 2;
  const int64_t part = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (part >= parts) return;
  for (int64_t row = blockIdx.y; row < a.padded_rows; row += gridDim.y)
    if (mxfp4)
      pack_mxfp4(a, row, part);
    else
      pack_e4m3(a, row, part);
}

}  // namespace

Status launch_pack_codes(const PackCodesParams& p, CudaStream& stream) {
  const bool gated = p.part != PackedPart::plain, mxfp4 = p.code == WeightCode::mxfp4;
  const int64_t part_rows = gated ? p.n / 2 : p.n;
  if (p.code == WeightCode::none || p.n < 1 || p.k < 1 || p.first_row < 0 || p.rows < 0 ||
      p.first_row + p.rows > part_rows)
    return invalid("packing codes of rows " + std::to_string(p.first_row) + " to " +
                   std::to_string(p.first_row + p.rows) + " of a part of " + std::to_string(part_rows) +
                   " rows and " + std::to_string(p.k) + " inputs; rows of the part are allowed");
  if (mxfp4 && p.k % 32 != 0)
    return invalid("packing MXFP4 of " + std::to_string(p.k) + " inputs; multiples of 32 are allowed");
  if (p.rows == 0) return {};
  PackArgs a{static_cast<const uint8_t*>(p.src),
             static_cast<uint8_t*>(p.dst),
             p.k,
             code_row_bytes(p.code, p.k),
             p.first_row,
             p.rows,
             p.rows,
             p.part};
  const int64_t unit = gated ? 8 : kPanelRows;
  if (p.first_row + p.rows == part_rows) a.padded_rows += (unit - part_rows % unit) % unit;
  constexpr int kThreads = 128;
  const int64_t parts = packed_blocks(p.k) * 2;
  const dim3 grid(static_cast<unsigned>((parts + kThreads - 1) / kThreads),
                  static_cast<unsigned>(std::min<int64_t>(a.padded_rows, 65535)));
  pack_codes<<<grid, kThreads, 0, stream.handle()>>>(a, mxfp4);
  FOVEA_CUDA_TRY(cudaGetLastError());
  return {};
}

}  // namespace fovea::cuda
