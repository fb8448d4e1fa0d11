#include "kernels/cpu/indexer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/aligned.h"
#include "base/cpu_features.h"
#include "base/float8.h"
#include "base/thread_pool.h"
#include "kernels/cpu/attn_policy.h"
#include "kernels/cpu/index_scores_kernels.h"

namespace fovea {
namespace index_scores {

const Kernels& current_kernels() {
#if defined(__x86_64__)
  switch (current_isa()) {
    case Isa::avx512: return kAvx512Kernels;
    case Isa::avx2: return kAvx2Kernels;
    case Isa::generic: break;
  }
#endif
  return kGenericKernels;
}

}  // namespace index_scores

namespace {

using index_scores::kHeadGroup;
using index_scores::kKeys;

constexpr int kSharedRows = 8;                    // rows that share widened keys
constexpr int64_t kChunkKeys = 4096;              // of a task
constexpr int64_t kScoreFloats = (64 << 20) / 4;  // of the rows that are chosen for at a time
constexpr double kScoredPerNs = 16;

/// Ascending with the score, NaN last.
uint32_t rank_of(float score) {
  const auto bits = std::bit_cast<uint32_t>(score);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return ~0u;
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}

/// Rows [first, last) of sequence `seq`; row r sees the first `keys + r - first` keys.
struct RowBlock {
  int seq = 0;
  int64_t first = 0, last = 0, keys = 0;
  int64_t scores = 0;  // offset of the first row's scores
  int64_t row_keys(int64_t row) const { return keys + row - first; }
  int64_t most() const { return row_keys(last - 1); }
};

/// Scores of the keys [begin, end) for the rows of a block.
class BlockScorer {
 public:
  BlockScorer(const IndexStep& step, const RowBlock& block)
      : s_(step),
        block_(block),
        width_((step.heads + kHeadGroup - 1) / kHeadGroup * kHeadGroup),
        rows_(block.last - block.first),
        q_(static_cast<size_t>(rows_ * step.dim * width_)),
        weights_(static_cast<size_t>(rows_ * width_)),
        keys_(static_cast<size_t>(kKeys * step.dim)) {
    std::fill_n(q_.data(), q_.size(), 0.0f);
    std::fill_n(weights_.data(), weights_.size(), 0.0f);
    for (int64_t r = 0; r < rows_; ++r) {
      const float* from = step.q + (block.first + r) * step.q_stride;
      float* columns = q_.data() + r * step.dim * width_;
      for (int64_t h = 0; h < step.heads; ++h)
        for (int64_t c = 0; c < step.dim; ++c)
          columns[c * width_ + h] = from[h * step.dim + c];
      std::copy_n(step.weights + (block.first + r) * step.weight_stride, step.heads,
                  weights_.data() + r * width_);
    }
  }

  void run(int64_t begin, int64_t end, float* scores) {
    for (int64_t at = begin; at < end; at += kKeys) {
      const int n = static_cast<int>(std::min<int64_t>(kKeys, end - at));
      find_keys(at, n);
      kernels_.widen(pointers_.data(), n, s_.dim, s_.keys.dtype, keys_.data());
      float* out = scores;
      for (int64_t r = 0; r < rows_; out += block_.row_keys(block_.first + r), ++r) {
        const int64_t seen = std::min<int64_t>(n, block_.row_keys(block_.first + r) - at);
        if (seen <= 0) continue;
        kernels_.score({q_.data() + r * s_.dim * width_, weights_.data() + r * width_}, width_, s_.dim,
                       keys_.data(), scales_.data(), static_cast<int>(seen), out + at);
      }
    }
  }

 private:
  void find_keys(int64_t at, int n) {
    const KvView& kv = s_.keys;
    const auto* base = static_cast<const std::byte*>(kv.k);
    const auto item = static_cast<int64_t>(size_of(kv.dtype));
    const int32_t* pages = s_.batch.pages(block_.seq);
    for (int j = 0; j < n; ++j) {
      const int64_t page = pages[(at + j) / kv.page_size], slot = (at + j) % kv.page_size;
      const auto i = static_cast<size_t>(j);
      pointers_[i] = base + (page * kv.k_page_stride + slot * kv.k_slot_stride) * item;
      scales_[i] = kv.k_scales == nullptr
                       ? 1.0f
                       : attn::load_factor(kv.dtype) *
                             kv.k_scales[page * kv.scale_page_stride + slot * kv.scale_slot_stride];
    }
  }

