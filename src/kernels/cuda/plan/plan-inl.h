#pragma once
// The planner's algorithm, for one block of threads on the device and for one thread on the host. Block has
// rank(), size(), sync(), max(x) and exclusive_scan(x, total) over its threads, and scratch memory that is
// nearer than the workspace.
#include "kernels/cuda/plan/plan.h"
#include "kernels/reference/visibility.h"

namespace fovea::cuda {

/// Two sums that are scanned together.
struct PlanSums {
  int64_t a = 0, b = 0;
  FOVEA_HOST_DEVICE PlanSums operator+(const PlanSums& o) const { return {a + o.a, b + o.b}; }
};

/// Of numbers from 0 on whose sum is below 2^31; in 32 bits, because 64-bit divisions are long code, and what
/// a single block waits for is its instructions.
FOVEA_HOST_DEVICE inline int32_t quotient(int32_t a, int32_t b) {
  return static_cast<int32_t>(static_cast<uint32_t>(a) / static_cast<uint32_t>(b));
}
FOVEA_HOST_DEVICE inline int32_t ceil_quotient(int32_t a, int32_t b) {
  return quotient(a + b - 1, b);
}

/// Of any numbers from 0 on; a call on the device.
#ifdef __CUDACC__
__host__ __device__ __noinline__
#endif
    inline int64_t
    long_quotient(int64_t a, int64_t b) {
  return ((a | b) >> 31) == 0 ? quotient(static_cast<int32_t>(a), static_cast<int32_t>(b)) : a / b;
}

/// The last i in [0, n) with before[i] <= x; before[0] = 0 and x is below before[n].
template <class T>
FOVEA_HOST_DEVICE int32_t find_interval(const T* before, int32_t n, int64_t x) {
  int32_t low = 0, high = n;
  FOVEA_ROLLED
  while (high - low > 1) {
    const int32_t middle = low + (high - low) / 2;
    if (before[middle] <= x)
      low = middle;
    else
      high = middle;
  }
  return low;
}

/// What is wrong with sequence b of a step; its keys, of padding 0.
FOVEA_HOST_DEVICE inline PlanError sequence_error(const AttentionLimits& limits, const PlanInput& in,
                                                  int32_t b, int32_t& keys) {
  const int32_t begin = in.q_offsets[b], end = in.q_offsets[b + 1], n_k = in.kv_lens[b];
  keys = 0;
  if (begin > end || begin < 0 || (b == 0 && begin != 0)) return PlanError::q_offsets;
  if (end > limits.max_tokens) return PlanError::too_many_rows;
  if (begin == end) return PlanError::none;  // padding: its length may be anything
  if (n_k < 0 || n_k > limits.max_kv_len) return PlanError::kv_len;
  if (in.bad_pages != nullptr && in.bad_pages[b] != 0) return PlanError::pages;
  keys = n_k;
  return PlanError::none;
}

/// The quotients that cut a step, of numbers from 0 on. A kernel that waits for them has its own.
struct PlanDivide {
  const PlanPolicy& policy;
  int32_t blocks_per_chunk;
  FOVEA_HOST_DEVICE int32_t by_group(int32_t rows) const { return quotient(rows, policy.group); }
  FOVEA_HOST_DEVICE int32_t by_block(int32_t keys) const { return quotient(keys, policy.block_keys); }
  FOVEA_HOST_DEVICE int32_t by_chunk(int32_t blocks) const { return quotient(blocks, blocks_per_chunk); }
};

/// The keys that rows of a tile see. kPlainMask: the policy's mask has neither spans nor chunks nor sink
/// tokens, whose code is then left out.
template <bool kPlainMask, class Tile, class Divide>
FOVEA_HOST_DEVICE KeyRanges tile_keys(const PlanPolicy& policy, const Divide& divide, const PlanInput& in,
                                      const Tile& tile) {
  SequenceMask mask;
  mask.n_q = tile.n_q;
  mask.n_k = tile.n_k;
  if (!kPlainMask && policy.mask.spans && in.spans != nullptr)
    mask.spans = {in.spans + in.span_offsets[tile.seq],
                  static_cast<size_t>(in.span_offsets[tile.seq + 1] - in.span_offsets[tile.seq])};
  MaskSpec spec = policy.mask;
  if constexpr (kPlainMask) spec.spans = false, spec.chunk = 0, spec.sink_tokens = 0;
  return key_ranges(spec, mask, divide.by_group(tile.row), divide.by_group(tile.row + tile.rows - 1) + 1);
}

/// Fills the blocks that hold `keys`.
template <class Tile, class Divide>
FOVEA_HOST_DEVICE void set_blocks(const PlanPolicy& policy, const Divide& divide, const KeyRanges& keys,
                                  Tile& tile) {
  const int32_t last = policy.block_keys - 1;
  if (!keys.body.empty()) {
    tile.block = divide.by_block(static_cast<int32_t>(keys.body.first));
    tile.block_end = divide.by_block(static_cast<int32_t>(keys.body.last) + last);
    if (mutated(Mutation::last_block_lost) && tile.block_end > tile.block + 1) --tile.block_end;
  }
  if (keys.sinks.empty()) return;
  // Blocks that both reach belong to the body.
  tile.sink_block_end = divide.by_block(static_cast<int32_t>(keys.sinks.last) + last);
  if (!keys.body.empty() && tile.sink_block_end > tile.block) tile.sink_block_end = tile.block;
}

/// Fills the chunks of a tile's blocks.
template <class Tile, class Divide>
FOVEA_HOST_DEVICE void set_chunks(const PlanPolicy& policy, const Divide& divide, int32_t blocks_per_chunk,
                                  Tile& tile) {
  if (tile.n_q > policy.max_split_tokens) return;
  const int32_t first = divide.by_chunk(tile.block), last = blocks_per_chunk - 1;
  tile.split = 1;
  const bool body = tile.block < tile.block_end;
  tile.sink_chunks = divide.by_chunk(tile.sink_block_end + last);
  if (body && tile.sink_chunks > first) tile.sink_chunks = first;
  tile.chunks = tile.sink_chunks;
  if (body) tile.chunks += divide.by_chunk(tile.block_end + last) - first;
  if (tile.chunks == 0) tile.chunks = 1;
}

/// kPlainMask: as in tile_keys.
template <class Block, bool kPlainMask>
class Planner {
 public:
  FOVEA_HOST_DEVICE Planner(Block& block, const PlanPolicy& policy, const PlanLayout& layout,
                            const PlanInput& in, const PlanView& out)
      : block_(block),
        policy_(policy),
        layout_(layout),
        in_(in),
        out_(out),
        blocks_per_chunk_(quotient(policy.split_keys, policy.block_keys)) {}

