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

FOVEA_HOST_DEVICE inline int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

/// The last i in [0, n) with before[i] <= x; before[0] = 0 and x is below before[n].
template <class T>
FOVEA_HOST_DEVICE int32_t find_interval(const T* before, int32_t n, int64_t x) {
  int32_t low = 0, high = n;
  while (high - low > 1) {
    const int32_t middle = low + (high - low) / 2;
    if (before[middle] <= x)
      low = middle;
    else
      high = middle;
  }
  return low;
}

template <class Block>
class Planner {
 public:
  FOVEA_HOST_DEVICE Planner(Block& block, const PlanPolicy& policy, const PlanLayout& layout,
                            const PlanInput& in, const PlanView& out)
      : block_(block), policy_(policy), layout_(layout), in_(in), out_(out) {}

  FOVEA_HOST_DEVICE void run() {
    PlanError error = count_tiles();
    if (error == PlanError::none) error = make_tiles();
    if (error != PlanError::none) tiles_ = 0, cost_ = 0, records_ = 0;
    make_starts();
    block_.sync();
    const PlanSums merged = policy_.folds ? merge_shared_pairs() : merge_tiles();
    if (block_.rank() == 0)
      *out_.header = {error, tiles_,  static_cast<int32_t>(merged.a), static_cast<int32_t>(merged.b),
                      cost_, records_};
  }

 private:
  FOVEA_HOST_DEVICE int32_t tiles_of(int32_t n_q) const {
    return static_cast<int32_t>(ceil_div(static_cast<int64_t>(n_q) * policy_.group, policy_.tile_rows));
  }

