#include "attention/work.h"

#include <algorithm>

#include "fovea/dtype.h"

namespace fovea {
namespace {

/// Keys [first, last) and the first `sinks` ones, which precede them.
struct Visible {
  int64_t first = 0, last = 0, sinks = 0;
  int64_t count() const { return std::max<int64_t>(0, last - first) + sinks; }
};

Visible visible_keys(const MaskSpec& mask, int64_t position, int64_t keys) {
  Visible out{0, keys, 0};
  if (mask.causal) out.last = std::min(out.last, position + 1);
  if (mask.window_right >= 0) out.last = std::min(out.last, position + mask.window_right + 1);
  if (mask.window_left >= 0) out.first = std::max<int64_t>(out.first, position - mask.window_left);
  if (mask.chunk > 0 && position >= 0) {
    const int64_t begin = position / mask.chunk * mask.chunk;
    out.first = std::max(out.first, begin);
    out.last = std::min(out.last, begin + mask.chunk);
  }
  out.last = std::max<int64_t>(out.last, 0);
  out.sinks = std::min({int64_t{mask.sink_tokens}, out.first, out.last});
  return out;
}

}  // namespace

AttentionWork attention_work(const AttentionSpec& spec, const BatchMeta& meta) {
  int64_t keys_read = 0, pairs = 0;
  for (int b = 0; b < meta.num_seqs(); ++b) {
    const auto at = static_cast<size_t>(b);
    const int64_t keys = meta.kv_lens[at], rows = meta.q_offsets[at + 1] - meta.q_offsets[at];
    if (rows <= 0) continue;
    int64_t listed = 0;
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t seen = visible_keys(spec.mask, row + keys - rows, keys).count();
      listed += spec.use_sparse ? std::min<int64_t>(seen, spec.sparse_topk) : seen;
    }
    pairs += listed;
    // Both ends of a row's visible range grow with its position, so the union is one range (plus the sinks).
    const Visible first = visible_keys(spec.mask, keys - rows, keys);
    const Visible last = visible_keys(spec.mask, keys - 1, keys);
    const int64_t read = Visible{first.first, last.last, std::min(last.sinks, first.first)}.count();
    keys_read += spec.use_sparse ? std::min(read, listed) : read;
  }
  const auto dims = static_cast<double>(spec.head_dim + spec.v_head_dim);
  const auto kv_size = static_cast<double>(size_of(resolve(spec.kv_dtype, spec.dtype)));
  const double query_dims = dims * spec.num_heads;
  AttentionWork work;
  work.bytes = static_cast<double>(keys_read) * dims * spec.num_kv_heads * kv_size +
               static_cast<double>(meta.num_tokens()) * query_dims * static_cast<double>(size_of(spec.dtype));
  work.flops = 2 * static_cast<double>(pairs) * query_dims;
  return work;
}

}  // namespace fovea
