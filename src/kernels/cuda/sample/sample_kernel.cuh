#pragma once
// One row by a group of CTAs: the row is divided between them in the order of the vocabulary. Resident: each
// CTA keeps its part in shared memory, so that the row is read once; otherwise every pass reads it again, and
// edits go to a copy in global memory. All sums are integers, so both give the same results.
#include "base/philox.h"
#include "kernels/cuda/sample/edits.cuh"
#include "kernels/cuda/sample/sample.h"
#include "kernels/cuda/sample/select.cuh"
#include "kernels/cuda/sample/variants.h"

namespace fovea::cuda::sampling {

/// What a CTA's scan of its part found. Keys are those of order_key(); 0 = no logits.
struct PartScan {
  uint64_t best;         ///< largest key << 32 | ~token: of equal logits the lowest token
  uint32_t padding_max;  ///< largest key of the logits from `vocab` on
  uint32_t bad;          ///< kBadVocab, kBadPadding: NaN or +inf in the first `vocab` logits, after them
};
constexpr uint32_t kBadVocab = 1, kBadPadding = 2;

constexpr float kBinsPerUnit = 128.0f;

template <int kCluster>
struct SampleShared {
  SampleRow row;
  SelectShared<kCluster> select;
  PartScan scans[2];  // published: of the row as it came, and as edited
  static constexpr int kWarps = Group<kCluster>::kWarps;
  uint64_t warp_mass[kWarps];  // published
  uint32_t warp_ties[kWarps], all_ties[kCluster * kWarps];
  // Published: a mass, the mass of the listed tokens, and the number of larger logits than the token's.
  uint64_t mass_sum, listed_mass;
  uint32_t larger;
  uint64_t scratch[kWarps];
  // Where the draw lies: a warp of the group, the mass and the ties before its range; then the token.
  int range;
  uint64_t before;
  uint32_t ties_before;
  // Published by one CTA to all.
  int32_t token;
  uint32_t kept_key, kept_ties;
  uint32_t given_own[Group<kCluster>::kThreads];  // key of the largest logit that each thread has read
  uint64_t top[kMaxTop];  // of rank 0: the most probable tokens, unordered, as PartScan::best
  uint32_t num_top;
  uint32_t given_max;  // largest key of the row
};

extern __shared__ __align__(16) unsigned char sample_memory[];  // SampleShared, then a resident part

template <int kCluster>
constexpr size_t kSharedBytes = (sizeof(SampleShared<kCluster>) + 15) / 16 * 16;

/// Which tokens take part in a draw: keys above `key`, and with `whole` equal ones too; otherwise the first
/// `ties` equal ones in the order of the row.
struct Kept {
  uint32_t key;
  bool whole;
  uint32_t ties;
};

struct Weights {
  float max, scale, least;

  __device__ uint64_t of(float x) const { return sample_math::fixed_weight(x, max, scale, least); }
  __device__ uint64_t operator()(uint32_t key) const { return of(from_order_key(key)); }
};

// draw_best() lists about this many of the largest logits; larger top_k do not use it.
constexpr int kMaxDirect = 512;
constexpr int kGroups = 1024;  // whose maxima are compared for it

__device__ inline SampleRow load_row(const KernelArgs& args, int r) {
  if (!args.separate) return args.sample.rows[r];
  const DrawArgs& d = args.draw;
  SampleRow row;
  row.slot = d.slot[r];
  row.logits_row = row.slot < 0 ? -1 : r;
  row.temperature = d.temperature[r];
  row.top_p = d.top_p[r];
  row.min_p = d.min_p[r];
  row.top_k = d.top_k[r];
  row.seed = static_cast<uint64_t>(d.seed[r]);
  row.position = static_cast<uint64_t>(d.position[r]);
  return row;
}

template <int kCluster, bool kResident>
class RowSampler {
 public:
  using G = Group<kCluster>;
  using Shared = SampleShared<kCluster>;
  static constexpr int kThreads = G::kThreads, kWarps = G::kWarps;

  __device__ RowSampler(const KernelArgs& kernel_args, int part_size)
      : args_(kernel_args.sample), general_(kernel_args.general) {
    const SampleArgs& args = args_;
    if constexpr (kCluster > 1) {
      begin_ = min(G::rank() * part_size, args.width);
      count_ = min(part_size, args.width - begin_);
      vocab_ = max(0, min(count_, args.vocab - begin_));
    }
    given_ = args.logits + int64_t{row().logits_row} * args.row_stride + begin();
  }

