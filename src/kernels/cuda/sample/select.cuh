#pragma once
// Selection over the CTAs of a row by histograms: the bin, or the key, at which the number of elements or
// their mass, counted from the largest logit down, reaches a given value. Counts and masses are integers: the
// result does not depend on how the elements are divided between CTAs, warps and threads.
#include "base/sample_math.h"
#include "kernels/cuda/sample/group.cuh"

namespace fovea::cuda::sampling {

using sample_math::from_order_key;
using sample_math::order_key;

constexpr int kBinBits = 11;
constexpr int kBins = 1 << kBinBits;
constexpr int kMaxListed = 2048;  // entries of a list in shared memory

/// Shared memory of a selection. Masses (44 bits) are added as several 32-bit numbers, for which shared
/// memory has atomic additions: a CTA of a cluster has fewer than 2^17 elements, a single one up to 2^20.
template <int kCluster>
struct SelectShared {
  static constexpr int kParts = kCluster == 1 ? 4 : 3;
  static constexpr int kPartBits = kCluster == 1 ? 11 : 15;
  static constexpr int kSlice = kBins / kCluster;  // bins that a CTA adds up for all

  uint32_t counts[kBins];
  union {
    uint32_t parts[kParts][kBins];
    uint64_t list[kMaxListed];  // of rank 0, when no CTA reads its parts any more
  };
  uint32_t num_listed;  // of rank 0: places of the list that are given away
  uint32_t list_base, list_next;
  // Published: this CTA's slice of the sums over all CTAs, and its totals.
  uint64_t slice_mass[kSlice];
  uint32_t slice_count[kSlice];
  uint64_t total_mass, rest_mass;
  uint32_t total_count;

  uint64_t all_mass[kCluster], all_rest[kCluster];
  uint32_t all_counts[kCluster];
  uint64_t scratch[Group<kCluster>::kWarps];
  // The bin in which the wanted value is reached, its elements, those of larger bins, and their count or
  // mass.
  uint32_t bin, bin_count, larger_count;
  uint64_t above;
};

/// Adds an element to its bin; all lanes of a warp call it. One lane updates an address that all lanes have.
template <bool kMass, int kCluster>
__device__ void add_to_bin(SelectShared<kCluster>& shared, bool valid, uint32_t bin, uint64_t weight) {
  using S = SelectShared<kCluster>;
  constexpr uint32_t kPartMask = (1u << S::kPartBits) - 1;
  const unsigned lanes = __ballot_sync(kAllLanes, valid);
  if (lanes == 0) return;
  const uint32_t first = __shfl_sync(kAllLanes, bin, __ffs(static_cast<int>(lanes)) - 1);
  if (__all_sync(kAllLanes, !valid || bin == first)) {
    if (lane_id() == 0) atomicAdd(&shared.counts[first], static_cast<uint32_t>(__popc(lanes)));
    if constexpr (kMass)
#pragma unroll
      for (int part = 0; part < S::kParts; ++part) {
        const uint32_t mine = static_cast<uint32_t>(weight >> (part * S::kPartBits)) & kPartMask;
        const uint32_t sum = __reduce_add_sync(kAllLanes, valid ? mine : 0u);
        if (lane_id() == 0 && sum != 0) atomicAdd(&shared.parts[part][first], sum);
      }
  } else if (valid) {
    atomicAdd(&shared.counts[bin], 1u);
    if constexpr (kMass)
#pragma unroll
      for (int part = 0; part < S::kParts; ++part) {
        const uint32_t mine = static_cast<uint32_t>(weight >> (part * S::kPartBits)) & kPartMask;
        if (mine != 0) atomicAdd(&shared.parts[part][bin], mine);
      }
  }
}

/// Sets this CTA's bins to 0. Ends with a barrier.
template <bool kMass, int kCluster>
__device__ void clear_bins(SelectShared<kCluster>& shared) {
  for (int i = static_cast<int>(threadIdx.x); i < kBins; i += Group<kCluster>::kThreads) {
    shared.counts[i] = 0;
    if constexpr (kMass)
#pragma unroll
      for (int part = 0; part < SelectShared<kCluster>::kParts; ++part)
        shared.parts[part][i] = 0;
  }
  __syncthreads();
}

/// Adds up the bins of all CTAs, slice by slice, and gives every CTA the totals of the slices; `rest` = this
/// thread's mass outside of the bins. In shared.slice_mass, all_mass and all_rest are masses, or with !kMass
/// counts.
template <bool kMass, int kCluster>
__device__ void reduce_bins(SelectShared<kCluster>& shared, uint64_t rest) {
  using S = SelectShared<kCluster>;
  using G = Group<kCluster>;
  G::sync();
  const int first = G::rank() * S::kSlice;
  uint64_t mass_sum = 0, count_sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < S::kSlice; i += G::kThreads) {
    uint32_t count = 0;
    uint64_t mass = 0;
#pragma unroll 2
    for (int rank = 0; rank < kCluster; ++rank) {
      count += *G::of(&shared.counts[first + i], rank);
      if constexpr (kMass)
#pragma unroll
        for (int part = 0; part < S::kParts; ++part)
          mass += static_cast<uint64_t>(*G::of(&shared.parts[part][first + i], rank))
                  << (part * S::kPartBits);
    }
    shared.slice_count[i] = count;
    shared.slice_mass[i] = kMass ? mass : count;
    count_sum += count;
    mass_sum += kMass ? mass : count;
  }
  mass_sum = reduce_block<G::kWarps>(mass_sum, shared.scratch, Sum());
  if constexpr (kMass) {
    count_sum = reduce_block<G::kWarps>(count_sum, shared.scratch, Sum());
    rest = reduce_block<G::kWarps>(rest, shared.scratch, Sum());
  } else {
    count_sum = mass_sum;
  }
  if (threadIdx.x == 0) {
    shared.total_mass = mass_sum;
    shared.rest_mass = rest;
    shared.total_count = static_cast<uint32_t>(count_sum);
  }
  G::sync();
  if (threadIdx.x < kCluster) {
    const int rank = static_cast<int>(threadIdx.x);
    shared.all_mass[rank] = *G::of(&shared.total_mass, rank);
    shared.all_rest[rank] = *G::of(&shared.rest_mass, rank);
    shared.all_counts[rank] = *G::of(&shared.total_count, rank);
  }
  __syncthreads();
}

