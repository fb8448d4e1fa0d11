#pragma once
// Marks functions that host and device code share; nothing to a host compiler.
#ifdef __CUDACC__
#define FOVEA_HOST_DEVICE __host__ __device__
#else
#define FOVEA_HOST_DEVICE
#endif

/// Before a loop that must stay one on the device: code that runs once a step waits for its instructions.
#ifdef __CUDA_ARCH__
#define FOVEA_ROLLED _Pragma("unroll 1")
#else
#define FOVEA_ROLLED
#endif
