#pragma once
// Times linear().
#include <cstdint>

#include "base/thread_pool.h"
#include "fovea/dtype.h"

namespace fovea {

struct LinearTiming {
  double seconds = 0;  // of one call, in the best of the batches of at least 10 ms
  double bytes = 0;    // weights, read once, and x and y
  double flops = 0;    // 2 m n k
};

/// linear() of x [m, k] with W [n, k]. Calls rotate over enough copies of W (at least 256 MiB, 2 copies) that
/// none is in a cache, and go on for about `min_seconds`.
LinearTiming bench_linear(int64_t m, int64_t n, int64_t k, DType storage, ThreadPool& pool,
                          double min_seconds = 0.3);

}  // namespace fovea
