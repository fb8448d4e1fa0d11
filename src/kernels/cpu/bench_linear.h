#pragma once
// Times linear().
#include <cstdint>

#include "fovea/dtype.h"

namespace fovea {

class ThreadPool;

struct LinearTiming {
  double seconds = 0;       // of one call, the median of batches of at least 10 ms
  double read_seconds = 0;  // of a plain read of the same weights, interleaved with the batches; the median
  double bytes = 0;         // weights, read once, and x and y
  double flops = 0;         // 2 m n k
};

/// linear() of x [m, k] with W [n, k]. Calls rotate over enough copies of W (at least 512 MiB, 2 copies) that
/// none is in a cache, and go on for about `min_seconds`.
LinearTiming bench_linear(int64_t m, int64_t n, int64_t k, DType storage, ThreadPool& pool,
                          double min_seconds = 0.3);

}  // namespace fovea
