#pragma once
// Marks functions that host and device code share; nothing to a host compiler.
#ifdef __CUDACC__
#define FOVEA_HOST_DEVICE __host__ __device__
#else
#define FOVEA_HOST_DEVICE
#endif
