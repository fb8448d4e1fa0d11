#include <algorithm>

#include "base/cpu_features.h"
#include "kernels/cpu/attn_params.h"

namespace fovea::attn {
namespace {

int64_t round_up(int64_t n, int64_t to) {
  return (n + to - 1) / to * to;
}

}  // namespace

const Kernels& current_kernels() {
#if defined(__x86_64__)
  switch (current_isa()) {
    case Isa::avx512: return kAvx512Kernels;
    case Isa::avx2: return kAvx2Kernels;
    case Isa::generic: break;
  }
#endif
  return kGenericKernels;
}

ScratchLayout scratch_layout(int d, int dv, bool latent) {
  ScratchLayout l;
  int64_t end = 0;
  const auto take = [&end](int64_t floats) {
    const int64_t at = end;
    end += round_up(floats, kPadFloats);
    return at;
  };
  l.dp = round_up(d, kPadFloats);
  l.dvp = round_up(dv, kPadPanel);
  l.q = take(kBlockRows * l.dp);
  l.scores = take(int64_t{kBlockRows} * kTileKeys);
  for (int64_t& state : l.state)
    state = take(kBlockRows * (2 + l.dvp));
  l.lanes = take(int64_t{kBlockRows} * kPadFloats);
  l.alpha = take(kBlockRows);
  l.k = take(kTileKeys * (latent ? round_up(d, kPadPanel) : l.dp));
  l.v = take(latent ? 0 : kTileKeys * l.dvp);
  l.zeros = take(std::max(l.dp, l.dvp));
  l.size = end;
  return l;
}

int64_t record_floats(const ScratchLayout& layout) {
  return layout.dvp + kPadFloats;
}

}  // namespace fovea::attn
