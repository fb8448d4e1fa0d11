#include "backends/cpu_attn/schedule.h"

#include <algorithm>
#include <utility>

#include "base/mutation.h"
#include "kernels/reference/visibility.h"

namespace fovea {
namespace {

using attn::Item;
using attn::kBlockRows;
using attn::kTileKeys;
using attn::kTilesPerSplit;

// Sequences are split if there are fewer items than this per thread. With four, waiting for the last item
// costs at most an eighth of the time.
constexpr int64_t kItemsPerThread = 4;

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

/// Tiles times packed rows, to which an item's time is proportional.
int64_t cost(const Item& item) {
  return int64_t{item.rows} * (item.tile_end - item.tile + item.sink_tile_end - item.sink_tile);
}

class Scheduler {
 public:
  Scheduler(const AttentionSpec& spec, const BatchMeta& meta, int threads, int64_t max_records)
      : spec_(spec),
        meta_(meta),
        threads_(threads),
        max_records_(max_records),
        group_(spec.num_heads / spec.num_kv_heads) {}

  AttentionSchedule run() {
    out_.seqs.reserve(spec_.use_sparse ? static_cast<size_t>(meta_.num_tokens()) : meta_.kv_lens.size());
    out_.row_keys.reserve(static_cast<size_t>(meta_.num_tokens()));
    for (int b = 0; b < meta_.num_seqs(); ++b)
      spec_.use_sparse ? add_listed_rows(b) : add_sequence(b);
    split_items();
    std::stable_sort(out_.items.begin(), out_.items.end(),
                     [](const Item& a, const Item& b) { return cost(a) > cost(b); });
    return std::move(out_);
  }

 private:
  void add_sequence(int b) {
    const SequenceMask mask = sequence_mask(spec_.mask, meta_, b);
    attn::Sequence seq;
    seq.n_q = static_cast<int32_t>(mask.n_q);
    seq.n_k = static_cast<int32_t>(mask.n_k);
    seq.first_row = meta_.q_offsets[b];
    if (mask.n_k > 0) seq.pages = meta_.pages(b);
    seq.packed = mask.packed;
    seq.tree_bias = mask.tree_bias;
    seq.tree_size = static_cast<int32_t>(mask.tree_size);
    out_.seqs.push_back(seq);
    for (int64_t i = 0; i < mask.n_q; ++i) {
      // For a single row the ranges are exact: a window, a chunk and a span that contain the row's own
      // position merge into one range.
      const KeyRanges keys = ranges_of(mask, i);
      out_.row_keys.push_back({static_cast<int32_t>(keys.sinks.first), static_cast<int32_t>(keys.sinks.last),
                               static_cast<int32_t>(keys.body.first), static_cast<int32_t>(keys.body.last)});
    }
    for (int head = 0; head < spec_.num_kv_heads; ++head)
      for (int64_t row = 0; row < mask.n_q * group_; row += kBlockRows)
        add_block(b, head, row, std::min<int64_t>(kBlockRows, mask.n_q * group_ - row));
  }

  /// Sparse attention: rows of a sequence share no keys, so that each is a sequence of its own.
  void add_listed_rows(int b) {
    const int32_t keys = meta_.kv_lens[b];
    for (int32_t row = meta_.q_offsets[b]; row < meta_.q_offsets[b + 1]; ++row) {
      attn::Sequence seq;
      seq.n_q = 1;
      seq.n_k = keys > 0 ? spec_.sparse_topk : 0;
      seq.n_listed = keys;
      seq.first_row = row;
      if (keys > 0) seq.pages = meta_.pages(b);
      const auto index = static_cast<int>(out_.seqs.size());
      out_.seqs.push_back(seq);
      out_.row_keys.push_back({0, 0, 0, seq.n_k});
      for (int64_t head = 0; head < group_; head += kBlockRows)
        add_block(index, 0, head, std::min<int64_t>(kBlockRows, group_ - head));
    }
  }

  /// The keys of row `i`.
  KeyRanges ranges_of(SequenceMask mask, int64_t i) const {
    [[maybe_unused]] const int64_t n_k = mask.n_k;
    if (mutated(Mutation::top_left)) mask.n_k = std::min(mask.n_k, mask.n_q);
    KeyRanges keys = key_ranges(spec_.mask, mask, i, i + 1);
    if (mutated(Mutation::last_page_lost) && spec_.page_size > 0 && n_k > spec_.page_size)
      keys.body.last = std::min(keys.body.last, n_k - n_k % spec_.page_size);
    return keys;
  }

