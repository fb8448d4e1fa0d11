#pragma once
// NVTX ranges, which tools like Nsight Systems show.

namespace fovea::profile {

/// Starts watching with kNvtx if such a tool is attached to the process.
void attach_nvtx();

/// Opens a range on this thread: `name` and, if it is not negative, the layer.
void push_nvtx(const char* name, int layer);
void pop_nvtx();

}  // namespace fovea::profile