  const IndexStep& s_;
  const RowBlock& block_;
  const index_scores::Kernels& kernels_ = index_scores::current_kernels();
  const int width_;
  const int64_t rows_;
  AlignedArray<float> q_, weights_, keys_;
  std::array<const void*, kKeys> pointers_{};
  std::array<float, kKeys> scales_{};
};

/// Blocks of rows that need scores; the others see all their keys, which it lists at once.
std::vector<RowBlock> blocks_of(const IndexStep& step) {
  std::vector<RowBlock> blocks;
  for (int b = 0; b < step.batch.num_seqs(); ++b) {
    const int64_t begin = step.batch.q_offsets[static_cast<size_t>(b)];
    const int64_t end = step.batch.q_offsets[static_cast<size_t>(b) + 1];
    const int64_t context = step.batch.kv_lens[static_cast<size_t>(b)] - (end - begin);
    int64_t row = begin;
    for (; row < end && context + row - begin + 1 <= step.topk; ++row)
      choose_largest(nullptr, std::max<int64_t>(0, context + row - begin + 1), step.topk,
                     step.chosen + row * step.topk);
    for (; row < end; row += kSharedRows)
      blocks.push_back({b, row, std::min(end, row + kSharedRows), context + row - begin + 1});
  }
  return blocks;
}

/// Scores and choices of some blocks.
void choose_for(const IndexStep& step, std::span<RowBlock> blocks, std::vector<float>& scores,
                ThreadPool& pool) {
  struct Task {
    const RowBlock* block;
    int64_t begin, end;
  };
  std::vector<Task> tasks;
  std::vector<std::pair<const RowBlock*, int64_t>> rows;
  int64_t floats = 0;
  double products = 0;
  for (RowBlock& block : blocks) {
    block.scores = floats;
    for (int64_t row = block.first; row < block.last; ++row) {
      floats += block.row_keys(row);
      rows.emplace_back(&block, row);
    }
    for (int64_t at = 0; at < block.most(); at += kChunkKeys)
      tasks.push_back({&block, at, std::min(block.most(), at + kChunkKeys)});
    products += static_cast<double>((block.last - block.first) * block.most()) * step.heads * step.dim;
  }
  if (static_cast<int64_t>(scores.size()) < floats) scores.resize(static_cast<size_t>(floats));
  pool.parallel_tasks(
      static_cast<int64_t>(tasks.size()),
      [&](int64_t i, int) {
        const Task& task = tasks[static_cast<size_t>(i)];
        BlockScorer(step, *task.block).run(task.begin, task.end, scores.data() + task.block->scores);
      },
      {products / kScoredPerNs});
  pool.parallel_tasks(static_cast<int64_t>(rows.size()),
                      [&](int64_t i, int) {
                        const auto& [block, row] = rows[static_cast<size_t>(i)];
                        const int64_t before = row - block->first;
                        const int64_t at = block->scores + before * block->keys + before * (before - 1) / 2;
                        choose_largest(scores.data() + at, block->row_keys(row), step.topk,
                                       step.chosen + row * step.topk);
                      },
                      {static_cast<double>(floats) * 2});
}

}  // namespace

void hadamard(float* x, int n) {
  for (int half = 1; half < n; half *= 2)
    for (int first = 0; first < n; first += 2 * half)
      for (int i = first; i < first + half; ++i) {
        const float a = x[i], b = x[i + half];
        x[i] = a + b;
        x[i + half] = a - b;
      }
  const float factor = 1.0f / std::sqrt(static_cast<float>(n));
  for (int i = 0; i < n; ++i)
    x[i] *= factor;
}

float round_to_index_codes(float* x, int n) {
  float most = 1e-4f;
  for (int i = 0; i < n; ++i)
    most = std::max(most, std::abs(x[i]));
  if (!std::isfinite(most)) most = kE4m3Max;
  int exponent = 0;
  const float fraction = std::frexp(most / kE4m3Max, &exponent);  // in [1/2, 1)
  if (fraction == 0.5f) --exponent;
  const float scale = std::ldexp(1.0f, exponent);
  for (int i = 0; i < n; ++i)
    x[i] = e4m3_to_float(float_to_e4m3(x[i] / scale));
  return scale;
}

void choose_largest(const float* scores, int64_t n, int64_t k, int32_t* out) {
  if (n <= k) {
    for (int64_t i = 0; i < k; ++i)
      out[i] = i < n ? static_cast<int32_t>(i) : -1;
    return;
  }
  // The k-th largest rank, 11, 11 and 10 bits at a time.
  uint32_t found = 0, known = 0;
  int64_t left = k;  // of the ranks that begin with `found`, the largest `left` are chosen
  for (const auto& [shift, bits] : {std::pair{21, 11}, {10, 11}, {0, 10}}) {
    std::array<int64_t, 2048> counts{};
    for (int64_t i = 0; i < n; ++i) {
      const uint32_t rank = rank_of(scores[i]);
      if ((rank & known) == found) ++counts[rank >> shift & ((1u << bits) - 1)];
    }
    uint32_t digit = (1u << bits) - 1;
    for (; counts[digit] < left; --digit)
      left -= counts[digit];
    found |= digit << shift;
    known |= ((1u << bits) - 1) << shift;
  }
  for (int64_t i = 0, m = 0; m < k; ++i) {
    const uint32_t rank = rank_of(scores[i]);
    if (rank > found || (rank == found && left-- > 0)) out[m++] = static_cast<int32_t>(i);
  }
}

void choose_keys(const IndexStep& step, ThreadPool& pool) {
  std::vector<RowBlock> blocks = blocks_of(step);
  std::vector<float> scores;
  for (size_t first = 0; first < blocks.size();) {
    int64_t floats = 0;
    size_t last = first;
    do {
      floats += (blocks[last].last - blocks[last].first) * blocks[last].most();
      ++last;
    } while (last < blocks.size() && floats < kScoreFloats);
    choose_for(step, std::span(blocks).subspan(first, last - first), scores, pool);
    first = last;
  }
}

}  // namespace fovea
