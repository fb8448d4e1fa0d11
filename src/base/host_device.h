#pragma once
// Marks functions shared by host and device code; expands to nothing in a host compiler.
#ifdef __CUDACC__
#define FOVEA_HOST_DEVICE __host__ __device__
#else
#define FOVEA_HOST_DEVICE
#endif

/// Disables unrolling of the next loop in device code: code that runs once per step is bound by instruction
/// fetch.
#ifdef __CUDA_ARCH__
#define FOVEA_ROLLED _Pragma("unroll 1")
#else
#define FOVEA_ROLLED
#endif
