#pragma once
// Packs rows of quantised weights as code_layout.h describes.
#include "fovea/result.h"
#include "kernels/cuda/codes/code_layout.h"

namespace fovea {
class CudaStream;
}

namespace fovea::cuda {

/// Rows of codes that become part of a packed weight.
struct PackCodesParams {
  WeightCode code = WeightCode::e4m3;
  int64_t n = 0, k = 0;       ///< of the whole weight (gated: gates and ups)
  const void* src = nullptr;  ///< [rows][code_row_bytes()] on the device
  PackedPart part = PackedPart::plain;
  int64_t first_row = 0, rows = 0;  ///< the slice of the part: [0, n) of plain, [0, n / 2) of gate and up
  void* dst = nullptr;              ///< code_bytes(code, n, k, part != plain), 16-byte aligned
};

/// Packs the slice, and zeros the padding of its rows; the slice with a part's last row zeros the rows of
/// padding after it too. Slices may come in any order.
Status launch_pack_codes(const PackCodesParams& params, CudaStream& stream);

}  // namespace fovea::cuda
