#include "device/cuda/cuda_graph.h"

#include <utility>

#include "device/cuda/cuda_device.h"
#include "device/cuda/cuda_error.h"
#include "fovea/result.h"

namespace fovea {

Result<CudaGraph> CudaGraph::capture(CudaStream& stream, const std::function<Status(CudaStream&)>& work) {
  const CurrentDevice current(stream.device());
  // Other threads may continue with calls that a capture forbids.
  FOVEA_CUDA_TRY(cudaStreamBeginCapture(stream.handle(), cudaStreamCaptureModeThreadLocal));
  Status status = work(stream);
  cudaGraph_t raw = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(stream.handle(), &raw);
  const std::unique_ptr<CUgraph_st, void (*)(cudaGraph_t)> graph(raw,
                                                                 [](cudaGraph_t g) { cudaGraphDestroy(g); });
  if (!status) {
    cudaGetLastError();  // the broken capture is a consequence of this error
    return std::move(status).error();
  }
  if (ended != cudaSuccess) return cuda_error(ended, "cudaStreamEndCapture", __FILE__, __LINE__);
  size_t nodes = 0;
  FOVEA_CUDA_TRY(cudaGraphGetNodes(graph.get(), nullptr, &nodes));
  cudaGraphExec_t instance = nullptr;
  FOVEA_CUDA_TRY(cudaGraphInstantiate(&instance, graph.get(), 0));
  return CudaGraph(instance, nodes);
}

Status CudaGraph::replay(const CudaStream& stream) const {
  FOVEA_CUDA_TRY(cudaGraphLaunch(handle_.get(), stream.handle()));
  return {};
}

}  // namespace fovea
