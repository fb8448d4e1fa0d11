#pragma once
// Parameters of the Hopper kernel, and the shared memory of its CTAs.
#include <cuda.h>

#include "kernels/cuda/mla/policy.h"
#include "kernels/cuda/tiles/mbarrier.cuh"

namespace fovea::cuda::mla {

struct Sm90Params {
  AttentionParams p;
  float scale = 0;    ///< from q.k to a score in log2 units
  int box_keys = 64;  ///< keys of a TMA box; divides the tile and the page size
  CUtensorMap keys;   ///< [page][slot][576]
};

/// The two parts of a tile of keys that are loaded and released apart: panels 0 to 3, whose values the scorer
/// multiplies; panels 4 to 8: the values of the other warpgroup, and rope.
enum class Part : uint32_t { left, right };

struct Sm90Shared {
  uint32_t base;  ///< a multiple of 1024

  FOVEA_DEVICE uint32_t query() const { return base; }
  FOVEA_DEVICE uint32_t keys(uint32_t slot) const {
    return base + Sm90Policy::kKeysOffset + slot * Sm90Policy::kTileBytes;
  }
  FOVEA_DEVICE uint32_t probabilities() const { return base + Sm90Policy::kProbabilitiesOffset; }
  /// By which O of a row is multiplied before the values of the tile whose probabilities are there.
  FOVEA_DEVICE uint32_t factor(int row) const {
    return base + Sm90Policy::kFactorsOffset + static_cast<uint32_t>(row) * 4;
  }
  FOVEA_DEVICE uint32_t target(int row) const {
    return base + Sm90Policy::kTargetsOffset + static_cast<uint32_t>(row) * 8;
  }
  FOVEA_DEVICE uint32_t query_full() const { return base + Sm90Policy::kBarriersOffset; }
  FOVEA_DEVICE uint32_t query_empty() const { return query_full() + 8; }
  FOVEA_DEVICE uint32_t full(uint32_t slot, Part part) const {
    return query_full() + 16 + (slot * 2 + static_cast<uint32_t>(part)) * 16;
  }
  FOVEA_DEVICE uint32_t empty(uint32_t slot, Part part) const { return full(slot, part) + 8; }

  /// Called by one thread. `full` barriers take that many arrivals, `empty` ones of keys one from each of
  /// `ctas`.
  FOVEA_DEVICE void init(uint32_t query_arrivals, uint32_t key_arrivals, uint32_t ctas) const {
    mbarrier_init(query_full(), query_arrivals);
    mbarrier_init(query_empty(), 1);
    for (uint32_t slot = 0; slot < Sm90Policy::kStages; ++slot)
      for (const Part part : {Part::left, Part::right}) {
        mbarrier_init(full(slot, part), key_arrivals);
        mbarrier_init(empty(slot, part), ctas);
      }
    mbarrier_init_fence();
  }
  static constexpr uint32_t kQueryWarps = 3;  ///< of the producer; the fourth loads keys
};

/// Named barriers between the two consumer warpgroups, of 256 threads: probabilities and factors, or targets,
/// are there; they have been read. And one among the scorer's 128.
enum NamedBarrier : uint32_t { kPublished = 1, kRead = 2, kScorer = 3 };

}  // namespace fovea::cuda::mla