  FOVEA_HOST_DEVICE void run() {
    PlanError error = count_tiles();
    if (error == PlanError::none) error = make_tiles();
    if (error != PlanError::none) tiles_ = 0, cost_ = 0, records_ = 0;
    PlanSums merged = make_starts();
    if (!policy_.folds) merged = merge_split_tiles();
    if (block_.rank() == 0)
      *out_.header = {error, tiles_,  static_cast<int32_t>(merged.a), static_cast<int32_t>(merged.b),
                      cost_, records_};
  }

 private:
  FOVEA_HOST_DEVICE int32_t tiles_of(int32_t n_q) const {
    return ceil_quotient(n_q * policy_.group, policy_.tile_rows);
  }

  /// Checks the arrays against the limits and fills tile_of_seq.
  FOVEA_HOST_DEVICE PlanError count_tiles() {
    const int32_t seqs = in_.num_seqs;
    tile_of_seq_ = seqs < Block::kScratchSeqs ? block_.scratch_seqs() : out_.tile_of_seq;
    int error = 0;
    PlanSums sum;
    FOVEA_ROLLED
    for (int32_t first = 0; first < seqs; first += block_.size()) {
      const int32_t b = first + block_.rank();
      PlanSums mine;
      if (b < seqs) {
        int32_t keys = 0;
        const PlanError wrong = sequence_error(layout_.limits, in_, b, keys);
        if (wrong == PlanError::none) mine = {tiles_of(in_.q_offsets[b + 1] - in_.q_offsets[b]), keys};
        error = error > static_cast<int>(wrong) ? error : static_cast<int>(wrong);
      }
      PlanSums total;
      const PlanSums before = sum + block_.exclusive_scan(mine, total);
      if (b < seqs) tile_of_seq_[b] = static_cast<int32_t>(before.a);
      sum = sum + total;
    }
    error = block_.max(error);
    if (error == 0 && sum.b > layout_.limits.max_kv_tokens) error = static_cast<int>(PlanError::kv_tokens);
    tiles_ = static_cast<int32_t>(sum.a);
    if (block_.rank() == 0) tile_of_seq_[seqs] = tiles_;
    block_.sync();
    return static_cast<PlanError>(error);
  }

