#pragma once
// Adapters of experts (README.md): for each pair of a row and one of its experts, that expert's module of the
// row's adapter.
#include <cstdint>

#include "fovea/dtype.h"
#include "fovea/result_fwd.h"

namespace fovea {
class CudaStream;
}

namespace fovea::cuda {

/// One product of a layer's experts, and a step's pairs: pair = row * experts_per_token + place among the
/// row's experts.
struct ExpertLoraParams {
  DType dtype = DType::bf16;  ///< of x and the matrices
  // Slots and places as in LoraParams, of expert 0; those of expert e are e * line_stride lines and e *
  // stride elements, times the rank, further on.
  const void* slots = nullptr;
  int64_t slot_bytes = 0, matrices = 0, a = 0, b = 0, stride = 0;
  int line = 0, line_stride = 0;
  int64_t k = 0, a_stride = 0;       ///< inputs, a multiple of 8 if 16-bit; elements
  int64_t n = 0;                     ///< outputs
  int modules = 1;                   ///< 1 or 2
  int64_t second_output = 0;         ///< the first output of the second module
  int max_rank = 0;                  ///< of a slot
  const int32_t* slot = nullptr;     ///< [rows], negative = none (launch_row_slots)
  const int32_t* experts = nullptr;  ///< [rows, experts_per_token]; null: all rows have expert 0
  int num_experts = 1, experts_per_token = 1;
  int64_t rows = 0;
  const void* x = nullptr;  ///< [rows, k], 16-bit: 16-byte aligned, the stride a multiple of 8
  int64_t x_stride = 0;
  const int32_t* position = nullptr;  ///< [pairs]: the pair's place in x; null: its row
  float* low = nullptr;               ///< f32 scratch [pairs, modules * max_rank]
  float* shares = nullptr;            ///< f32 [pairs, n]
  bool adds = false;                  ///< to `shares`; else pairs without the module get zeros
};

/// shares = scale * (x A^T) B^T of each pair, in fp32. Each rank of x A^T is 32 chains of fma, one for a
/// lane, that are added in a tree; an output is a chain of fma over ascending ranks: a pair's bits depend on
/// its values and its module alone. Queues two launches, allocates nothing.
Status launch_expert_lora(const ExpertLoraParams& params, CudaStream& stream);

/// slot[row] of each row of the tiles (LoraParams::order, tiles). One launch.
Status launch_row_slots(const int32_t* order, const int32_t* tiles, int64_t num_tiles, int32_t* slot,
                        CudaStream& stream);

}  // namespace fovea::cuda