  __device__ void run() {
    PartScan scan = scan_given();
    uint32_t own = key_of(scan.best);
    shared().given_own[threadIdx.x] = max(own, scan.padding_max);
    scan = share_scan(0, scan);
    const uint32_t given_max = max(key_of(scan.best), scan.padding_max);
    if (threadIdx.x == 0) shared().given_max = given_max;
    const bool all_usable = scan.bad == 0 && given_max > kLowest;
    int32_t token = row().token;
    SampleStatus status = SampleStatus::ok;
    if (token != kDrawToken) {
      if (!all_usable) status = SampleStatus::bad_logits;
    } else if (!drawable(scan)) {
      status = SampleStatus::bad_logits;
    } else if (words() && block().forced_last >= 0 && answered() == block().forced_at) {
      token = block().forced_last;
    } else {
      if (words() || grammar()) {
        scan = edit();
        own = key_of(scan.best);
        scan = share_scan(1, scan);
      }
      if (drawable(scan))
        token = draw(scan, own);
      else
        status = SampleStatus::nothing_left;
    }
    // Log probabilities are normalised over the padding too.
    if (status == SampleStatus::ok && row().top >= 0 && !all_usable) status = SampleStatus::bad_logits;
    const bool has_logprobs =
        status == SampleStatus::ok && row().top >= 0 && token >= 0 && token < args_.width;
    if (has_logprobs) log_probabilities(token);
    if (G::rank() == 0 && threadIdx.x == 0) finish(status, token);
    G::sync();  // nobody's shared memory is read any more
  }

 private:
  static constexpr uint32_t kLowest = sample_math::kLowestKey;

  __device__ static bool drawable(const PartScan& scan) {
    return !(scan.bad & kBadVocab) && key_of(scan.best) > kLowest;
  }
  /// The part: tokens begin() to begin() + count() - 1; the first vocab() of them can be drawn.
  __device__ int begin() const { return kCluster == 1 ? 0 : begin_; }
  __device__ int count() const { return kCluster == 1 ? args_.width : count_; }
  __device__ int vocab() const { return kCluster == 1 ? args_.vocab : vocab_; }

  // Not kept in registers.
  __device__ static Shared& shared() { return *reinterpret_cast<Shared*>(sample_memory); }
  __device__ static const SampleRow& row() { return shared().row; }
  /// The part's logits in shared memory, or the copy of the row that edits change.
  __device__ float* values() const {
    if constexpr (kResident)
      return reinterpret_cast<float*>(sample_memory + kSharedBytes<kCluster>);
    else
      return static_cast<float*>(args_.scratch) + static_cast<int64_t>(blockIdx.x) * args_.width;
  }
  __device__ uint32_t* words() const {
    return row().token == kDrawToken ? reinterpret_cast<uint32_t*>(row().edits) : nullptr;
  }
  __device__ const EditBlock& block() const { return *reinterpret_cast<const EditBlock*>(words()); }
  __device__ uint64_t answered() const { return row().position - block().prompt_len; }
  __device__ const uint32_t* grammar() const {
    return row().token == kDrawToken && row().mask_row >= 0
               ? args_.masks + int64_t{row().mask_row} * args_.mask_stride
               : nullptr;
  }
  __device__ SampleResult* result() const {
    return args_.results ? args_.results + blockIdx.x / kCluster : nullptr;
  }
  __device__ static uint32_t key_of(uint64_t best) { return static_cast<uint32_t>(best >> 32); }
  __device__ static uint64_t candidate(uint32_t key, int token) {
    return static_cast<uint64_t>(key) << 32 | ~static_cast<uint32_t>(token);
  }
  __device__ static int token_of(uint64_t best) { return static_cast<int>(~static_cast<uint32_t>(best)); }

  /// The part's logits as edited (or as given, if nothing was edited), or as given.
  template <bool kGiven>
  __device__ const float* logits() const {
    if constexpr (kResident)
      return kGiven && edited_ ? given_ : values();
    else
      return !kGiven && edited_ ? values() : given_;
  }

  /// x[i] to x[i + 3]; logits from `end` on are not read.
  __device__ static float4 load4(const float* x, int i, int end, bool aligned) {
    if (aligned && i + 4 <= end) return *reinterpret_cast<const float4*>(x + i);
    float4 v = {};
    if (i < end) v.x = x[i];
    if (i + 1 < end) v.y = x[i + 1];
    if (i + 2 < end) v.z = x[i + 2];
    if (i + 3 < end) v.w = x[i + 3];
    return v;
  }

  /// Calls f(x[i], i, valid) for `first` <= i < `end`, divided between `threads` threads; valid is false in
  /// lanes past the end, which call f like the others of their warp.
  template <int kBatch = 2, class F>
  __device__ static void for_each(const float* x, int first, int end, int thread, int threads, const F& f) {
    const bool aligned = (reinterpret_cast<uint64_t>(x) + 4 * first) % 16 == 0;
    for (int base = first; base < end; base += 4 * kBatch * threads) {
      float4 v[kBatch];
#pragma unroll
      for (int u = 0; u < kBatch; ++u)
        v[u] = load4(x, base + 4 * (u * threads + thread), end, aligned);
#pragma unroll
      for (int u = 0; u < kBatch; ++u) {
        if (base + 4 * u * threads >= end) break;
        const int i = base + 4 * (u * threads + thread);
        f(v[u].x, i, i < end);
        f(v[u].y, i + 1, i + 1 < end);
        f(v[u].z, i + 2, i + 2 < end);
        f(v[u].w, i + 3, i + 3 < end);
      }
    }
  }
  template <bool kGiven, int kBatch = 2, class F>
  __device__ void for_part(int end, const F& f) const {
    for_each<kBatch>(logits<kGiven>(), 0, end, static_cast<int>(threadIdx.x), kThreads, f);
  }

