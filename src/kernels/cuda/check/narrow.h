#pragma once
// Copies callers' index arrays, 64-bit or strided, into the dense 32-bit arrays that kernels read.
#include <cstdint>
#include <span>
#include <string_view>

#include "fovea/result_fwd.h"

struct CUstream_st;

namespace fovea::cuda {

/// One array, or the rows of a table; device memory.
struct NarrowArray {
  std::string_view name;  ///< for narrow_status
  const void* from = nullptr;
  int32_t* to = nullptr;
  int64_t rows = 1, columns = 0;
  int64_t from_stride = 0, to_stride = 0;  ///< elements between rows
  /// Whether a number beyond 32 bits is an error. Not in page tables, whose entries past a sequence's pages
  /// are arbitrary.
  bool checked = true;
  bool wide = true;  ///< `from` is int64, else int32
  int64_t from_column_stride = 1;
};

inline constexpr int kMaxNarrowArrays = 8;

/// Queues one kernel that copies all of `arrays`, at most kMaxNarrowArrays. A number beyond 32 bits becomes
/// the nearest 32-bit one, which is no valid length, row or page; in array i it sets bit i of *beyond (device
/// memory), whose other bits are 0. Can be captured. Errors: too many arrays, arrays missing, negative sizes,
/// rows of `to` that overlap; those of the CUDA runtime.
Status launch_narrow(std::span<const NarrowArray> arrays, uint32_t* beyond, CUstream_st* stream);

/// The error for *beyond, copied to the host: it names the first array whose numbers were clamped.
Status narrow_status(std::span<const NarrowArray> arrays, uint32_t beyond);

}  // namespace fovea::cuda
