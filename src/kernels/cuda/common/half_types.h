#pragma once
// Forward declarations of the 16-bit types of cuda_fp16.h and cuda_bf16.h, for host code compiled without
// CUDA.
struct __half;         // NOLINT(bugprone-reserved-identifier): CUDA's own name
struct __nv_bfloat16;  // NOLINT(bugprone-reserved-identifier)