  __device__ void look_at(float x, int i, PartScan& scan) const {
    const bool in_vocab = i < vocab();
    if (!(x < __builtin_inff())) scan.bad |= in_vocab ? kBadVocab : kBadPadding;
    const uint32_t key = order_key(x);
    if (!in_vocab)
      scan.padding_max = max(scan.padding_max, key);
    else if (key > key_of(scan.best))
      scan.best = candidate(key, begin() + i);
  }

  /// Reads the part, into shared memory if it is resident.
  __device__ PartScan scan_given() {
    PartScan scan = {};
    for_each<4>(given_, 0, count(), static_cast<int>(threadIdx.x), kThreads, [&](float x, int i, bool valid) {
      if (!valid) return;
      if constexpr (kResident) values()[i] = x;
      look_at(x, i, scan);
    });
    return scan;
  }

  /// Combines the scans of all threads of the group.
  __device__ PartScan share_scan(int which, PartScan scan) {
    scan.best = reduce_block<kWarps>(scan.best, shared().scratch, Max());
    auto* const scratch = reinterpret_cast<uint32_t*>(shared().scratch);
    scan.padding_max = reduce_block<kWarps>(scan.padding_max, scratch, Max());
    scan.bad = reduce_block<kWarps>(scan.bad, scratch, Or());
    if (threadIdx.x == 0) shared().scans[which] = scan;
    G::sync();
    for (int rank = 0; rank < kCluster; ++rank) {
      const PartScan other = *G::of(&shared().scans[which], rank);
      scan.best = max(scan.best, other.best);
      scan.padding_max = max(scan.padding_max, other.padding_max);
      scan.bad |= other.bad;
    }
    return scan;
  }

  __device__ PartScan edit() {
    const uint32_t* const block_words = words();
    if (block_words && has_lists(block())) {
      if constexpr (!kResident)
        for (int i = static_cast<int>(threadIdx.x); i < vocab(); i += kThreads)
          values()[i] = given_[i];
      edited_ = true;
      __syncthreads();
      apply_lists({values(), begin(), vocab()}, block(), block_words, answered());
    }
    const float* const from = logits<false>();
    edited_ = true;
    const TokenEdits edits(block_words, grammar(), begin());
    const bool aligned = reinterpret_cast<uint64_t>(from) % 16 == 0;
    PartScan scan = {};
#pragma unroll 1
    for (int i = 4 * static_cast<int>(threadIdx.x); i < vocab(); i += 4 * kThreads) {
      const float4 v = load4(from, i, vocab(), aligned);
      float x[4] = {v.x, v.y, v.z, v.w};
      edits.apply(x, i);
#pragma unroll
      for (int j = 0; j < 4; ++j)
        if (i + j < vocab()) {
          values()[i + j] = x[j];
          look_at(x[j], i + j, scan);
        }
    }
    return scan;
  }

