#pragma once
// A CUDA graph: work captured once and replayed.
#include <cuda_runtime_api.h>

#include <functional>
#include <memory>

#include "device/cuda/cuda_stream.h"
#include "fovea/result_fwd.h"

namespace fovea {

class CudaGraph {
 public:
  /// Captures what `work` queues on the stream that it is given; nothing runs yet. Errors: those of `work`;
  /// work that can't be captured (a synchronisation, an allocation outside stream order).
  static Result<CudaGraph> capture(CudaStream& stream, const std::function<Status(CudaStream&)>& work);

  /// Queues the graph. Kernel arguments keep their values from the capture; memory is read at replay.
  Status replay(const CudaStream& stream) const;

  size_t nodes() const { return nodes_; }

 private:
  explicit CudaGraph(cudaGraphExec_t handle, size_t nodes)
      : handle_(handle, [](cudaGraphExec_t graph) { cudaGraphExecDestroy(graph); }), nodes_(nodes) {}

  std::unique_ptr<CUgraphExec_st, void (*)(cudaGraphExec_t)> handle_;
  size_t nodes_ = 0;
};

}  // namespace fovea
