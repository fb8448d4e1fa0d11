#include "flex/cpu_attention.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <optional>

#include "base/thread_pool.h"
#include "flex/interval.h"
#include "flex/strip.h"

namespace fovea::flex {
namespace {

constexpr float kMinusInf = -std::numeric_limits<float>::infinity();
constexpr int kSumLanes = 16;

int64_t padded(int64_t n) {
  return (n + kPad - 1) / kPad * kPad;
}

/// A thread's memory.
struct Layout {
  int64_t dp, dvp;
  size_t q, keys, keys_transposed, values, scores, out, max, sums, alpha, mask, score, end;

  Layout(const Program& program, const AttentionSpec& spec)
      : dp(padded(spec.head_dim)), dvp(padded(spec.v_head_dim)) {
    size_t at = 0;
    const auto take = [&at](size_t bytes) {
      const size_t begin = at;
      at += (bytes + 63) / 64 * 64;
      return begin;
    };
    const auto floats = [&take](int64_t n) { return take(static_cast<size_t>(n) * sizeof(float)); };
    const auto registers = [](const std::optional<Tree>& tree) {
      return tree ? StripCode(*tree).scratch_bytes() : size_t{0};
    };
    q = floats(kTileRows * dp);
    keys = floats(kStrip * dp);
    keys_transposed = floats(kStrip * dp);
    values = floats(kStrip * dvp);
    scores = floats(int64_t{kTileRows} * kStrip);
    out = floats(kTileRows * dvp);
    max = floats(kTileRows);
    sums = floats(kTileRows * kSumLanes);
    alpha = floats(kTileRows);
    mask = take(registers(program.mask));
    score = take(registers(program.score));
    end = at;
  }
};

/// What all tiles of a call share.
struct Call {
  const Program& program;
  std::span<const Buffer> buffers;
  const AttentionSpec& spec;
  const BatchMeta& meta;
  const AttentionArgs& args;
  const CpuKernels& kernels;
  Layout layout;
  std::optional<StripCode> mask, score;
  std::optional<Analysis> analysis;
  DType kv_type = DType::f32;
  int group = 1;
  std::atomic<int64_t> counts[3] = {};

  Call(const Program& p, std::span<const Buffer> b, const AttentionSpec& s, const BatchMeta& m,
       const AttentionArgs& a)
      : program(p), buffers(b), spec(s), meta(m), args(a), kernels(cpu_kernels()), layout(p, s) {
    if (p.mask) mask.emplace(*p.mask);
    if (p.mask) analysis.emplace(*p.mask, p.buffers, b);
    if (p.score) score.emplace(*p.score);
    kv_type = a.kv.dtype == KvCacheDType::float16    ? DType::f16
              : a.kv.dtype == KvCacheDType::bfloat16 ? DType::bf16
                                                     : DType::f32;
    group = s.num_heads / s.num_kv_heads;
  }
};

/// Up to kTileRows (query row, head) pairs of one sequence and KV head.
struct Tile {
  int b, kv_head;
  int64_t first;  ///< of the n_q * group pairs, heads within rows
  int count;
};

class TileRun {
 public:
  TileRun(Call& call, const Tile& tile, std::byte* scratch, Analysis::Scratch& intervals)
      : c_(call), k_(call.kernels), tile_(tile), scratch_(scratch), intervals_(intervals) {
    n_q_ =
        c_.meta.q_offsets[static_cast<size_t>(tile.b) + 1] - c_.meta.q_offsets[static_cast<size_t>(tile.b)];
    n_k_ = c_.meta.kv_lens[static_cast<size_t>(tile.b)];
  }

  void run() {
    start();
    const int32_t* pages = n_k_ > 0 ? c_.meta.pages(tile_.b) : nullptr;
    int64_t counts[3] = {};
    for (int32_t first = 0; first < n_k_; first += kStrip) {
      const int keys = std::min(kStrip, n_k_ - first);
      const Coverage coverage = cover(first, keys);
      ++counts[static_cast<int>(coverage)];
      if (coverage != Coverage::empty) add_block(pages, first, keys, coverage);
    }
    for (int i = 0; i < 3; ++i)
      c_.counts[i].fetch_add(counts[i], std::memory_order_relaxed);
    finish();
  }

 private:
  float* floats(size_t offset) const { return reinterpret_cast<float*>(scratch_ + offset); }
  std::byte* registers(size_t offset) const { return scratch_ + offset; }