  /// The token drawn from valid logits, of which the largest that this thread has read has key `own`.
  __device__ int32_t draw(const PartScan& scan, uint32_t own) {
    if (row().temperature < 1e-5f) return token_of(scan.best);  // kGreedyTemperature
    const uint32_t high = key_of(scan.best);
    const float max = from_order_key(high), scale = sample_math::div(1.0f, row().temperature);
    const float least = sample_math::least_weight(row().min_p);
    const Weights weight = {max, scale, least};
    // Bins of z = (x - max) / temperature from 0 to -16, 128 for each unit; the largest logits in the last.
    const auto bin = [&](float x) {
      const float t = sample_math::mul(sample_math::mul(sample_math::sub(max, x), scale), kBinsPerUnit);
      return t < static_cast<float>(kBins) ? kBins - 1 - static_cast<int>(t) : -1;
    };
    auto& select_shared = shared().select;
    Kept kept = {0, true, 0};
    const bool has_top_k = row().top_k > 0 && row().top_k < args_.vocab;
    if (!general_ && (has_top_k ? row().top_k <= kMaxDirect : row().top_p < 1)) {
      const int32_t token = draw_best(own, has_top_k, weight);
      if (token >= 0) return token;
    }
    if (threadIdx.x == 0) select_shared.num_listed = 0;
    if (has_top_k) {
      const auto k = static_cast<uint32_t>(row().top_k);
      clear_bins<false>(select_shared);
      for_part<false>(vocab(), [&](float x, int, bool valid) {
        const int b = bin(x);
        add_to_bin<false>(select_shared, valid && b >= 0, static_cast<uint32_t>(b), 0);
      });
      reduce_bins<false>(select_shared, 0);
      if (k <= sum_of(select_shared.all_mass)) {
        find_bin(select_shared, 0, k);
        const uint32_t listed = select_shared.larger_count + select_shared.bin_count;
        if (listed <= kMaxListed) {
          gather(static_cast<int>(select_shared.bin), kBins - 1, 0, bin);
          return draw_listed(static_cast<int>(listed), static_cast<int>(k), 0, weight);
        }
      }
      kept.key = select<false>(select_shared, kLowest, high, k, 0.0f, keys(), weight).key;
      if (threadIdx.x == 0) select_shared.num_listed = 0;
    }
    if (row().top_p < 1) {
      clear_bins<true>(select_shared);
      uint64_t rest = 0;
      for_part<false>(vocab(), [&](float x, int, bool valid) {
        valid = valid && order_key(x) >= kept.key;
        const uint64_t w = valid ? weight.of(x) : 0;
        const int b = bin(x);
        add_to_bin<true>(select_shared, valid && b >= 0, static_cast<uint32_t>(b), w);
        if (b < 0) rest += w;
      });
      reduce_bins<true>(select_shared, rest);
      const uint64_t binned = sum_of(select_shared.all_mass), total = binned + sum_of(select_shared.all_rest);
      const uint64_t wanted = sample_math::top_p_mass(row().top_p, total);
      if (wanted <= binned) {
        find_bin(select_shared, 0, wanted);
        const int first = static_cast<int>(select_shared.bin);
        const uint32_t in_bin = select_shared.bin_count, listed = select_shared.larger_count + in_bin;
        if (listed <= kMaxListed) {
          gather(first, kBins - 1, kept.key, bin);
          return draw_listed(static_cast<int>(listed), 0, total, weight);
        }
        if (in_bin <= kMaxListed) {
          gather(first, first, kept.key, bin);
          return pick(cut_list(static_cast<int>(in_bin), select_shared.above, wanted, weight), weight);
        }
      }
      // Weights further below the maximum are 0.
      const float bound = sample_math::sub(max, sample_math::mul(32.0f, row().temperature));
      const uint32_t low = ::max(kept.key, ::max(order_key(bound), kLowest));
      const Selection s = select<true>(select_shared, low, high, 0, row().top_p, keys(), weight);
      kept = {s.key, s.whole, 0};
      if (!s.whole) {  // equal tokens that begin below the wanted mass
        const uint64_t each = weight(s.key);
        const uint64_t ties = each > 0 ? (s.wanted - s.above + each - 1) / each : 0;
        kept.ties = static_cast<uint32_t>(ties < kMaxSampleVocab ? ties : kMaxSampleVocab);
      }
    }
    return pick(kept, weight);
  }

  /// A lower bound of the `count`-th largest logit of the row: the count-th largest of the maxima of kGroups
  /// groups of tokens. `own`: key of the largest logit of this thread's tokens. Not -inf. Empties rank 0's
  /// list.
  __device__ float lower_bound(uint32_t own, int count) {
    constexpr int kPerCta = kGroups / kCluster, kMembers = kThreads / kPerCta;
    auto& s = shared().select;
#pragma unroll
    for (int step = 1; step < kMembers; step *= 2)
      own = max(own, __shfl_xor_sync(kAllLanes, own, step));
    const int t = static_cast<int>(threadIdx.x);
    if (t % kMembers == 0) G::of(s.list, 0)[G::rank() * kPerCta + t / kMembers] = own;
    if (t == 0) s.num_listed = 0;
    G::sync();
    if (G::rank() == 0) {
      sort_list<kThreads>(s.list, kGroups);
      if (t < kCluster) *G::of(&shared().kept_key, t) = static_cast<uint32_t>(s.list[count - 1]);
    }
    G::sync();
    return from_order_key(max(shared().kept_key, kLowest + 1));
  }

  /// Appends a token to rank 0's list; the lanes of a warp that call it together take places together.
  __device__ void append(float x, int i) {
    const unsigned lanes = __activemask();
    const int leader = __ffs(static_cast<int>(lanes)) - 1;
    uint32_t at = 0;
    if (lane_id() == leader)
      at = atomicAdd(G::of(&shared().select.num_listed, 0), static_cast<uint32_t>(__popc(lanes)));
    at = __shfl_sync(lanes, at, leader) + static_cast<uint32_t>(__popc(lanes & ((1u << lane_id()) - 1)));
    if (at < kMaxListed) G::of(shared().select.list, 0)[at] = candidate(order_key(x), begin() + i);
  }
  __device__ int listed() const { return static_cast<int>(*G::of(&shared().select.num_listed, 0)); }