  /// Fills tiles and cost_before.
  FOVEA_HOST_DEVICE PlanError make_tiles() {
    cost_before_ = tiles_ < Block::kScratchTiles ? block_.scratch_tiles() : out_.cost_before;
    PlanSums sum;
    FOVEA_ROLLED
    for (int32_t first = 0; first < tiles_; first += block_.size()) {
      const int32_t i = first + block_.rank();
      PlanTile tile;
      PlanSums mine;
      if (i < tiles_) {
        tile = make_tile(i);
        mine.a = int64_t{policy_.num_kv_heads} * pair_cost(tile);
        if (tile.chunks > 1) mine.b = static_cast<int64_t>(policy_.num_kv_heads) * tile.chunks * tile.rows;
      }
      PlanSums total;
      const PlanSums before = sum + block_.exclusive_scan(mine, total);
      if (i < tiles_) {
        tile.record = before.b;
        out_.tiles[i] = tile;
        cost_before_[i] = before.a;
      }
      sum = sum + total;
    }
    cost_ = sum.a;
    records_ = sum.b;
    if (block_.rank() == 0) cost_before_[tiles_] = cost_;
    block_.sync();
    return records_ > layout_.max_records ? PlanError::records : PlanError::none;
  }

  FOVEA_HOST_DEVICE PlanTile make_tile(int32_t i) const {
    PlanTile tile;
    tile.seq = find_interval(tile_of_seq_, in_.num_seqs, i);
    tile.q_row = in_.q_offsets[tile.seq];
    tile.n_q = in_.q_offsets[tile.seq + 1] - tile.q_row;
    tile.n_k = in_.kv_lens[tile.seq];
    // Last rows first: under a causal mask they see most, and what starts early may take long.
    const int32_t packed = tile.n_q * policy_.group;
    tile.row = (tile_of_seq_[tile.seq + 1] - 1 - i) * policy_.tile_rows;
    tile.rows = packed - tile.row < policy_.tile_rows ? packed - tile.row : policy_.tile_rows;
    const PlanDivide divide{policy_, blocks_per_chunk_};
    set_blocks(policy_, divide, tile_keys<kPlainMask>(policy_, divide, in_, tile), tile);
    set_chunks(policy_, divide, blocks_per_chunk_, tile);
    return tile;
  }

  FOVEA_HOST_DEVICE static int32_t blocks_of(const PlanTile& tile) {
    return tile.sink_block_end + tile.block_end - tile.block;
  }

  FOVEA_HOST_DEVICE int32_t pair_cost(const PlanTile& tile) const {
    return policy_.pair_cost + blocks_of(tile);
  }

  /// The border of chunks that is nearest to a position in a pair.
  FOVEA_HOST_DEVICE int32_t nearest_chunk(const PlanTile& tile, int32_t position) const {
    const int32_t at = position > policy_.pair_cost ? position - policy_.pair_cost : 0;
    const int32_t each = blocks_per_chunk_, all = blocks_of(tile);
    if (tile.chunks == 1) return at <= all - at ? 0 : 1;
    // Before the body's first chunk lie `sinks` blocks, before its chunk k sink_block_end + k * each -
    // skipped.
    const int32_t sinks =
        tile.sink_chunks * each < tile.sink_block_end ? tile.sink_chunks * each : tile.sink_block_end;
    const int32_t skipped = tile.block - quotient(tile.block, each) * each;
    const auto before = [&](int32_t k) {
      if (k == tile.chunks) return all;
      if (k <= tile.sink_chunks) return k * each < sinks ? k * each : sinks;
      return tile.sink_block_end + (k - tile.sink_chunks) * each - skipped;
    };
    int32_t low;  // the last with before(low) <= at
    if (at < sinks)
      low = quotient(at, each);
    else
      low = tile.sink_chunks +
            (at > tile.sink_block_end ? quotient(at - tile.sink_block_end + skipped, each) : 0);
    if (low >= tile.chunks) low = tile.chunks - 1;
    return at - before(low) <= before(low + 1) - at ? low : low + 1;
  }

