#pragma once
// Launches of the operations that kernels/cache/cache_rows.h describes; all pointers are to device memory.
#include "device/cuda/cuda_stream.h"
#include "kernels/cache/cache_rows.h"

namespace fovea::cuda {

/// Rounds as KvCache::append does, bit for bit; norm and rotation in fp32. Errors, before the launch: sizes,
/// strides or pointers that don't go together.
Status launch_append(const AppendParams& params, CudaStream& stream);

/// What a model's attention needs beyond AppendParams.
struct NormRopeAppendParams {
  AppendParams append;  ///< rows are placed by slots or sequences; q_out may be q (in place)
  /// The weights of q_norm and k_norm have num_heads * head_dim and num_kv_heads * head_dim elements and
  /// normalise all heads of a row together.
  bool norm_over_heads = false;
  bool norm_after_rope = false;
  /// q *= 1 + scale * log(1 + floor((positions[t] + 1) / floor)) after norm and rotation, computed in fp64
  /// and rounded once to fp32; scale 0 = off.
  double temperature_scale = 0, temperature_floor = 1;
  const int32_t* positions =
      nullptr;  ///< [tokens]; needed for the temperature alone (append.rope.positions are rows of the tables)
};

/// launch_append() with these. K changes only in the cache, not in place. In one launch.
Status launch_norm_rope_append(const NormRopeAppendParams& params, CudaStream& stream);

/// Records of latent attention: the normed latent [rank], then the rotated key part [rope], shared by all
/// heads.
struct LatentAppendParams {
  int tokens = 0, heads = 0, rank = 0, rope = 0;  ///< rank + rope at most kMaxRowElements
  DType dtype = DType::bf16;                      ///< of q, q_out and record
  const void* q = nullptr;  ///< [tokens, heads, rope]: the part of the queries that rotates
  int64_t q_row_stride = 0, q_head_stride = 0;
  void* q_out = nullptr;  ///< likewise, rotated; not q
  int64_t q_out_row_stride = 0, q_out_head_stride = 0;
  const void* record = nullptr;  ///< [tokens, rank + rope], neither normed nor rotated
  int64_t record_row_stride = 0;
  HeadNorm norm;                               ///< [rank]
  const float *cos = nullptr, *sin = nullptr;  ///< [tokens, rope / 2]
  bool interleaved = false;                    ///< pairs (2 t, 2 t + 1), else (t, t + rope / 2)
  KvView kv;                                   ///< one head of records; V is not written
  const int64_t* slots = nullptr;              ///< [tokens]; below 0 = not written
  int64_t num_slots = 0;                       ///< a slot from here on is not written
};

/// Writes records to the cache, rounded once as launch_append() does, and the rotated queries. In one launch.
/// Errors, before the launch: sizes or pointers that don't go together.
Status launch_latent_append(const LatentAppendParams& params, CudaStream& stream);

/// cos and sin [count, pairs] of positions[count] x frequencies[pairs] (radians a position, fp64), times
/// `factor`, in fp64 rounded once: rope_rows() of kernels/cpu/ops.h.
Status launch_rope_rows(const double* frequencies, int pairs, double factor, const int32_t* positions,
                        int count, float* cos, float* sin, CudaStream& stream);

Status launch_copy_pages(const CopyPages& params, CudaStream& stream);

Status launch_gather_rows(const GatherRows& params, CudaStream& stream);

}  // namespace fovea::cuda