  /// The token drawn with top_k <= kMaxDirect, or with top_p alone, from a list of the largest logits; -1 if
  /// the list is too long (many equal logits) or too short (top_p reaches further).
  __device__ int32_t draw_best(uint32_t own, bool has_top_k, const Weights& weight) {
    const float bound = lower_bound(own, has_top_k ? row().top_k : kMaxDirect);
    uint64_t mass = 0, listed_mass = 0;
    if (has_top_k)
      for_part<false, kResident ? 2 : 4>(vocab(), [&](float x, int i, bool valid) {
        if (valid && x >= bound) append(x, i);
      });
    else
      for_part<false>(vocab(), [&](float x, int i, bool valid) {
        if (!valid) return;
        const uint64_t w = weight.of(x);
        mass += w;
        if (x < bound) return;
        listed_mass += w;
        append(x, i);
      });
    mass = reduce_block<kWarps>(mass, shared().scratch, Sum());
    listed_mass = reduce_block<kWarps>(listed_mass, shared().scratch, Sum());
    if (threadIdx.x == 0) {
      shared().mass_sum = mass;
      shared().listed_mass = listed_mass;
    }
    G::sync();
    mass = listed_mass = 0;
    for (int rank = 0; rank < kCluster; ++rank) {
      mass += *G::of(&shared().mass_sum, rank);
      listed_mass += *G::of(&shared().listed_mass, rank);
    }
    const int count = listed();
    const bool complete = has_top_k || listed_mass >= sample_math::top_p_mass(row().top_p, mass);
    if (complete && count <= kMaxListed) return draw_listed(count, has_top_k ? row().top_k : 0, mass, weight);
    G::sync();  // the list's length has been read
    return -1;
  }

  __device__ static uint64_t sum_of(const uint64_t (&values)[kCluster]) {
    uint64_t sum = 0;
    for (int rank = 0; rank < kCluster; ++rank)
      sum += values[rank];
    return sum;
  }

  /// What select() takes: the keys of the edited logits.
  __device__ auto keys() const {
    return [this](const auto& f) {
      for_part<false>(vocab(), [&](float x, int, bool valid) { f(order_key(x), valid); });
    };
  }

  /// Copies the tokens in bins `first` to `last` with keys of at least `least` to rank 0's list. The bins'
  /// counts are those of these tokens.
  template <class Bin>
  __device__ void gather(int first, int last, uint32_t least, const Bin& bin) {
    auto& s = shared().select;
    uint32_t mine = 0;
    for (int i = first + static_cast<int>(threadIdx.x); i <= last; i += kThreads)
      mine += s.counts[i];
    mine = reduce_block<kWarps>(mine, reinterpret_cast<uint32_t*>(s.scratch), Sum());
    if (threadIdx.x == 0) {
      s.list_base = mine > 0 ? atomicAdd(G::of(&s.num_listed, 0), mine) : 0;
      s.list_next = 0;
    }
    __syncthreads();
    uint64_t* const list = G::of(s.list, 0);
    if (mine > 0)
      for_part<false>(vocab(), [&](float x, int i, bool valid) {
        const int b = bin(x);
        if (!valid || b < first || b > last || order_key(x) < least) return;
        const uint32_t at = s.list_base + atomicAdd(&s.list_next, 1u);
        if (at < kMaxListed) list[at] = candidate(order_key(x), begin() + i);
      });
    G::sync();
  }

  /// Pads rank 0's list of `listed` tokens to a power of two and sorts it, best first.
  __device__ int sort_listed(int listed) {
    const int size = listed > 1 ? 1 << (32 - __clz(listed - 1)) : 1;
    for (int i = listed + static_cast<int>(threadIdx.x); i < size; i += kThreads)
      shared().select.list[i] = 0;
    sort_list<kThreads>(shared().select.list, size);
    return size;
  }

