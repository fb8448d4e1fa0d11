#pragma once
// The schedule of one step for a persistent attention kernel, made on the device from the step's arrays: no
// length is read by the host, nothing is synchronised, and a captured launch follows the arrays' contents.
//
// Words. Packed row: query row r / group of a sequence and head kv_head * group + r % group, as everywhere in
// Fovea. Tile: `tile_rows` packed rows of one sequence. Pair: a tile with one kv head. Block: `block_keys`
// keys from an absolute multiple of it, what a kernel's main loop takes at a time. Chunk: `split_keys` keys
// from an absolute multiple of it.
//
// A pair's visible blocks are cut into chunks, and CTAs get contiguous runs of (pair, chunk) of about equal
// cost. What a row's bits may depend on is therefore its own sequence only: which chunks it has follows from
// its mask and its position, a chunk's (O, LSE) from the chunk's keys, and chunks are merged left to right by
// their index (merge/state.h), whoever computed them. Company in the batch, page size, the number of CTAs and
// graph replay change no bit. How a prefill was cut changes none either as long as the kernel's arithmetic in
// a chunk is the same for a row in any tile and all steps lie on one side of max_split_tokens; sequences
// beyond it are never split, which a kernel may either compute without regard to chunks (then that border
// shows in the last bits) or fold chunk by chunk (then it does not).
#include <cstddef>
#include <cstdint>

#include "base/host_device.h"
#include "fovea/attention_backend.h"

