#pragma once
// Damage to the current GPU, for tests of failures. The process cannot use the GPU afterwards.

namespace fovea::test {

/// A kernel traps: all work of the process on the GPU fails from then on.
void trap_gpu();

/// A kernel takes all multiprocessors for about this long (at most 30 seconds), so no other kernel begins.
void occupy_gpu(double seconds);

}  // namespace fovea::test
