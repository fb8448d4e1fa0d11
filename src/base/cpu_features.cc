#include "base/cpu_features.h"

#include <atomic>

namespace fovea {

std::string_view to_string(Isa isa) {
  switch (isa) {
    case Isa::generic: return "generic";
    case Isa::avx2: return "avx2";
    case Isa::avx512: return "avx512";
  }
  return "?";
}

Isa detect_isa() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (avx2 && avx512) return Isa::avx512;
  if (avx2) return Isa::avx2;
#endif
  return Isa::generic;
}

namespace {
std::atomic<Isa>& chosen() {
  static std::atomic<Isa> isa{detect_isa()};
  return isa;
}
}  // namespace

Isa current_isa() {
  return chosen().load(std::memory_order_relaxed);
}

bool set_isa(Isa isa) {
  if (isa > detect_isa()) return false;
  chosen().store(isa, std::memory_order_relaxed);
  return true;
}

}  // namespace fovea
