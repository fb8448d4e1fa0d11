#pragma once
// The indexers of sparse attention that operations on a GPU have.

namespace fovea {

/// Elements of an index head, and the most heads.
inline constexpr int kGpuIndexDim = 128, kGpuIndexHeads = 64;

}  // namespace fovea
