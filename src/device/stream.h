#pragma once
// An execution queue. A CPU stream is a thread pool on which every call is synchronous; on a GPU, calls queue
// work.
#include "base/check.h"

namespace fovea {

class ThreadPool;

class CudaStream;

class Stream {
 public:
  explicit Stream(ThreadPool& pool) : pool_(&pool) {}
  explicit Stream(CudaStream& cuda) : cuda_(&cuda) {}

  bool on_cpu() const { return pool_ != nullptr; }

  /// The thread pool of a CPU stream.
  ThreadPool& pool() const {
    FOVEA_DCHECK(pool_ != nullptr);
    return *pool_;
  }
  /// The queue of a GPU stream (device/cuda/cuda_stream.h).
  CudaStream& cuda() const {
    FOVEA_DCHECK(cuda_ != nullptr);
    return *cuda_;
  }

 private:
  ThreadPool* pool_ = nullptr;
  CudaStream* cuda_ = nullptr;
};

}  // namespace fovea