  /// The token drawn from rank 0's list, which has all tokens that can be kept. With top_k > 0 the list has
  /// the top_k largest logits and what equals them, and top_p is of their mass; otherwise of `total`.
  __device__ int32_t draw_listed(int listed, int top_k, uint64_t total, const Weights& weight) {
    if (G::rank() == 0) {
      uint64_t* const list = shared().select.list;
      uint64_t* const scratch = shared().scratch;
      const int size = sort_listed(listed), t = static_cast<int>(threadIdx.x);
      const uint32_t least = top_k > 0 && top_k <= listed ? key_of(list[top_k - 1]) : 1u;
      const auto weight_at = [&](int i) {
        const uint32_t k = i < size ? key_of(list[i]) : 0u;
        return k >= least ? weight(k) : 0;
      };
      if (top_k > 0 && row().top_p < 1) {
        uint64_t mass = 0;
        for (int i = t; i < size; i += kThreads)
          mass += weight_at(i);
        total = reduce_block<kWarps>(mass, scratch, Sum());
      }
      const uint64_t wanted = row().top_p < 1 ? sample_math::top_p_mass(row().top_p, total) : ~uint64_t{0};
      uint64_t before = 0, kept = 0, sum = 0;
      __syncthreads();  // list[top_k - 1] has been read
      for (int first = 0; first < size; first += kThreads) {
        const int i = first + t;
        const uint64_t w = weight_at(i);
        const bool keep = before + scan_block<kWarps>(w, scratch, sum) < wanted && w > 0;
        before += sum;
        kept += keep ? w : 0;
        // From here on in ascending order of tokens, when sorted; 0 at the end.
        if (i < size)
          list[i] = keep ? ~(static_cast<uint64_t>(token_of(list[i])) << 32 | key_of(list[i])) : 0;
      }
      kept = reduce_block<kWarps>(kept, scratch, Sum());
      sort_list<kThreads>(list, size);
      const uint64_t target = sample_math::draw_target(philox_bits(row().seed, row().position), kept);
      before = 0;
      for (int first = 0; first < size && before <= target; first += kThreads) {
        const int i = first + t;
        const uint64_t entry = i < size ? list[i] : 0;
        const uint64_t w = entry != 0 ? weight(static_cast<uint32_t>(~entry)) : 0;
        const uint64_t begin = before + scan_block<kWarps>(w, scratch, sum);
        before += sum;
        if (begin <= target && target < begin + w) publish_token(static_cast<int32_t>(~entry >> 32));
      }
    }
    G::sync();
    return shared().token;
  }

  __device__ void publish_token(int32_t token) {
    for (int rank = 0; rank < kCluster; ++rank)
      *G::of(&shared().token, rank) = token;
  }

  /// Which tokens are kept, if rank 0's list has those of the bin in which top_p's mass is reached and
  /// `above` is the mass of larger logits.
  __device__ Kept cut_list(int listed, uint64_t above, uint64_t wanted, const Weights& weight) {
    if (G::rank() == 0) {
      uint64_t* const list = shared().select.list;
      const int size = sort_listed(listed), t = static_cast<int>(threadIdx.x);
      uint64_t sum = 0;
      uint32_t kept = 0;
      for (int first = 0; first < size; first += kThreads) {
        const int i = first + t;
        const uint64_t w = i < listed ? weight(key_of(list[i])) : 0;
        kept += above + scan_block<kWarps>(w, shared().scratch, sum) < wanted && i < listed;
        above += sum;
      }
      auto* const scratch = reinterpret_cast<uint32_t*>(shared().scratch);
      kept = reduce_block<kWarps>(kept, scratch, Sum());
      const uint32_t last = key_of(list[kept - 1]);
      uint32_t ties = 0;
      for (int i = t; i < static_cast<int>(kept); i += kThreads)
        ties += key_of(list[i]) == last;
      ties = reduce_block<kWarps>(ties, scratch, Sum());
      if (t < kCluster) {
        *G::of(&shared().kept_key, t) = last;
        *G::of(&shared().kept_ties, t) = ties;
      }
    }
    G::sync();
    return {shared().kept_key, false, shared().kept_ties};
  }

  /// Adds a token's mass, or counts it if it is a tie.
  __device__ static void add_kept(const Kept& kept, float x, const Weights& weight, uint64_t& mass,
                                  uint32_t& ties) {
    const uint32_t k = order_key(x);
    if (k > kept.key || (kept.whole && k == kept.key))
      mass += weight(k);
    else if (k == kept.key)
      ++ties;
  }

  __device__ static uint64_t mass_of_ties(const Kept& kept, uint64_t each, uint32_t before, uint32_t ties) {
    const uint32_t left = kept.ties > before ? kept.ties - before : 0;
    return each * (ties < left ? ties : left);
  }

  /// The token at the row's uniform number in the cumulative distribution of the kept tokens: its warp's
  /// range of the group's ranges first, then its thread's part of this range, then itself.
  __device__ int32_t pick(const Kept& kept, const Weights& weight) {
    const uint64_t each = kept.whole ? 0 : weight(kept.key);
    const int range_size = (vocab() + 4 * kThreads - 1) / (4 * kThreads) * 128;
    const int mine = warp_id() * range_size, mine_end = min(mine + range_size, vocab());
    uint64_t mass = 0;
    uint32_t ties = 0;
    if (kept.key == 0)
      for_each(logits<false>(), mine, mine_end, lane_id(), 32,
               [&](float x, int, bool valid) { mass += valid ? weight.of(x) : 0; });
    else
      for_each(logits<false>(), mine, mine_end, lane_id(), 32, [&](float x, int, bool valid) {
        if (valid) add_kept(kept, x, weight, mass, ties);
      });
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
      mass += __shfl_xor_sync(kAllLanes, mass, step);
    ties = __reduce_add_sync(kAllLanes, ties);
    if (lane_id() == 0) {
      shared().warp_mass[warp_id()] = mass;
      shared().warp_ties[warp_id()] = ties;
    }
    G::sync();
    constexpr int kRanges = kCluster * kWarps;
    static_assert(kRanges <= kThreads);
    const int r = static_cast<int>(threadIdx.x);
    uint64_t range_mass = 0, range_ties = 0, total = 0;
    if (r < kRanges) {
      range_mass = G::of(shared().warp_mass, r / kWarps)[r % kWarps];
      range_ties = G::of(shared().warp_ties, r / kWarps)[r % kWarps];
    }
    const auto ties_before = static_cast<uint32_t>(scan_block<kWarps>(range_ties, shared().scratch, total));
    range_mass += mass_of_ties(kept, each, ties_before, static_cast<uint32_t>(range_ties));
    const uint64_t before = scan_block<kWarps>(range_mass, shared().scratch, total);
    const uint64_t target = sample_math::draw_target(philox_bits(row().seed, row().position), total);
    if (before <= target && target < before + range_mass) {
      shared().range = r;
      shared().before = before;
      shared().ties_before = ties_before;
    }
    __syncthreads();
    if (shared().range / kWarps == G::rank()) pick_in_range(kept, each, range_size, target, weight);
    G::sync();
    return shared().token;
  }

