#pragma once
// Forward declarations of the 16-bit types of cuda_fp16.h and cuda_bf16.h, for host code compiled without
// CUDA.
struct __half;
struct __nv_bfloat16;