  /// Fills starts and, where the kernel folds, merges; the sums are entries and units of these.
  FOVEA_HOST_DEVICE PlanSums make_starts() {
    const int64_t share = long_quotient(cost_, policy_.ctas);
    const auto rest = static_cast<int32_t>(cost_ - share * policy_.ctas);
    PlanStart* starts = policy_.ctas < Block::kScratchStarts ? block_.scratch_starts() : out_.starts;
    PlanSums sum;
    FOVEA_ROLLED
    for (int32_t first = 0; first <= policy_.ctas; first += block_.size()) {
      const int32_t i = first + block_.rank();
      PlanStart start{tiles_ * policy_.num_kv_heads, 0};
      PlanMerge merge;
      if (i <= policy_.ctas) {
        const int64_t position = share * i + quotient(rest * i, policy_.ctas);  // cost * i / ctas
        if (position < cost_) start = start_at(position, merge);
        starts[i] = start;
        if (starts != out_.starts) out_.starts[i] = start;
      }
      if (!policy_.folds) continue;
      block_.sync();
      // The pair that the border before CTA i cuts is merged once: at the first border inside it.
      if (merge.heads > 0) {
        const PlanStart before = starts[i - 1];
        if (before.pair == start.pair && before.chunk > 0) merge.heads = 0;
      }
      sum = append(sum, merge);
    }
    block_.sync();
    return sum;
  }

  /// The border of chunks nearest to a position; `merge` is the pair that it cuts, if it does.
  FOVEA_HOST_DEVICE PlanStart start_at(int64_t position, PlanMerge& merge) const {
    const int32_t index = find_interval(cost_before_, tiles_, position);
    const PlanTile tile = out_.tiles[index];
    const int32_t each = pair_cost(tile);
    const int64_t inside = position - cost_before_[index];
    const auto head = static_cast<int32_t>(long_quotient(inside, each));
    const int32_t pair = index * policy_.num_kv_heads + head;
    const int32_t chunk = nearest_chunk(tile, static_cast<int32_t>(inside - int64_t{head} * each));
    if (chunk == tile.chunks) return {pair + 1, 0};
    if (chunk > 0) merge = merge_of(tile, index, head, 1);
    return {pair, chunk};
  }

  FOVEA_HOST_DEVICE PlanSums merge_split_tiles() {
    PlanSums sum;
    FOVEA_ROLLED
    for (int32_t first = 0; first < tiles_; first += block_.size()) {
      const int32_t i = first + block_.rank();
      PlanMerge merge;
      if (i < tiles_ && out_.tiles[i].chunks > 1) merge = merge_of(out_.tiles[i], i, 0, policy_.num_kv_heads);
      sum = append(sum, merge);
    }
    return sum;
  }

  FOVEA_HOST_DEVICE static PlanMerge merge_of(const PlanTile& tile, int32_t index, int32_t head,
                                              int32_t heads) {
    return {index, head, heads, 0, tile.rows, tile.chunks, tile.q_row, tile.row, tile.record};
  }

  /// Adds the merges of all threads, those without heads left out.
  FOVEA_HOST_DEVICE PlanSums append(const PlanSums& sum, PlanMerge merge) {
    PlanSums mine, total;
    if (merge.heads > 0) mine = {1, int64_t{merge.heads} * merge.rows};
    const PlanSums before = sum + block_.exclusive_scan(mine, total);
    merge.first_unit = static_cast<int32_t>(before.b);
    if (merge.heads > 0) out_.merges[before.a] = merge;
    return sum + total;
  }

  Block& block_;
  const PlanPolicy& policy_;
  const PlanLayout& layout_;
  const PlanInput& in_;
  const PlanView& out_;
  const int32_t blocks_per_chunk_;
  int32_t* tile_of_seq_ = nullptr;
  int64_t* cost_before_ = nullptr;
  int32_t tiles_ = 0;
  int64_t cost_ = 0, records_ = 0;
};

}  // namespace fovea::cuda
