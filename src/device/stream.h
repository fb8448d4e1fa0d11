#pragma once
// Where work runs. On a CPU a stream is a thread team and every call is synchronous.
#include "base/thread_pool.h"

namespace fovea {

class Stream {
 public:
  explicit Stream(ThreadPool& pool) : pool_(&pool) {}
  ThreadPool& pool() const { return *pool_; }

 private:
  ThreadPool* pool_;
};

}  // namespace fovea
