#pragma once
// Rows of an operation on one thread or on all.
#include <cstdint>

#include "base/thread_pool.h"

namespace fovea {

/// One core does about 4 elements a nanosecond in cache, and sharing a job costs a few microseconds.
inline constexpr double kElementsPerNs = 4;
inline constexpr int64_t kSharedElements = 1 << 15;

/// f(begin, end) for ranges that cover all rows. `work`: elements, or as many as cost the same; few stay on
/// the calling thread.
template <class F>
void for_row_ranges(int64_t rows, int64_t work, ThreadPool& pool, const F& f) {
  if (work < kSharedElements) {
    if (rows > 0) f(int64_t{0}, rows);
    return;
  }
  const auto range = [&](int64_t begin, int64_t end, int) { f(begin, end); };
  pool.parallel_ranges(rows, 1, range, Work{static_cast<double>(work) / kElementsPerNs});
}

/// f(row) for all rows, as above.
template <class F>
void for_rows(int64_t rows, int64_t work, ThreadPool& pool, const F& f) {
  for_row_ranges(rows, work, pool, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      f(r);
  });
}

}  // namespace fovea