  /// Checks the arrays against the limits and fills tile_of_seq.
  FOVEA_HOST_DEVICE PlanError count_tiles() {
    const int32_t seqs = in_.num_seqs;
    tile_of_seq_ = seqs < Block::kScratchSeqs ? block_.scratch_seqs() : out_.tile_of_seq;
    int error = 0;
    PlanSums sum;
    for (int32_t first = 0; first < seqs; first += block_.size()) {
      const int32_t b = first + block_.rank();
      PlanSums mine;
      if (b < seqs) {
        const int32_t begin = in_.q_offsets[b], end = in_.q_offsets[b + 1], n_k = in_.kv_lens[b];
        PlanError wrong = PlanError::none;
        if (begin > end || begin < 0 || (b == 0 && begin != 0))
          wrong = PlanError::q_offsets;
        else if (end > layout_.limits.max_tokens)
          wrong = PlanError::too_many_rows;
        else if (begin == end)
          mine = {};  // padding: its length may be anything
        else if (n_k < 0 || n_k > layout_.limits.max_kv_len)
          wrong = PlanError::kv_len;
        else
          mine = {tiles_of(end - begin), n_k};
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
    for (int32_t first = 0; first < tiles_; first += block_.size()) {
      const int32_t i = first + block_.rank();
      PlanTile tile;
      PlanSums mine;
      if (i < tiles_) {
        tile = make_tile(i);
        mine.a = policy_.num_kv_heads * pair_cost(tile);
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
    set_blocks(tile);
    set_chunks(tile);
    return tile;
  }

  FOVEA_HOST_DEVICE void set_blocks(PlanTile& tile) const {
    SequenceMask mask;
    mask.n_q = tile.n_q;
    mask.n_k = tile.n_k;
    if (policy_.mask.spans)
      mask.spans = {in_.spans + in_.span_offsets[tile.seq],
                    static_cast<size_t>(in_.span_offsets[tile.seq + 1] - in_.span_offsets[tile.seq])};
    const KeyRanges keys = key_ranges(policy_.mask, mask, tile.row / policy_.group,
                                      (tile.row + tile.rows - 1) / policy_.group + 1);
    const int64_t each = policy_.block_keys;
    if (!keys.body.empty()) {
      tile.block = static_cast<int32_t>(keys.body.first / each);
      tile.block_end = static_cast<int32_t>(ceil_div(keys.body.last, each));
    }
    if (keys.sinks.empty()) return;
    // Blocks that both reach belong to the body.
    tile.sink_block_end = static_cast<int32_t>(ceil_div(keys.sinks.last, each));
    if (!keys.body.empty() && tile.sink_block_end > tile.block) tile.sink_block_end = tile.block;
  }

  FOVEA_HOST_DEVICE void set_chunks(PlanTile& tile) const {
    if (tile.n_q > policy_.max_split_tokens) return;
    const int32_t each = blocks_per_chunk();
    tile.split = 1;
    const bool body = tile.block < tile.block_end;
    tile.sink_chunks = static_cast<int32_t>(ceil_div(tile.sink_block_end, each));
    if (body && tile.sink_chunks > tile.block / each) tile.sink_chunks = tile.block / each;
    tile.chunks = tile.sink_chunks;
    if (body) tile.chunks += static_cast<int32_t>(ceil_div(tile.block_end, each)) - tile.block / each;
    if (tile.chunks == 0) tile.chunks = 1;
  }

  FOVEA_HOST_DEVICE int32_t blocks_per_chunk() const { return policy_.split_keys / policy_.block_keys; }

  FOVEA_HOST_DEVICE static int64_t blocks_of(const PlanTile& tile) {
    return int64_t{tile.sink_block_end} + tile.block_end - tile.block;
  }

  FOVEA_HOST_DEVICE int64_t pair_cost(const PlanTile& tile) const {
    return policy_.pair_cost + blocks_of(tile);
  }

  /// Blocks of a pair before its chunk k, k in [0, chunks].
  FOVEA_HOST_DEVICE int64_t blocks_before(const PlanTile& tile, int32_t k) const {
    if (k == 0) return 0;
    if (k == tile.chunks) return blocks_of(tile);
    const int64_t each = blocks_per_chunk();
    if (k <= tile.sink_chunks) return k * each < tile.sink_block_end ? k * each : tile.sink_block_end;
    return tile.sink_block_end + (k - tile.sink_chunks) * each - tile.block % each;
  }

  /// The border of chunks that is nearest to a position in a pair.
  FOVEA_HOST_DEVICE int32_t nearest_chunk(const PlanTile& tile, int64_t position) const {
    const int64_t at = position > policy_.pair_cost ? position - policy_.pair_cost : 0;
    int32_t low = 0, high = tile.chunks;  // blocks_before(low) <= at
    while (high - low > 1) {
      const int32_t middle = low + (high - low) / 2;
      if (blocks_before(tile, middle) <= at)
        low = middle;
      else
        high = middle;
    }
    return at - blocks_before(tile, low) <= blocks_before(tile, high) - at ? low : high;
  }

  FOVEA_HOST_DEVICE void make_starts() {
    for (int32_t i = block_.rank(); i <= policy_.ctas; i += block_.size()) {
      // cost * i / ctas, without overflow
      const int64_t position = cost_ / policy_.ctas * i + cost_ % policy_.ctas * i / policy_.ctas;
      PlanStart start{tiles_ * policy_.num_kv_heads, 0};
      if (position < cost_) {
        const int32_t tile = find_interval(cost_before_, tiles_, position);
        const int64_t each = (cost_before_[tile + 1] - cost_before_[tile]) / policy_.num_kv_heads;
        const int64_t inside = position - cost_before_[tile];
        start.pair = tile * policy_.num_kv_heads + static_cast<int32_t>(inside / each);
        start.chunk = nearest_chunk(out_.tiles[tile], inside % each);
        if (start.chunk == out_.tiles[tile].chunks) start = {start.pair + 1, 0};
      }
      out_.starts[i] = start;
    }
  }

  /// Pairs that more than one CTA has a part of: at the first border inside.
  FOVEA_HOST_DEVICE PlanSums merge_shared_pairs() {
    PlanSums sum;
    for (int32_t first = 1; first < policy_.ctas; first += block_.size()) {
      const int32_t i = first + block_.rank();
      PlanMerge merge;
      if (i < policy_.ctas) {
        const PlanStart start = out_.starts[i], before = out_.starts[i - 1];
        if (start.chunk > 0 && (before.pair < start.pair || before.chunk == 0))
          merge = {start.pair / policy_.num_kv_heads, start.pair % policy_.num_kv_heads, 1, 0};
      }
      sum = append(sum, merge);
    }
    return sum;
  }

  FOVEA_HOST_DEVICE PlanSums merge_tiles() {
    PlanSums sum;
    for (int32_t first = 0; first < tiles_; first += block_.size()) {
      const int32_t i = first + block_.rank();
      PlanMerge merge;
      if (i < tiles_ && out_.tiles[i].chunks > 1) merge = {i, 0, policy_.num_kv_heads, 0};
      sum = append(sum, merge);
    }
    return sum;
  }

  /// Adds the merges of all threads, those without heads left out; the sums are entries and units.
  FOVEA_HOST_DEVICE PlanSums append(const PlanSums& sum, PlanMerge merge) {
    PlanSums mine, total;
    if (merge.heads > 0) mine = {1, int64_t{merge.heads} * out_.tiles[merge.tile].rows};
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
  int32_t* tile_of_seq_ = nullptr;
  int64_t* cost_before_ = nullptr;
  int32_t tiles_ = 0;
  int64_t cost_ = 0, records_ = 0;
};

}  // namespace fovea::cuda
