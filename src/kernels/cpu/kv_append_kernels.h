#pragma once
// Writing a row of K or V, for one instruction set (kv_append-inl.h). All write the same bits.
#include <cstdint>

#include "fovea/dtype.h"

namespace fovea::kv_append {

struct Kernels {
  /// Rounds x[0, n) to `dtype` at `out`: fp8 after a division by `scale`, with saturation; int8 likewise, to
  /// [-127, 127]; the others as they are. Finite x and a positive scale for int8.
  void (*store)(const float* x, int64_t n, float scale, KvCacheDType dtype, void* out);
  /// The largest |x|; NaN when one of x is NaN or infinite; 0 when there is none.
  float (*max_magnitude)(const float* x, int64_t n);
};

extern const Kernels kGenericKernels;
extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512Kernels;

/// The kernels for current_isa().
const Kernels& current_kernels();

}  // namespace fovea::kv_append