/// Finds the bin in which the sum from the largest bin down, beginning with `above`, reaches `wanted`: into
/// `shared`. It must be reached in the bins. Ends with a barrier.
template <int kCluster>
__device__ void find_bin(SelectShared<kCluster>& shared, uint64_t above, uint64_t wanted) {
  using S = SelectShared<kCluster>;
  using G = Group<kCluster>;
  int slice = kCluster - 1;
  uint32_t larger = 0;
  for (; slice > 0 && above + shared.all_mass[slice] < wanted; --slice) {
    above += shared.all_mass[slice];
    larger += shared.all_counts[slice];
  }
  constexpr int kPerThread = (S::kSlice + G::kThreads - 1) / G::kThreads;
  const uint64_t* const masses = G::of(shared.slice_mass, slice);
  const uint32_t* const counts = G::of(shared.slice_count, slice);
  uint64_t mass[kPerThread], sum = 0, total = 0;
  uint32_t count[kPerThread], count_sum = 0;
  const int first = static_cast<int>(threadIdx.x) * kPerThread;  // counted from the largest bin down
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
    const int bin = S::kSlice - 1 - first - i;
    mass[i] = bin >= 0 ? masses[bin] : 0;
    count[i] = bin >= 0 ? counts[bin] : 0;
    sum += mass[i];
    count_sum += count[i];
  }
  above += scan_block<G::kWarps>(sum, shared.scratch, total);
  larger += static_cast<uint32_t>(scan_block<G::kWarps>(count_sum, shared.scratch, total));
  if (above < wanted && wanted <= above + sum) {
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
      if (above < wanted && wanted <= above + mass[i]) {
        shared.bin = static_cast<uint32_t>(slice * S::kSlice + S::kSlice - 1 - first - i);
        shared.bin_count = count[i];
        shared.larger_count = larger;
        shared.above = above;
      }
      above += mass[i];
      larger += count[i];
    }
  }
  __syncthreads();
}

struct Selection {
  uint32_t key;  ///< the threshold
  bool whole;  ///< all elements from `key` on are wanted; otherwise those above it and some of the equal ones
  uint64_t
      above;  ///< count or mass of the elements above the threshold (whole: of the bin that begins there)
  uint64_t wanted;
};

/// The threshold among this group's elements with keys in [low, high], by radix select. `for_keys(f)` calls
/// f(key, valid) for this CTA's elements, in every lane of a warp. kMass: sums weight(key), and wants top_p
/// of the total; else counts, and wants `wanted` <= the number of elements. All threads of all CTAs call it.
template <bool kMass, int kCluster, class ForKeys, class Weight>
__device__ Selection select(SelectShared<kCluster>& shared, uint32_t low, uint32_t high, uint64_t wanted,
                            float top_p, const ForKeys& for_keys, const Weight& weight) {
  const int bits = 32 - __clz(static_cast<int>(high - low));
  int shift = bits > kBinBits ? bits - kBinBits : 0;
  uint32_t base = low, last = high - low;  // keys from base to base + last
  uint64_t above = 0;
  for (int pass = 0;; ++pass) {
    clear_bins<kMass>(shared);
    for_keys([&](uint32_t k, bool valid) {
      valid = valid && k >= base && k - base <= last;
      add_to_bin<kMass>(shared, valid, (k - base) >> shift, kMass && valid ? weight(k) : 0);
    });
    reduce_bins<kMass>(shared, 0);
    if (kMass && pass == 0) {
      uint64_t total = 0;
      for (int rank = 0; rank < kCluster; ++rank)
        total += shared.all_mass[rank];
      wanted = sample_math::top_p_mass(top_p, total);
    }
    find_bin(shared, above, wanted);
    above = shared.above;
    base += shared.bin << shift;
    last = (1u << shift) - 1;
    const bool whole = shared.bin_count == 1 || (!kMass && above + shared.bin_count == wanted);
    // `shared` is next written after the barriers of the next pass.
    if (whole || shift == 0 || pass == 3) return {base, whole, above, wanted};
    shift = shift > kBinBits ? shift - kBinBits : 0;
  }
}

/// Sorts list [2^n], descending, by a bitonic network; all threads of the CTA call it. Ends with a barrier.
template <int kThreads>
__device__ void sort_list(uint64_t* list, int size) {
  __syncthreads();
  for (int run = 2; run <= size; run *= 2)
    for (int step = run / 2; step > 0; step /= 2) {
      for (int pair = static_cast<int>(threadIdx.x); pair < size / 2; pair += kThreads) {
        const int low = pair & (step - 1), i = (pair - low) * 2 + low, j = i + step;
        const uint64_t a = list[i], b = list[j];
        if ((a < b) == ((i & run) == 0)) {
          list[i] = b;
          list[j] = a;
        }
      }
      // At steps of at most 32 the pairs of a warp lie in 64 entries that no other warp has.
      const int next = step > 1 ? step / 2 : run;
      if (step > 32 || next > 32)
        __syncthreads();
      else
        __syncwarp();
    }
  __syncthreads();
}

}  // namespace fovea::cuda::sampling
