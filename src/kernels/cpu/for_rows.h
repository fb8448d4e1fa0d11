#pragma once
// Rows of an operation on one thread or on all.
#include <cstdint>

#include "base/thread_pool.h"

namespace fovea {

/// One core does about 4 elements a nanosecond in cache, and sharing a task costs a few microseconds.
inline constexpr int64_t kSharedElements = 1 << 15;

/// f(row) for all rows. `work`: elements, or as many as cost the same; few stay on the calling thread.
template <class F>
void for_rows(int64_t rows, int64_t work, ThreadPool& pool, const F& f) {
  if (work < kSharedElements) {
    for (int64_t r = 0; r < rows; ++r)
      f(r);
    return;
  }
  pool.parallel_ranges(rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r)
      f(r);
  });
}

}  // namespace fovea
