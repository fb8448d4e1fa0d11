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
  size_t q, keys, keys_transposed, values, scores, out, max, sums, alpha, seen, mask, score, end;

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
    sums = floats(int64_t{kTileRows} * kSumLanes);
    alpha = floats(kTileRows);
    seen = take(program.mask ? kTileRows * kStripBytes : 0);
    mask = take(registers(program.mask));
    score = take(registers(program.score));
    end = at;
  }
};

/// Up to kTileRows (query row, head) pairs of one sequence and KV head.
struct Tile {
  int b, kv_head;
  int64_t first;  ///< of the n_q * group pairs, heads within rows
  int count;
};

}  // namespace

struct CpuStep {
  const Program& program;
  const AttentionSpec& spec;
  BatchMeta meta;
  Layout layout;
  std::optional<StripCode> mask, score;
  std::optional<Analysis> analysis;
  int group = 1;
  std::vector<Tile> tiles;
  double work_ns = 0;  ///< of a layer without empty blocks, on one core
  mutable std::vector<Analysis::Scratch> intervals;

  CpuStep(const Program& p, const std::vector<Buffer>& buffers, const AttentionSpec& s, const BatchMeta& m)
      : program(p), spec(s), meta(m), layout(p, s), group(s.num_heads / s.num_kv_heads) {
    if (p.mask) {
      mask.emplace(*p.mask);
      analysis.emplace(*p.mask, p.buffers, buffers);
      intervals.assign(CpuAttention::kMaxSlots, analysis->scratch());
    } else {
      intervals.resize(CpuAttention::kMaxSlots);
    }
    if (p.score) score.emplace(*p.score);
    divide();
  }

  void divide() {
    for (int b = 0; b < meta.num_seqs(); ++b) {
      const auto at = static_cast<size_t>(b);
      const int64_t pairs = int64_t{meta.q_offsets[at + 1] - meta.q_offsets[at]} * group;
      const double products = static_cast<double>(meta.kv_lens[at]) * (spec.head_dim + spec.v_head_dim);
      work_ns += static_cast<double>(pairs * spec.num_kv_heads) * products / 16;
      // Later rows usually see more keys: they start first.
      for (int64_t first = (pairs - 1) / kTileRows * kTileRows; first >= 0 && pairs > 0; first -= kTileRows)
        for (int head = 0; head < spec.num_kv_heads; ++head)
          tiles.push_back({b, head, first, static_cast<int>(std::min<int64_t>(kTileRows, pairs - first))});
    }
  }
};

namespace {

/// What the tiles of a layer share.
struct Layer {
  const CpuStep& step;
  std::span<const Buffer> buffers;
  const AttentionArgs& args;
  const CpuKernels& kernels;
  DType kv_type;
  std::atomic<int64_t> counts[3] = {};
};

DType stored_type(KvCacheDType dtype) {
  return dtype == KvCacheDType::float16    ? DType::f16
         : dtype == KvCacheDType::bfloat16 ? DType::bf16
                                           : DType::f32;
}

class TileRun {
 public:
  TileRun(Layer& layer, const Tile& tile, std::byte* scratch, Analysis::Scratch& intervals)
      : c_(layer.step), l_(layer), k_(layer.kernels), tile_(tile), scratch_(scratch), intervals_(intervals) {
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
      l_.counts[i].fetch_add(counts[i], std::memory_order_relaxed);
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
      const int64_t at = l_.args.q_offset(token + q_[r], h_[r], c_.spec.head_dim);
      k_.widen(static_cast<const std::byte*>(l_.args.q) + at * static_cast<int64_t>(size_of(c_.spec.dtype)),
               c_.spec.dtype, c_.spec.head_dim, 1.0f, floats(l.q) + r * l.dp);
    }
    std::fill_n(floats(l.out), tile_.count * l.dvp, 0.0f);
    std::fill_n(floats(l.max), tile_.count, kMinusInf);
    std::fill_n(floats(l.sums), tile_.count * kSumLanes, 0.0f);
    const StripCode::Rows rows = {tile_.count, q_, h_, tile_.b, n_q_, n_k_};
    if (c_.mask) c_.mask->start_tile(k_, l_.buffers, rows, registers(l.mask));
    if (c_.score) c_.score->start_tile(k_, l_.buffers, rows, registers(l.score));
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
    const bool masked = coverage == Coverage::partial;
    if (masked && !find_seen(first, keys)) return;
    const bool finite = load_block(pages, first, keys, masked);
    k_.scores(floats(l.q), floats(l.keys_transposed), c_.spec.head_dim, l.dp, tile_.count, c_.spec.scale,
              floats(l.scores));
    if (c_.score) c_.score->start_keys(k_, l_.buffers, first, registers(l.score));
    for (int64_t r = 0; r < tile_.count; ++r) {
      float* s = floats(l.scores) + r * kStrip;
      if (c_.score) {
        const std::byte* changed =
            c_.score->run_row(k_, l_.buffers, static_cast<int>(r), s, registers(l.score));
        std::copy_n(reinterpret_cast<const float*>(changed), kStrip, s);
      }
      if (masked || keys < kStrip) k_.hide(s, masked ? seen(r) : nullptr, keys);
      floats(l.alpha)[r] = k_.softmax(s, floats(l.max) + r, floats(l.sums) + r * kSumLanes);
    }
    if (finite)
      k_.accumulate(floats(l.scores), floats(l.values), floats(l.alpha), l.dvp, tile_.count, floats(l.out));
    else
      accumulate_seen();
  }