  void start() {
    const Layout& l = c_.layout;
    const int64_t token = c_.meta.q_offsets[static_cast<size_t>(tile_.b)];
    for (int r = 0; r < tile_.count; ++r) {
      const int64_t pair = tile_.first + r;
      q_[r] = static_cast<int32_t>(pair / c_.group);
      h_[r] = tile_.kv_head * c_.group + static_cast<int32_t>(pair % c_.group);
      const int64_t at = c_.args.q_offset(token + q_[r], h_[r], c_.spec.head_dim);
      k_.widen(static_cast<const std::byte*>(c_.args.q) + at * static_cast<int64_t>(size_of(c_.spec.dtype)),
               c_.spec.dtype, c_.spec.head_dim, 1.0f, floats(l.q) + r * l.dp);
    }
    std::fill_n(floats(l.out), tile_.count * l.dvp, 0.0f);
    std::fill_n(floats(l.max), tile_.count, kMinusInf);
    std::fill_n(floats(l.sums), tile_.count * kSumLanes, 0.0f);
    const StripCode::Rows rows = {tile_.count, q_, h_, tile_.b, n_q_, n_k_};
    if (c_.mask) c_.mask->start_tile(k_, c_.buffers, rows, registers(l.mask));
    if (c_.score) c_.score->start_tile(k_, c_.buffers, rows, registers(l.score));
  }

  Coverage cover(int32_t first, int keys) {
    if (!c_.analysis) return Coverage::full;
    const auto single = [](int x) { return Interval{static_cast<double>(x), static_cast<double>(x)}; };
    const bool one_row = q_[0] == q_[tile_.count - 1];
    const int h_first = tile_.kv_head * c_.group;
    const Interval h = {static_cast<double>(one_row ? h_[0] : h_first),
                        static_cast<double>(one_row ? h_[tile_.count - 1] : h_first + c_.group - 1)};
    return c_.analysis->coverage({single(tile_.b),
                                  h,
                                  {static_cast<double>(q_[0]), static_cast<double>(q_[tile_.count - 1])},
                                  {static_cast<double>(first), static_cast<double>(first + keys - 1)},
                                  single(n_q_),
                                  single(n_k_)},
                                 intervals_);
  }

  void add_block(const int32_t* pages, int32_t first, int keys, Coverage coverage) {
    const Layout& l = c_.layout;
    const bool finite = load_block(pages, first, keys);
    k_.scores(floats(l.q), floats(l.keys_transposed), c_.spec.head_dim, l.dp, tile_.count, c_.spec.scale,
              floats(l.scores));
    const bool masked = coverage == Coverage::partial;
    if (masked) c_.mask->start_keys(k_, c_.buffers, first, registers(l.mask));
    if (c_.score) c_.score->start_keys(k_, c_.buffers, first, registers(l.score));
    for (int r = 0; r < tile_.count; ++r) {
      float* s = floats(l.scores) + r * kStrip;
      if (c_.score) {
        const std::byte* changed = c_.score->run_row(k_, c_.buffers, r, s, registers(l.score));
        std::copy_n(reinterpret_cast<const float*>(changed), kStrip, s);
      }
      const std::byte* seen =
          masked ? c_.mask->run_row(k_, c_.buffers, r, nullptr, registers(l.mask)) : nullptr;
      if (masked || keys < kStrip) k_.hide(s, reinterpret_cast<const int32_t*>(seen), keys);
      floats(l.alpha)[r] = k_.softmax(s, floats(l.max) + r, floats(l.sums) + r * kSumLanes);
    }
    if (finite)
      k_.accumulate(floats(l.scores), floats(l.values), floats(l.alpha), l.dvp, tile_.count, floats(l.out));
    else
      accumulate_seen();
  }

  /// Keys and values as stored, widened. Slots past the last key are 0. Returns whether all values are
  /// finite.
  bool load_block(const int32_t* pages, int32_t first, int keys) {
    const Layout& l = c_.layout;
    const KvView& kv = c_.args.kv;
    const auto size = static_cast<int64_t>(size_of(kv.dtype));
    bool finite = true;
    for (int j = 0; j < keys; ++j) {
      const int64_t page = pages[(first + j) / kv.page_size], slot = (first + j) % kv.page_size;
      const int64_t k = page * kv.k_page_stride + tile_.kv_head * kv.k_head_stride + slot * kv.k_slot_stride;
      const int64_t v = page * kv.v_page_stride + tile_.kv_head * kv.v_head_stride + slot * kv.v_slot_stride;
      k_.widen(static_cast<const std::byte*>(kv.k) + k * size, c_.kv_type, c_.spec.head_dim, kv.k_scale,
               floats(l.keys) + j * l.dp);
      finite &= k_.widen(static_cast<const std::byte*>(kv.v) + v * size, c_.kv_type, c_.spec.v_head_dim,
                         kv.v_scale, floats(l.values) + j * l.dvp);
    }
    std::fill_n(floats(l.keys) + keys * l.dp, (kStrip - keys) * l.dp, 0.0f);
    std::fill_n(floats(l.values) + keys * l.dvp, (kStrip - keys) * l.dvp, 0.0f);
    k_.transpose(floats(l.keys), l.dp, floats(l.keys_transposed));
    return finite;
  }

