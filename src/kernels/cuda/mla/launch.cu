#include "kernels/cuda/mla/launch.h"

#include "fovea/result.h"
#include "kernels/cuda/mla/combine.cuh"
#include "kernels/cuda/mla/launch-inl.cuh"

namespace fovea::cuda::mla {
namespace {

/// The runtime caches these attributes: a query takes tens of nanoseconds.
void read_device(Launch& l) {
  int device = 0;
  l.check(cudaGetDevice(&device), "cudaGetDevice");
  if (l.ok())
    l.check(cudaDeviceGetAttribute(&l.major, cudaDevAttrComputeCapabilityMajor, device),
            "cudaDeviceGetAttribute");
  if (l.ok())
    l.check(cudaDeviceGetAttribute(&l.multiprocessors, cudaDevAttrMultiProcessorCount, device),
            "cudaDeviceGetAttribute");
}

template <int kValue>
auto combine_of(QueryType q) {
  return q == QueryType::f16 ? combine_splits<__half, kValue> : combine_splits<__nv_bfloat16, kValue>;
}

enum class Kernels : uint8_t { sm80, sm90, sparse_sm80, sparse_sm90 };

bool queue_kernel(Kernels kernels, Launch& l) {
  switch (kernels) {
    case Kernels::sm80: return launch_sm80_bf16(l) || launch_sm80_f16(l);
    case Kernels::sm90: return launch_sm90_bf16(l) || launch_sm90_f16(l);
    case Kernels::sparse_sm80:
      if (l.kernel.kv != KvType::same) return launch_sm80_ds_mla(l);
      return launch_sm80_bf16(l) || launch_sm80_f16(l);
    case Kernels::sparse_sm90: return launch_sm90_sparse(l);
  }
  return false;
}

Status launch(const KernelInfo& kernel, const AttentionParams& params, int max_items, Kernels kernels,
              CUstream_st* stream, LaunchRecord* record) {
  if (params.kv.k_chunk_stride != 0)
    return Error{ErrorCode::unsupported, "pages are x-packed; the MLA kernels take strided ones"};
  if (max_items == 0) return {};
  AttentionParams p = params;
  if (p.partial_rows == 0) p.partial_rows = kernel.rows;
  p.partial_columns = kernel.v_head_dim;
  p.queue = nullptr;  // items are taken by stride
  const bool combines = p.partial_out != nullptr;
  Launch l{kernel, p, max_items, 0, 0, stream};
  read_device(l);
  const bool hopper = kernels == Kernels::sm90 || kernels == Kernels::sparse_sm90;
  if (l.ok() && hopper && l.major != 9)
    return Error{ErrorCode::unsupported,
                 "the sm90 MLA kernels run on compute capability 9.0; the device has " +
                     std::to_string(l.major) + ".x"};
  if (l.ok() && !queue_kernel(kernels, l))
    return Error{ErrorCode::internal, "an MLA kernel that select() doesn't give"};
  if (l.ok() && combines)
    queue(kernel.v_head_dim == kDv ? combine_of<kDv>(kernel.q) : combine_of<kSmallDv>(kernel.q), p,
          std::min<int64_t>(int64_t{max_items} * kCombineShares, int64_t{kCombineCtas} * l.multiprocessors),
          kCombineThreads, 0, l, "launch of the combine kernel");
  if (!l.ok()) {
    cudaGetLastError();  // clears the sticky error; reported here
    return Error{ErrorCode::internal, std::move(l.error)};
  }
  if (record != nullptr) *record = {true, combines};
  return {};
}

}  // namespace

Status launch_sm80(const KernelInfo& kernel, const AttentionParams& params, int max_items,
                   CUstream_st* stream, LaunchRecord* record) {
  return launch(kernel, params, max_items, Kernels::sm80, stream, record);
}

Status launch_sm90(const KernelInfo& kernel, const AttentionParams& params, int max_items,
                   CUstream_st* stream, LaunchRecord* record) {
  return launch(kernel, params, max_items, Kernels::sm90, stream, record);
}

Status launch_sparse_sm80(const KernelInfo& kernel, const AttentionParams& params, int max_items,
                          CUstream_st* stream, LaunchRecord* record) {
  return launch(kernel, params, max_items, Kernels::sparse_sm80, stream, record);
}

Status launch_sparse_sm90(const KernelInfo& kernel, const AttentionParams& params, int max_items,
                          CUstream_st* stream, LaunchRecord* record) {
  return launch(kernel, params, max_items, Kernels::sparse_sm90, stream, record);
}

}  // namespace fovea::cuda::mla
