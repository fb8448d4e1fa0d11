#pragma once
// The front of the MLA kernels. Host code.
#include "fovea/result_fwd.h"
#include "kernels/cuda/common/kernel_info.h"
#include "kernels/cuda/common/launch_record.h"

struct CUstream_st;

namespace fovea::cuda::mla {

/// Queues the kernel that select() returned, and the combine kernel where keys were split. `max_items` bounds
/// *params.num_items. params.kv.v is not read: a value is the first 512 elements of its key's record. Errors:
/// a ragged cache of unknown size or strides that a tensor map cannot express (sm90); those of the CUDA
/// runtime.
Status launch_sm80(const KernelInfo& kernel, const AttentionParams& params, int max_items,
                   CUstream_st* stream, LaunchRecord* record);
Status launch_sm90(const KernelInfo& kernel, const AttentionParams& params, int max_items,
                   CUstream_st* stream, LaunchRecord* record);

/// launch_sm80() for the items that launch_lists() made; a kernel of KvType::e4m3 reads records of
/// fp8_ds_mla.
Status launch_sparse_sm80(const KernelInfo& kernel, const AttentionParams& params, int max_items,
                          CUstream_st* stream, LaunchRecord* record);
/// The same with Hopper's instructions; queries in bfloat16.
Status launch_sparse_sm90(const KernelInfo& kernel, const AttentionParams& params, int max_items,
                          CUstream_st* stream, LaunchRecord* record);

}  // namespace fovea::cuda::mla