  __device__ void pick_in_range(const Kept& kept, uint64_t each, int range_size, uint64_t target,
                                const Weights& weight) {
    const float* const x = logits<false>();
    const int first = shared().range % kWarps * range_size, end = min(first + range_size, vocab());
    const int size = (range_size + kThreads - 1) / kThreads;
    const int mine = first + static_cast<int>(threadIdx.x) * size, mine_end = min(mine + size, end);
    uint64_t mass = 0, total = 0;
    uint32_t ties = 0;
    for (int i = mine; i < mine_end; ++i)
      add_kept(kept, x[i], weight, mass, ties);
    auto ties_before =
        shared().ties_before + static_cast<uint32_t>(scan_block<kWarps>(ties, shared().scratch, total));
    mass += mass_of_ties(kept, each, ties_before, ties);
    uint64_t before = shared().before + scan_block<kWarps>(mass, shared().scratch, total);
    if (before > target || target >= before + mass) return;
    for (int i = mine; i < mine_end; ++i) {
      const uint32_t k = order_key(x[i]);
      uint64_t w = 0;
      if (k > kept.key || (kept.whole && k == kept.key))
        w = weight(k);
      else if (k == kept.key)
        w = ties_before++ < kept.ties ? each : 0;
      if (before <= target && target < before + w) publish_token(begin() + i);
      before += w;
    }
  }

  /// Log probability and rank of `token`, and the most probable tokens, of the row as it was given; written
  /// by rank 0.
  __device__ void log_probabilities(int32_t token) {
    __syncthreads();  // given_max is set
    const float max = from_order_key(shared().given_max);
    const float own = args_.logits[int64_t{row().logits_row} * args_.row_stride + token];
    const int top = min(min(row().top, kMaxTop), args_.width);
    const float bound = top > 0 ? lower_bound(shared().given_own[threadIdx.x], top) : __builtin_inff();
    uint64_t mass = 0;
    uint32_t larger = 0;
    for_part<true>(count(), [&](float x, int i, bool valid) {
      if (!valid) return;
      mass += sample_math::fixed_weight(x, max, 1.0f);
      larger += x > own || (x == own && begin() + i < token);
      if (x >= bound) append(x, i);
    });
    mass = reduce_block<kWarps>(mass, shared().scratch, Sum());
    larger = reduce_block<kWarps>(larger, reinterpret_cast<uint32_t*>(shared().scratch), Sum());
    if (threadIdx.x == 0) {
      shared().mass_sum = mass;
      shared().larger = larger;
      shared().num_top = 0;
    }
    G::sync();
    if (top > 0) {
      const int count = listed();
      if (general_ || count < top || count > kMaxListed)  // masked or equal logits
        find_top(top);
      else if (G::rank() == 0)
        take_top(count, top);
    }
    SampleResult* const out = result();
    if (G::rank() != 0 || !out) return;
    mass = 0;
    larger = 0;
    for (int rank = 0; rank < kCluster; ++rank) {
      mass += *G::of(&shared().mass_sum, rank);
      larger += *G::of(&shared().larger, rank);
    }
    const double log_sum = sample_math::log_weight_sum(mass);
    const int i = static_cast<int>(threadIdx.x);
    if (i == 0) {
      out->logprob = sample_math::log_probability(own, max, log_sum);
      out->rank = static_cast<int32_t>(larger) + 1;
      out->num_top = top;
    }
    if (i < top) {
      const uint64_t entry = shared().top[i];
      int place = 0;
      for (int j = 0; j < top; ++j)
        place += shared().top[j] > entry;
      const float x = from_order_key(key_of(entry));
      out->top_ids[place] = token_of(entry);
      out->top_logprobs[place] = sample_math::log_probability(x, max, log_sum);
    }
  }

