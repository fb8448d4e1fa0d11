#pragma once
// The 16-bit types of cuda_fp16.h and cuda_bf16.h by name, for host code that is compiled without CUDA.
struct __half;
struct __nv_bfloat16;