  int32_t* seen(int64_t row) const {
    return reinterpret_cast<int32_t*>(scratch_ + c_.layout.seen) + row * kStrip;
  }

  /// Evaluates the mask for all rows: seen() and any_seen_. Returns whether any key is seen.
  bool find_seen(int32_t first, int keys) {
    c_.mask->start_keys(k_, l_.buffers, first, registers(c_.layout.mask));
    std::fill_n(any_seen_, kStrip, 0);
    for (int r = 0; r < tile_.count; ++r) {
      const std::byte* row = c_.mask->run_row(k_, l_.buffers, r, nullptr, registers(c_.layout.mask));
      std::copy_n(reinterpret_cast<const int32_t*>(row), kStrip, seen(r));
      for (int j = 0; j < kStrip; ++j)
        any_seen_[j] |= seen(r)[j];
    }
    return std::any_of(any_seen_, any_seen_ + keys, [](int32_t x) { return x != 0; });
  }

  /// Keys and values as stored, widened. Those past the last key are 0, and so are those that no row sees:
  /// their pages may have been freed. Returns whether all values are finite.
  bool load_block(const int32_t* pages, int32_t first, int keys, bool masked) {
    const Layout& l = c_.layout;
    const KvView& kv = l_.args.kv;
    const auto size = static_cast<int64_t>(size_of(kv.dtype));
    bool finite = true;
    for (int j = 0; j < kStrip; ++j) {
      float *key = floats(l.keys) + j * l.dp, *value = floats(l.values) + j * l.dvp;
      if (j >= keys || (masked && any_seen_[j] == 0)) {
        std::fill_n(key, l.dp, 0.0f);
        std::fill_n(value, l.dvp, 0.0f);
        continue;
      }
      const int64_t page = pages[(first + j) / kv.page_size], slot = (first + j) % kv.page_size;
      const int64_t k = page * kv.k_page_stride + tile_.kv_head * kv.k_head_stride + slot * kv.k_slot_stride;
      const int64_t v = page * kv.v_page_stride + tile_.kv_head * kv.v_head_stride + slot * kv.v_slot_stride;
      k_.widen(static_cast<const std::byte*>(kv.k) + k * size, l_.kv_type, c_.spec.head_dim, kv.k_scale, key);
      finite &= k_.widen(static_cast<const std::byte*>(kv.v) + v * size, l_.kv_type, c_.spec.v_head_dim,
                         kv.v_scale, value);
    }
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
    for (int64_t r = 0; r < tile_.count; ++r) {
      float* out = floats(l.out) + r * l.dvp;
      const float max = floats(l.max)[r], total = k_.total(floats(l.sums) + r * kSumLanes);
      const bool none = max == kMinusInf && total == 0.0f;
      for (int64_t d = 0; d < c_.spec.v_head_dim; ++d)
        out[d] = none ? 0.0f : out[d] / total;
      const int64_t at = l_.args.out_offset(token + q_[r], h_[r], c_.spec.v_head_dim);
      k_.narrow(out, c_.spec.dtype, c_.spec.v_head_dim,
                static_cast<std::byte*>(l_.args.out) + at * static_cast<int64_t>(size_of(c_.spec.dtype)));
      if (l_.args.lse != nullptr)
        l_.args.lse[(token + q_[r]) * c_.spec.num_heads + h_[r]] = none ? kMinusInf : max + std::log(total);
    }
  }

  const CpuStep& c_;
  Layer& l_;
  const CpuKernels& k_;
  const Tile& tile_;
  std::byte* scratch_;
  Analysis::Scratch& intervals_;
  int32_t n_q_ = 0, n_k_ = 0;
  int32_t q_[kTileRows], h_[kTileRows], any_seen_[kStrip];
};

}  // namespace

size_t CpuAttention::scratch_bytes(const Program& program, const AttentionSpec& spec, int slots) {
  return Layout(program, spec).end * static_cast<size_t>(slots);
}

CpuAttention::CpuAttention(const Program& program, const std::vector<Buffer>& buffers,
                           const AttentionSpec& spec, const BatchMeta& meta)
    : step_(std::make_unique<CpuStep>(program, buffers, spec, meta)) {}

CpuAttention::~CpuAttention() = default;

void CpuAttention::run(std::span<const Buffer> buffers, const AttentionArgs& args, ThreadPool& pool,
                       std::span<std::byte> scratch, FlexBlocks* blocks) const {
  Layer layer{*step_, buffers, args, cpu_kernels(), stored_type(args.kv.dtype)};
  const size_t bytes = step_->layout.end, tiles = step_->tiles.size();
  const auto slots =
      std::min<int64_t>({pool.size(), kMaxSlots, static_cast<int64_t>(scratch.size() / bytes)});
  std::atomic<size_t> next{0};
  const auto run_slot = [&](int64_t slot, int) {
    const auto s = static_cast<size_t>(slot);
    for (size_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < tiles;)
      TileRun(layer, step_->tiles[i], scratch.data() + s * bytes, step_->intervals[s]).run();
  };
  pool.parallel_tasks(slots, run_slot, {step_->work_ns});
  if (blocks != nullptr) *blocks = {layer.counts[0], layer.counts[1], layer.counts[2]};
}

}  // namespace fovea::flex