namespace fovea::cuda {

/// What is constant for a kernel and a layer's spec.
struct PlanPolicy {
  int num_kv_heads = 1;
  int group = 1;       ///< query heads of a kv head
  int tile_rows = 16;  ///< packed rows of a tile
  int block_keys = 64;
  int split_keys = 512;       ///< a multiple of block_keys; split_keys_for() gives the usual one
  int max_split_tokens = 16;  ///< sequences with more query rows are never split
  int ctas = 1;               ///< of the persistent kernel, from the device's multiprocessors
  int pair_cost = 1;          ///< what starting a pair costs, in blocks; at least 1
  /// Whether the kernel merges the chunks of a pair that it has whole. Then only pairs that several CTAs
  /// share leave partial results; else all pairs of several chunks do.
  bool folds = false;
  MaskSpec mask;
};

/// Keys of a chunk for which writing and reading back the partial results of `rows` packed rows costs at most
/// 2 % of the bytes of K and V: a power of two from 256 to 4096. `key_bytes` = bytes of K and V of one key
/// and kv head.
int split_keys_for(int rows, int dv, int64_t key_bytes);

/// Errors: a policy that makes no sense, limits that are negative or whose tiles, rows and heads can't be
/// counted in 32 bits.
Status check_plan_limits(const PlanPolicy& policy, const AttentionLimits& limits);

/// Row tiles of any step within limits that check_plan_limits accepts.
int64_t most_tiles(const PlanPolicy& policy, const AttentionLimits& limits);

/// Bounds of what steps within limits are cut into. A sequence of n_k keys has at most ceil(n_k / split_keys)
/// chunks, whatever the mask, and only one of more than split_keys keys has partial results.
struct ChunkBounds {
  int64_t of_sequence = 0;  ///< chunks of any tile
  /// The sum over all sequences that are split, a tile of each: with S of them, each of at least split_keys
  /// + 1 keys, and T keys in all it is at most (T - S) / split_keys + S.
  int64_t of_step = 0;
};
ChunkBounds chunk_bounds(const PlanPolicy& policy, const AttentionLimits& limits);

/// What PlanPolicy::max_split_tokens should be for these limits: the most of 16, 8, 4, 2 and 1 for which
/// partial results stay within `bytes`; 1 if none does. (Each query row of a sequence that may be split has a
/// row of Dv + 2 floats under each query head for each chunk: with 32 heads, Dv = 128 and chunks of 512 keys
/// 1024 sequences of 2M keys in all take 85 MB at 1 and 340 MB at 4.) It depends on limits, never on a step,
/// so that a row's bits do not either. policy.max_split_tokens is not looked at.
int split_tokens_for(const PlanPolicy& policy, const AttentionLimits& limits, int dv,
                     int64_t bytes = int64_t{128} << 20);

/// The step's arrays; device memory for the kernel. Sequences with q_offsets[b] == q_offsets[b + 1] are
/// padding.
struct PlanInput {
  const int32_t* q_offsets = nullptr;  ///< [num_seqs + 1]
  const int32_t* kv_lens = nullptr;    ///< [num_seqs]
  const Span* spans = nullptr;         ///< with mask.spans, as in BatchMeta; null: no sequence has any
  const int32_t* span_offsets = nullptr;
  int num_seqs = 0;
  /// Query rows of the step, as the host knows them: those that are lost with all of its sequences.
  int num_rows = 0;
  /// [num_seqs] 1 = a page id of the sequence is none of the cache's; null: ids were not looked at.
  const uint8_t* bad_pages = nullptr;
};

struct alignas(64) PlanTile {
  int32_t seq = 0;
  int32_t q_row = 0;         ///< q_offsets[seq]
  int32_t n_q = 0, n_k = 0;  ///< of the sequence
  int32_t row = 0, rows = 0;
  /// Blocks to visit, ascending: [0, sink_block_end), then [block, block_end). Keys in them still need
  /// visible().
  int32_t sink_block_end = 0;
  int32_t block = 0, block_end = 0;
  int32_t chunks = 1;       ///< at least 1, also without blocks; 1 when the sequence is not split
  int32_t sink_chunks = 0;  ///< of them, those before the chunk of `block`
  int32_t split = 0;        ///< 1: chunks are cut at split_keys; 0: the one chunk is everything
  /// First partial result; that of (head, chunk k, row) is record + (head * chunks + k) * rows + row. Only
  /// with chunks > 1.
  int64_t record = 0;
  int32_t unused[2] = {};  // whole lines are written, so that plans compare byte for byte
};
static_assert(sizeof(PlanTile) == 64);

/// The first (pair, chunk) of a CTA; pair = tile * num_kv_heads + kv head. The next CTA's is its end.
struct PlanStart {
  int32_t pair = 0, chunk = 0;
};

/// Rows [0, rows) of `heads` kv heads of a tile whose partial results are to be merged. Repeats of the tile
/// what a merge reads, which saves it a trip to memory.
struct PlanMerge {
  int32_t tile = 0;
  int32_t head = 0, heads = 0;
  int32_t first_unit = 0;  ///< units before this entry; a unit is one (head, row)
  int32_t rows = 0, chunks = 0;
  int32_t q_row = 0, row = 0;
  int64_t record = 0;
};

enum class PlanError : int32_t {
  none,
  q_offsets,      ///< does not begin with 0, or decreases
  too_many_rows,  ///< beyond max_tokens
  kv_len,         ///< below 0 or beyond max_kv_len
  kv_tokens,      ///< their sum beyond max_kv_tokens
  records,        ///< more partial results than the layout has: a bug
  pages,          ///< an id that the cache does not have
};

/// With an error the plan is empty: kernels run and write nothing.
struct PlanHeader {
  PlanError error = PlanError::none;
  int32_t tiles = 0;
  int32_t merges = 0, merge_units = 0;
  int64_t cost = 0;     ///< of all pairs, in blocks
  int64_t records = 0;  ///< partial results reserved
};

/// Capacities and offsets of the arrays of a plan in the workspace; a pure function of policy, limits and Dv.
struct PlanLayout {
  AttentionLimits limits;
  int32_t max_tiles = 0, max_merges = 0;
  int64_t max_records = 0;
  int dv = 0;
  size_t header = 0, tiles = 0, starts = 0, merges = 0, tile_of_seq = 0, cost_before = 0, partial_lse = 0,
         partial_o = 0;
  size_t bytes = 0;
};

/// Pointers into a workspace.
struct PlanView {
  PlanHeader* header = nullptr;
  PlanTile* tiles = nullptr;       ///< [header->tiles]
  PlanStart* starts = nullptr;     ///< [ctas + 1]
  PlanMerge* merges = nullptr;     ///< [header->merges]
  int32_t* tile_of_seq = nullptr;  ///< [num_seqs + 1] tiles before each sequence
  int64_t* cost_before = nullptr;  ///< [tiles + 1]
  float* partial_lse = nullptr;    ///< [max_records]
  float* partial_o = nullptr;      ///< [max_records, dv]
};

/// Errors: a policy that makes no sense, limits that are negative or whose plan would need more than 64-bit
/// sizes.
Result<PlanLayout> plan_layout(const PlanPolicy& policy, const AttentionLimits& limits, int dv);

/// `workspace` has layout.bytes, 64-byte aligned.
PlanView plan_view(const PlanLayout& layout, void* workspace);

/// The same plan on the host, from host arrays into host memory: what tests compare with, and what explains a
/// step.
void make_plan_on_host(const PlanPolicy& policy, const PlanLayout& layout, const PlanInput& input,
                       const PlanView& out);

/// What the host sees of a step: no more sequences than the limits, and arrays where they are needed.
Status check_plan_input(const PlanPolicy& policy, const AttentionLimits& limits, const PlanInput& input);

/// What a PlanError of a step means, with the limits.
Error plan_error(PlanError error, const AttentionLimits& limits);

/// Blocks of one chunk: [sink_block, sink_block_end), then [block, block_end).
struct ChunkBlocks {
  int32_t sink_block = 0, sink_block_end = 0;
  int32_t block = 0, block_end = 0;
};

/// Chunk k of [0, tile.chunks) of a PlanTile, or of another struct with these fields. `each` = blocks of a
/// chunk, `first` = tile.block / each.
template <class Tile>
FOVEA_HOST_DEVICE inline ChunkBlocks chunk_blocks(const Tile& tile, int32_t k, int32_t each, int32_t first) {
  ChunkBlocks out{0, tile.sink_block_end, tile.block, tile.block_end};
  if (tile.split == 0) return out;
  const int32_t chunk = k < tile.sink_chunks ? k : first + k - tile.sink_chunks;
  const int32_t begin = chunk * each, end = begin + each;
  const auto clamp = [=](int32_t x) { return x < begin ? begin : x > end ? end : x; };
  return {clamp(out.sink_block), clamp(out.sink_block_end), clamp(out.block), clamp(out.block_end)};
}
FOVEA_HOST_DEVICE inline ChunkBlocks chunk_blocks(const PlanPolicy& policy, const PlanTile& tile, int32_t k) {
  const int32_t each = policy.split_keys / policy.block_keys;
  return chunk_blocks(tile, k, each, tile.block / each);
}

/// The record of row `row` of chunk `k` of a pair.
FOVEA_HOST_DEVICE inline int64_t record_of(const PlanTile& tile, int head, int32_t k, int32_t row) {
  return tile.record + (static_cast<int64_t>(head) * tile.chunks + k) * tile.rows + row;
}

/// What a CTA does next: chunks [chunk, chunk_end) of a pair. `whole`: they are all of the pair's.
struct PlanItem {
  int32_t tile = 0, head = 0;
  int32_t chunk = 0, chunk_end = 0;
  bool whole = false;
};

/// Walks over the items of one CTA: PlanWalk walk(policy, view, cta); for (PlanItem item; walk.next(item);)
/// ...
class PlanWalk {
 public:
  FOVEA_HOST_DEVICE PlanWalk(const PlanPolicy& policy, const PlanView& plan, int cta)
      : tiles_(plan.tiles), heads_(policy.num_kv_heads), at_(plan.starts[cta]), end_(plan.starts[cta + 1]) {}

  FOVEA_HOST_DEVICE bool next(PlanItem& item) {
    if (at_.pair > end_.pair || (at_.pair == end_.pair && at_.chunk >= end_.chunk)) return false;
    item.tile = at_.pair / heads_;
    item.head = at_.pair % heads_;
    const int32_t chunks = tiles_[item.tile].chunks;
    item.chunk = at_.chunk;
    item.chunk_end = at_.pair == end_.pair ? end_.chunk : chunks;
    item.whole = item.chunk == 0 && item.chunk_end == chunks;
    at_ = {at_.pair + 1, 0};
    return true;
  }

 private:
  const PlanTile* tiles_;
  int32_t heads_;
  PlanStart at_, end_;
};

/// Whether a chunk's result goes to its record (else the pair's result is written at once).
FOVEA_HOST_DEVICE inline bool writes_records(const PlanPolicy& policy, const PlanTile& tile,
                                             const PlanItem& item) {
  return tile.chunks > 1 && !(policy.folds && item.whole);
}

}  // namespace fovea::cuda
