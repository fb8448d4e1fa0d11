#pragma once
// FOVEA_CHECK: for internal bugs only; errors that a caller or a file can cause are Results.
#include <cstdio>
#include <cstdlib>

namespace fovea::detail {
[[noreturn]] inline void check_failed(const char* expr, const char* file, int line) {
  std::fprintf(stderr, "fovea: internal error: %s at %s:%d\n", expr, file, line);
  std::abort();
}
}  // namespace fovea::detail

#define FOVEA_CHECK(expr)                                                  \
  do {                                                                     \
    if (!(expr)) ::fovea::detail::check_failed(#expr, __FILE__, __LINE__); \
  } while (false)

#ifdef NDEBUG
#define FOVEA_DCHECK(expr) ((void)0)
#else
#define FOVEA_DCHECK(expr) FOVEA_CHECK(expr)
#endif