  /// As CpuKernels::accumulate, but keys of weight 0 are left out: 0 times NaN is NaN.
  void accumulate_seen() {
    const Layout& l = c_.layout;
    for (int r = 0; r < tile_.count; ++r) {
      float* out = floats(l.out) + r * l.dvp;
      for (int64_t d = 0; d < l.dvp; ++d)
        out[d] *= floats(l.alpha)[r];
      for (int j = 0; j < kStrip; ++j) {
        const float p = floats(l.scores)[r * kStrip + j];
        if (p == 0.0f) continue;
        for (int64_t d = 0; d < l.dvp; ++d)
          out[d] = std::fma(p, floats(l.values)[j * l.dvp + d], out[d]);
      }
    }
  }

  void finish() {
    const Layout& l = c_.layout;
    const int64_t token = c_.meta.q_offsets[static_cast<size_t>(tile_.b)];
    for (int r = 0; r < tile_.count; ++r) {
      float* out = floats(l.out) + r * l.dvp;
      const float max = floats(l.max)[r], total = k_.total(floats(l.sums) + r * kSumLanes);
      const bool none = max == kMinusInf && total == 0.0f;
      for (int64_t d = 0; d < c_.spec.v_head_dim; ++d)
        out[d] = none ? 0.0f : out[d] / total;
      const int64_t at = c_.args.out_offset(token + q_[r], h_[r], c_.spec.v_head_dim);
      k_.narrow(out, c_.spec.dtype, c_.spec.v_head_dim,
                static_cast<std::byte*>(c_.args.out) + at * static_cast<int64_t>(size_of(c_.spec.dtype)));
      if (c_.args.lse != nullptr)
        c_.args.lse[(token + q_[r]) * c_.spec.num_heads + h_[r]] = none ? kMinusInf : max + std::log(total);
    }
  }

  Call& c_;
  const CpuKernels& k_;
  const Tile& tile_;
  std::byte* scratch_;
  Analysis::Scratch& intervals_;
  int32_t n_q_ = 0, n_k_ = 0;
  int32_t q_[kTileRows], h_[kTileRows];
};

std::vector<Tile> tiles_of(const Call& call) {
  std::vector<Tile> tiles;
  for (int b = 0; b < call.meta.num_seqs(); ++b) {
    const auto at = static_cast<size_t>(b);
    const int64_t pairs = int64_t{call.meta.q_offsets[at + 1] - call.meta.q_offsets[at]} * call.group;
    // Later rows usually see more keys: they start first.
    for (int64_t first = (pairs - 1) / kTileRows * kTileRows; first >= 0 && pairs > 0; first -= kTileRows)
      for (int head = 0; head < call.spec.num_kv_heads; ++head)
        tiles.push_back({b, head, first, static_cast<int>(std::min<int64_t>(kTileRows, pairs - first))});
  }
  return tiles;
}

}  // namespace

size_t cpu_scratch_bytes(const Program& program, const AttentionSpec& spec) {
  return Layout(program, spec).end;
}

void cpu_attention(const Program& program, std::span<const Buffer> buffers, const AttentionSpec& spec,
                   const BatchMeta& meta, const AttentionArgs& args, ThreadPool& pool,
                   std::span<std::byte> scratch, FlexBlocks* blocks) {
  Call call(program, buffers, spec, meta, args);
  const std::vector<Tile> tiles = tiles_of(call);
  std::vector<Analysis::Scratch> intervals(static_cast<size_t>(pool.size()));
  if (call.analysis) std::ranges::fill(intervals, call.analysis->scratch());
  const auto run = [&](int64_t i, int worker) {
    TileRun(call, tiles[static_cast<size_t>(i)],
            scratch.data() + static_cast<size_t>(worker) * call.layout.end,
            intervals[static_cast<size_t>(worker)])
        .run();
  };
  pool.parallel_tasks(static_cast<int64_t>(tiles.size()), run);
  if (blocks != nullptr) *blocks = {call.counts[0], call.counts[1], call.counts[2]};
}

}  // namespace fovea::flex
