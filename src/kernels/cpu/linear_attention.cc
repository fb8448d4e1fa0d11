#include "kernels/cpu/linear_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/cpu_features.h"
#include "base/thread_pool.h"
#include "fovea/result.h"
#include "kernels/cpu/for_rows.h"
#include "kernels/cpu/hstu_mask.h"
#include "kernels/cpu/linear_attention_kernels.h"

namespace fovea {
namespace {

using namespace linear_attention_detail;

const LinearAttentionKernels& linear_attention_kernels() {
  switch (current_isa()) {
    case Isa::avx512: return kLinearAttentionAvx512;
    case Isa::avx2: return kLinearAttentionAvx2;
    case Isa::generic: break;
  }
  return kLinearAttentionGeneric;
}

/// Scratch memory of each worker, its rows a cache line apart.
class WorkerScratch {
 public:
  WorkerScratch(const ThreadPool& pool, int64_t floats)
      : each_(padded(floats)), memory_(static_cast<size_t>(each_ * pool.size() + kRowPad)) {}
  float* of(int worker) {
    const auto address = reinterpret_cast<uintptr_t>(memory_.data());
    return memory_.data() + (64 - address % 64) % 64 / sizeof(float) + each_ * worker;
  }

 private:
  int64_t each_;
  std::vector<float> memory_;
};

template <class Rows>
auto address_of(const Rows& rows, DType dtype, int64_t t, int64_t h, int64_t d) {
  using Byte = std::conditional_t<std::is_same_v<Rows, HeadRows>, const std::byte, std::byte>;
  const int64_t at = t * rows.token_stride + h * rows.head_stride + d;
  return rows.data == nullptr ? nullptr
                              : static_cast<Byte*>(rows.data) + at * static_cast<int64_t>(size_of(dtype));
}

std::string decimal(int64_t n) {
  return std::to_string(n);
}

Status check_offsets(const char* name, const int32_t* offsets, int count, int64_t tokens) {
  if (count == 0) return {};
  if (offsets[0] != 0) return invalid(std::string(name) + "[0] is " + decimal(offsets[0]) + "; it must be 0");
  for (int b = 0; b < count; ++b)
    if (offsets[b + 1] < offsets[b])
      return invalid(std::string(name) + "[" + decimal(b + 1) + "] is " + decimal(offsets[b + 1]) +
                     ", below " + decimal(offsets[b]) + " in front of it; offsets must not decrease");
  if (offsets[count] != tokens)
    return invalid(std::string(name) + " ends with " + decimal(offsets[count]) + "; the tensors have " +
                   decimal(tokens) + " rows");
  return {};
}

Status check_slots(const char* name, const int32_t* slots, const LinearStates& states, int count,
                   bool distinct) {
  std::vector<char> used(static_cast<size_t>(states.slots));
  for (int b = 0; b < count; ++b) {
    const int64_t slot = slots == nullptr ? b : slots[b];
    if (slot < 0) continue;
    if (slot >= states.slots)
      return invalid("sequence " + decimal(b) + " has slot " + decimal(slot) + " in " + name +
                     "; there are " + decimal(states.slots) + " slots");
    if (distinct && used[static_cast<size_t>(slot)]++ != 0)
      return invalid("sequence " + decimal(b) + " has slot " + decimal(slot) + " in " + name +
                     ", as one in front of it; slots that are written must be distinct");
  }
  return {};
}

Status check_lengths(const Sequences& s, int64_t most, const char* name) {
  for (int b = 0; b < s.count; ++b)
    if (s.offsets[b + 1] - s.offsets[b] > most)
      return invalid("sequence " + decimal(b) + " has " + decimal(s.offsets[b + 1] - s.offsets[b]) +
                     " rows; " + name + " is " + decimal(most));
  return {};
}

/// Both rules. `decays` [T, H], or [H] with stride 0.
Status recurrence_cpu(const GatedDeltaRule& c, const float* decays, int64_t decay_stride, bool delta,
                      float scale, ThreadPool& pool) {
  const LinearStates& st = c.states;
  if (st.in != nullptr)
    FOVEA_RETURN_IF_ERROR(check_slots("states.in_slots", st.in_slots, st, c.sequences.count, false));
  if (st.out != nullptr)
    FOVEA_RETURN_IF_ERROR(check_slots("states.out_slots", st.out_slots, st, c.sequences.count, true));
  const LinearAttentionKernels& table = linear_attention_kernels();
  const int64_t blocks = (c.dv + table.columns - 1) / table.columns, state = int64_t{c.dk} * c.dv;
  WorkerScratch scratch(pool, recurrence_scratch(c.dk));
  const auto task = [&](int64_t index, int worker) {
    const int64_t first = index % blocks * table.columns, h = index / blocks % c.heads,
                  b = index / blocks / c.heads, kh = h / (c.heads / c.k_heads);
    const int64_t row = c.sequences.offsets[b];
    RecurrenceBlock block;
    block.rows = {address_of(c.q, c.dtype, row, kh, 0),
                  address_of(c.k, c.dtype, row, kh, 0),
                  address_of(c.v, c.dtype, row, h, first),
                  address_of(c.out, c.dtype, row, h, first),
                  c.q.token_stride,
                  c.k.token_stride,
                  c.v.token_stride,
                  c.out.token_stride,
                  c.dtype};
    block.tokens = c.sequences.offsets[b + 1] - row;
    block.dk = c.dk;
    block.columns = static_cast<int>(std::min<int64_t>(c.dv - first, table.columns));
    block.decay = decays + row * decay_stride + h;
    block.decay_stride = decay_stride;
    if (delta && c.beta != nullptr) block.beta = c.beta + row * c.beta_stride + h;
    block.beta_stride = c.beta_stride;
    block.scale = scale;
    block.delta = delta;
    block.normalize = delta && c.normalize_qk;
    const int64_t in = st.in_slots == nullptr ? b : st.in_slots[b];
    const int64_t out = st.out_slots == nullptr ? b : st.out_slots[b];
    if (st.in != nullptr && in >= 0) block.state_in = st.in + (in * c.heads + h) * state + first;
    if (st.out != nullptr && out >= 0) block.state_out = st.out + (out * c.heads + h) * state + first;
    block.state_stride = c.dv;
    block.scratch = scratch.of(worker);
    table.recurrence(block);
  };
  const double elements =
      (static_cast<double>(c.sequences.tokens) + c.sequences.count) * static_cast<double>(state) * c.heads;
  pool.parallel_tasks(blocks * c.heads * c.sequences.count, task, Work{elements / kElementsPerNs});
  return {};
}

}  // namespace

void lightning_log_decay(int heads, int layer, int layers, float* out) {
  const double factor = 1.0 - layer / (layers - 1 + 1e-5) + 1e-5;
  for (int h = 0; h < heads; ++h)
    out[h] = static_cast<float>(-std::exp2(-8.0 * (h + 1) / heads) * factor);
}

void hstu_time_bounds(int buckets, int64_t* out) {
  for (int i = 0; i < buckets; ++i) {
    const double bound = std::ceil(std::exp(0.301 * (i + 1)));
    out[i] = bound < 0x1p63 ? static_cast<int64_t>(bound) : std::numeric_limits<int64_t>::max();
  }
}

Status lightning_attention_cpu(const LightningAttention& call, ThreadPool& pool) {
  FOVEA_RETURN_IF_ERROR(check_call(call));
  FOVEA_RETURN_IF_ERROR(check_offsets("sequences.offsets", call.sequences.offsets, call.sequences.count,
                                      call.sequences.tokens));
  std::vector<float> decays(static_cast<size_t>(call.heads));
  for (size_t h = 0; h < decays.size(); ++h)
    decays[h] = std::exp(call.log_decay[h]);
  return recurrence_cpu(recurrence_of(call), decays.data(), 0, false, call.scale, pool);
}

Status gated_delta_rule_cpu(const GatedDeltaRule& call, ThreadPool& pool) {
  FOVEA_RETURN_IF_ERROR(check_call(call));
  FOVEA_RETURN_IF_ERROR(check_offsets("sequences.offsets", call.sequences.offsets, call.sequences.count,
                                      call.sequences.tokens));
  const int64_t heads = call.heads, tokens = call.g == nullptr ? 1 : call.sequences.tokens;
  std::vector<float> decays(static_cast<size_t>(tokens * heads), 1.0f);
  if (call.g != nullptr)
    for_rows(tokens, tokens * heads * 16, pool, [&](int64_t t) {
      for (int64_t h = 0; h < heads; ++h)
        decays[static_cast<size_t>(t * heads + h)] = std::exp(call.g[t * call.g_stride + h]);
    });
  const float scale = call.scale != 0.0f ? call.scale : 1.0f / std::sqrt(static_cast<float>(call.dk));
  return recurrence_cpu(call, decays.data(), call.g == nullptr ? 0 : heads, true, scale, pool);
}

Status hstu_attention_cpu(const HstuAttention& c, ThreadPool& pool) {
  FOVEA_RETURN_IF_ERROR(check_call(c));
  const Sequences& s = c.sequences;
  FOVEA_RETURN_IF_ERROR(check_offsets("sequences.offsets", s.offsets, s.count, s.tokens));
  FOVEA_RETURN_IF_ERROR(check_lengths(s, c.max_seq_len, "max_seq_len"));
  const int32_t* queries = c.q_offsets == nullptr ? s.offsets : c.q_offsets;
  if (c.q_offsets != nullptr) FOVEA_RETURN_IF_ERROR(check_offsets("q_offsets", queries, s.count, c.q_tokens));
  std::vector<int64_t> first_block(static_cast<size_t>(s.count) + 1);
  double pairs = 0;
  for (int b = 0; b < s.count; ++b) {
    const int64_t keys = s.offsets[b + 1] - s.offsets[b], rows = queries[b + 1] - queries[b];
    if (rows > keys)
      return invalid("sequence " + decimal(b) + " has " + decimal(rows) + " queries and " + decimal(keys) +
                     " keys; queries are its last rows");
    if (c.num_targets != nullptr && (c.num_targets[b] < 0 || c.num_targets[b] > keys))
      return invalid("num_targets[" + decimal(b) + "] is " + decimal(c.num_targets[b]) + "; 0 to " +
                     decimal(keys) + ", the sequence's rows, are possible");
    first_block[static_cast<size_t>(b) + 1] =
        first_block[static_cast<size_t>(b)] + (rows + kHstuRows - 1) / kHstuRows;
    pairs += static_cast<double>(rows) * static_cast<double>(keys);
  }
  const LinearAttentionKernels& table = linear_attention_kernels();
  WorkerScratch scratch(pool, hstu_scratch(c.dk, c.dv));
  const int64_t blocks = first_block.back();
  const auto task = [&](int64_t index, int worker) {
    const int64_t h = index / blocks, at = index % blocks;
    const auto found = std::upper_bound(first_block.begin(), first_block.end(), at) - 1;
    const auto b = found - first_block.begin();
    const int64_t first = s.offsets[b], keys = s.offsets[b + 1] - first, rows = queries[b + 1] - queries[b];
    HstuBlock block;
    block.rows = {address_of(c.q, c.dtype, queries[b], h, 0),
                  address_of(c.k, c.dtype, first, h, 0),
                  address_of(c.v, c.dtype, first, h, 0),
                  address_of(c.out, c.dtype, queries[b], h, 0),
                  c.q.token_stride,
                  c.k.token_stride,
                  c.v.token_stride,
                  c.out.token_stride,
                  c.dtype};
    block.first_row = keys - rows;
    block.row_begin = block.first_row + (at - *found) * kHstuRows;
    block.row_end = std::min(block.row_begin + kHstuRows, keys);
    block.keys = keys;
    block.dk = c.dk;
    block.dv = c.dv;
    block.alpha = c.alpha != 0.0f ? c.alpha : 1.0f / std::sqrt(static_cast<float>(c.dk));
    block.divisor = static_cast<float>(c.max_seq_len);
    int32_t begin[kHstuRows], end[kHstuRows];
    HstuMask mask{keys,         c.num_targets == nullptr ? 0 : c.num_targets[b],
                  c.contextual, c.max_attn_len,
                  c.min_full,   c.num_targets != nullptr};
    for (int64_t i = block.row_begin; i < block.row_end; ++i) {
      const HstuRange range = hstu_range(mask, i);
      begin[i - block.row_begin] = static_cast<int32_t>(range.begin);
      end[i - block.row_begin] = static_cast<int32_t>(range.end);
    }
    block.seen_begin = begin;
    block.seen_end = end;
    if (c.position_bias != nullptr) block.position_bias = c.position_bias + c.max_seq_len - 1;
    block.time_bias = c.time_bias;
    block.time_bounds = c.time_bounds;
    block.time_buckets = c.time_buckets;
    if (c.time_bias != nullptr) block.times = c.times + first;
    block.scratch = scratch.of(worker);
    table.hstu(block);
  };
  pool.parallel_tasks(blocks * c.heads, task, Work{pairs * c.heads * (c.dk + c.dv) / (4 * kElementsPerNs)});
  return {};
}

}  // namespace fovea