  __device__ void take_top(int count, int top) {
    sort_listed(count);
    if (static_cast<int>(threadIdx.x) < top) shared().top[threadIdx.x] = shared().select.list[threadIdx.x];
    __syncthreads();
  }

  __device__ Selection find_top_key(uint64_t top) {
    const auto keys = [this](const auto& f) {
      for_part<true>(count(), [&](float x, int, bool valid) { f(order_key(x), valid); });
    };
    return select<false>(shared().select, kLowest, shared().given_max, top, 0.0f, keys,
                         [](uint32_t) { return uint64_t{0}; });
  }

  /// Collects the `top` largest logits in rank 0's shared memory.
  __device__ void find_top(int top) {
    const float* const given = logits<true>();
    const auto key = [&](int i) { return order_key(given[i]); };
    const Selection s = find_top_key(static_cast<uint64_t>(top));
    const auto store = [&](uint32_t k, int i) {
      const uint32_t at = atomicAdd(G::of(&shared().num_top, 0), 1u);
      if (at < kMaxTop) G::of(shared().top, 0)[at] = candidate(k, begin() + i);
    };
    const int range_size = (count() + kThreads - 1) / kThreads * 32;
    const int mine = warp_id() * range_size, mine_end = min(mine + range_size, count());
    uint32_t ties = 0;
    for (int i = mine + lane_id(); i < mine_end; i += 32) {
      const uint32_t k = key(i);
      if (k > s.key || (s.whole && k == s.key))
        store(k, i);
      else if (k == s.key)
        ++ties;
    }
    ties = __reduce_add_sync(kAllLanes, ties);
    if (lane_id() == 0) shared().warp_ties[warp_id()] = ties;
    G::sync();
    if (!s.whole) {
      const int r = static_cast<int>(threadIdx.x);
      uint64_t range_ties = 0, total = 0;
      if (r < kCluster * kWarps) range_ties = G::of(shared().warp_ties, r / kWarps)[r % kWarps];
      const uint64_t before = scan_block<kWarps>(range_ties, shared().scratch, total);
      if (r < kCluster * kWarps) shared().all_ties[r] = static_cast<uint32_t>(before);
      __syncthreads();
      const auto wanted = static_cast<uint32_t>(s.wanted - s.above);
      uint32_t seen = shared().all_ties[G::rank() * kWarps + warp_id()];
      for (int first = mine; first < mine_end && seen < wanted; first += 32) {
        const int i = first + lane_id();
        const bool tie = i < mine_end && key(i) == s.key;
        const unsigned lanes = __ballot_sync(kAllLanes, tie);
        const auto before_me = static_cast<uint32_t>(__popc(lanes & ((1u << lane_id()) - 1)));
        if (tie && seen + before_me < wanted) store(s.key, i);
        seen += static_cast<uint32_t>(__popc(lanes));
      }
    }
    G::sync();
  }

  /// Writes the row's results; one thread calls it.
  __device__ void finish(SampleStatus status, int32_t token) {
    if (status != SampleStatus::ok) token = -1;
    if (row().token == kDrawToken) {
      if (words() && token >= 0) append_token(block(), words(), answered(), token);
      if (row().slot >= 0 && args_.tokens) args_.tokens[row().slot] = token >= 0 ? token : args_.failed_token;
    }
    SampleResult* const out = result();
    if (!out) return;
    out->token = token >= 0 ? token : -1;
    out->status = status;
  }

  const SampleArgs& args_;
  const bool& general_;
  const float* given_;
  bool edited_ = false;
  int begin_ = 0, count_ = 0, vocab_ = 0;
};

template <int kCluster, bool kResident>
__global__ void __launch_bounds__(Group<kCluster>::kThreads, kCluster == 8 ? 2 : 1)
    sample_kernel(const __grid_constant__ KernelArgs args, int part_size) {
  auto& shared = *reinterpret_cast<SampleShared<kCluster>*>(sample_memory);
  const int r = static_cast<int>(blockIdx.x) / kCluster;
  if (threadIdx.x == 0) shared.row = load_row(args, r);
  __syncthreads();
  const SampleRow& row = shared.row;
  if (row.logits_row < 0) {
    if (args.sample.results && Group<kCluster>::rank() == 0 && threadIdx.x == 0) {
      args.sample.results[r].token = -1;
      args.sample.results[r].status = SampleStatus::skipped;
    }
    return;
  }
  RowSampler<kCluster, kResident>(args, part_size).run();
}

/// Part of a row for each CTA: a multiple of 128, so that parts begin at whole lines.
inline int part_size_of(int width, int cluster) {
  return ((width + cluster - 1) / cluster + 127) / 128 * 128;
}

template <int kCluster>
size_t shared_bytes(int part_size, bool resident) {
  return (sizeof(SampleShared<kCluster>) + 15) / 16 * 16 +
         (resident ? 4 * static_cast<size_t>(part_size) : 0);
}

}  // namespace fovea::cuda::sampling