  /// Rows [row, row + rows) with all tiles in which one of them may see a key.
  void add_block(int b, int head, int64_t row, int64_t rows) {
    Item item;
    item.seq = b;
    item.kv_head = head;
    item.row = static_cast<int32_t>(row);
    item.rows = static_cast<int32_t>(rows);
    int32_t first = INT32_MAX, last = 0, sink_last = 0;
    const int64_t base = out_.seqs.back().first_row;
    for (int64_t i = row / group_; i <= (row + rows - 1) / group_; ++i) {
      const attn::RowKeys& keys = out_.row_keys[static_cast<size_t>(base + i)];
      if (keys.first < keys.last) {
        first = std::min(first, keys.first);
        last = std::max(last, keys.last);
      }
      if (keys.sink_first < keys.sink_last) sink_last = std::max(sink_last, keys.sink_last);
    }
    if (first < last) {
      item.tile = first / kTileKeys;
      item.tile_end = static_cast<int32_t>(ceil_div(last, kTileKeys));
    }
    // Sinks precede the body; tiles shared by both belong to the body.
    item.sink_tile_end = static_cast<int32_t>(ceil_div(sink_last, kTileKeys));
    if (item.tile < item.tile_end) item.sink_tile_end = std::min(item.sink_tile_end, item.tile);
    out_.items.push_back(item);
  }

  void split_items() {
    for (const Item& item : out_.items)
      out_.tile_rows += cost(item);
    if (threads_ < 2 || static_cast<int64_t>(out_.items.size()) == 0) return;
    const int64_t target = std::max<int64_t>(1, out_.tile_rows / (threads_ * kItemsPerThread));
    std::vector<Item> cut;
    for (const Item& item : out_.items)
      if (!split(item, target, cut)) cut.push_back(item);
    out_.items = std::move(cut);
  }

  /// Cuts an item into pieces of about `target` cost at split boundaries; false = not cut.
  bool split(const Item& item, int64_t target, std::vector<Item>& cut) {
    if (cost(item) <= target || out_.seqs[item.seq].n_q > attn::kMaxSplitTokens) return false;
    const int32_t first = (item.sink_tile_end > 0 ? 0 : item.tile) / kTilesPerSplit;
    const int32_t last = static_cast<int32_t>(ceil_div(item.tile_end, kTilesPerSplit));
    const int32_t splits = last - first;
    const int64_t records = int64_t{splits} * item.rows;
    if (splits < 2 || item.tile_end <= item.tile || out_.partial_records + records > max_records_)
      return false;
    const int32_t each =
        static_cast<int32_t>(std::max<int64_t>(1, target / (int64_t{item.rows} * kTilesPerSplit)));
    for (int32_t s = first; s < last; s += each)
      cut.push_back(piece(item, first, s, std::min(s + each, last)));
    out_.combines.push_back({item.seq, item.kv_head, item.row, item.rows, out_.partial_records, splits});
    out_.partial_records += records;
    return true;
  }

  /// The splits [from, to) of an item whose records begin with those of split `first`.
  Item piece(Item item, int32_t first, int32_t from, int32_t to) const {
    const int32_t begin = from * kTilesPerSplit, end = to * kTilesPerSplit;
    item.tile = std::clamp(item.tile, begin, end);
    item.tile_end = std::clamp(item.tile_end, begin, end);
    item.sink_tile = std::clamp(item.sink_tile, begin, end);
    item.sink_tile_end = std::clamp(item.sink_tile_end, begin, end);
    item.first_split = from;
    item.splits = to - from;
    item.partial = out_.partial_records + int64_t{from - first} * item.rows;
    return item;
  }

  const AttentionSpec& spec_;
  const BatchMeta& meta_;
  const int threads_;
  const int64_t max_records_;
  const int64_t group_;
  AttentionSchedule out_;
};

}  // namespace

AttentionSchedule make_schedule(const AttentionSpec& spec, const BatchMeta& meta, int threads,
                                int64_t max_partial_records) {
  return Scheduler(spec, meta, threads, max_partial_records).run();
}

int64_t max_partial_records(const AttentionSpec& spec, const AttentionLimits& limits) {
  const attn::ScratchLayout layout = attn::scratch_layout(spec.head_dim, spec.v_head_dim, spec.use_mla);
  const int64_t bytes = attn::record_floats(layout) * static_cast<int64_t>(sizeof(float));
  const int64_t most = attn::kMaxPartialBytes / bytes;
  // Each split sequence has at most kMaxSplitTokens rows per head, and a record for each of its splits.
  const int64_t rows = int64_t{std::min(limits.max_tokens, attn::kMaxSplitTokens)} * spec.num_heads;
  const int64_t splits = limits.max_kv_tokens / attn::kSplitKeys + limits.max_seqs;
  if (rows == 0 || splits > most / rows) return rows == 0 ? 0 : most;  // without overflow
  return rows * splits;
}

}  // namespace fovea
