#pragma once
// Which kernel of which family serves a phase of a layer, as the planner and a launch see it. Host code,
// without CUDA.
#include "fovea/attention.h"
#include "kernels/cuda/sm80/params.h"
#include "kernels/cuda/sm80/select.h"

namespace fovea::cuda {

/// Kernels that are written alike and have a select() of their own.
enum class Family : uint8_t { sm80 };

/// Kernels for few query rows against many keys; for many rows; and for many rows in small tiles, with the
/// same bits, where a step has too few large ones for the device.
enum class KernelUse : uint8_t { decode, extend, extend_small };

/// A compiled kernel; all families say what a schedule must know in the same words.
struct KernelChoice {
  Family family = Family::sm80;
  sm80::KernelInfo kernel;
  /// Sequences with more query rows are never split.
  int max_split_tokens = 0;
};

/// What the elements of `spec`'s cache are to a kernel whose queries have spec.dtype. Error: a type that
/// kernels don't read beside these queries.
Result<KvType> kv_type(const AttentionSpec& spec);

/// Anything but the causal limit and the sequence's end decides what a row sees, or changes a score; or the
/// largest product is not the largest score (scale < 0).
bool needs_general_kernel(const AttentionSpec& spec);

/// Errors: those of the family's select().
Result<KernelChoice> choose_kernel(Family family, const AttentionSpec& spec, KernelUse use);

}  // namespace fovea::cuda
