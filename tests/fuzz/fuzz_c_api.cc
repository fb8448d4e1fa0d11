// Arbitrary tensor descriptors, with as much memory behind them as they describe (or none): plan, run,
// append, gather, copy and merge on the CPU refuse with one line, or work.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include "fovea/c_api.h"

namespace {

/// The input as numbers; zeros when it is used up.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  uint8_t byte() { return at_ < size_ ? data_[at_++] : 0; }
  int below(int n) { return byte() % n; }
  bool empty() const { return at_ >= size_; }
  /// Mostly small, sometimes far out of range.
  int64_t number() {
    const uint8_t kind = byte();
    if (kind < 200) return static_cast<int64_t>(kind % 24) - 3;
    int64_t value = 0;
    for (int i = 0; i < 8; ++i)
      value = static_cast<int64_t>(static_cast<uint64_t>(value) << 8 | byte());
    return kind < 230 ? value : value >> 32;
  }

 private:
  const uint8_t* data_;
  size_t size_, at_ = 0;
};

constexpr fovea_dtype kDtypes[] = {
    {FOVEA_FLOAT, 32, 1},      {FOVEA_FLOAT, 16, 1}, {FOVEA_BFLOAT, 16, 1}, {FOVEA_INT, 32, 1},
    {FOVEA_INT, 64, 1},        {FOVEA_UINT, 8, 1},   {FOVEA_INT, 8, 1},     {FOVEA_FLOAT8_E4M3FN, 8, 1},
    {FOVEA_FLOAT8_E5M2, 8, 1}, {FOVEA_FLOAT, 64, 1}, {FOVEA_FLOAT, 32, 2}};
constexpr int64_t kMostBytes = 1 << 16;

/// A descriptor, and exactly the memory that it describes.
struct Tensor {
  fovea_tensor t = {};
  int64_t shape[8] = {}, strides[8] = {};
  std::unique_ptr<unsigned char[]> memory;

  Tensor(Input& in, fovea_dtype dtype, std::initializer_list<int64_t> dims) {
    t.ndim = static_cast<int32_t>(dims.size());
    std::copy(dims.begin(), dims.end(), shape);
    int64_t dense = 1;
    for (int i = t.ndim - 1; i >= 0; --i) {
      strides[i] = dense;
      dense *= shape[i];
    }
    t.device.type = FOVEA_CPU;
    t.dtype = dtype;
    t.shape = shape;
    t.strides = strides;
    // Up to three fields are corrupted.
    for (int n = in.below(8) < 5 ? 0 : 1 + in.below(3); n > 0; --n)
      spoil(in);
    allocate(in);
  }

  void spoil(Input& in) {
    switch (in.below(9)) {
      case 0: shape[in.below(5)] = in.number(); break;
      case 1: strides[in.below(5)] = in.number(); break;
      case 2: t.ndim = static_cast<int32_t>(in.number()); break;
      case 3: t.dtype = kDtypes[in.below(static_cast<int>(std::size(kDtypes)))]; break;
      case 4: t.device.type = static_cast<int32_t>(in.number()); break;
      case 5: t.byte_offset = static_cast<uint64_t>(in.below(9)); break;
      case 6: t.strides = nullptr; break;
      case 7: t.shape = in.below(2) == 0 ? nullptr : t.shape; break;
      case 8: std::swap(shape[0], shape[1]), std::swap(strides[0], strides[1]); break;
    }
  }

  /// No memory for a negative size, or one too large to allocate.
  void allocate(Input& in) {
    if (t.ndim < 0 || t.ndim > 8 || t.shape == nullptr) return;
    __int128 last = 0, dense = 1;
    bool none = false;
    for (int i = t.ndim - 1; i >= 0; --i) {
      const __int128 stride = t.strides == nullptr ? dense : strides[i];
      if (shape[i] < 0 || (shape[i] > 1 && stride < 0)) return;
      none = none || shape[i] == 0;
      if (shape[i] > 1) last += (static_cast<__int128>(shape[i]) - 1) * stride;
      dense *= std::max<int64_t>(shape[i], 1);
      if (last > kMostBytes || dense > (static_cast<__int128>(1) << 80)) return;
    }
    const int64_t item = std::max(t.dtype.bits * t.dtype.lanes / 8, 1);
    const int64_t bytes = none ? 0 : (static_cast<int64_t>(last) + 1) * item;
    memory = std::make_unique<unsigned char[]>(static_cast<size_t>(bytes) + t.byte_offset);
    t.data = memory.get();
    unsigned char* begin = memory.get() + t.byte_offset;
    if (t.dtype.code == FOVEA_INT && t.dtype.bits >= 32) {
      for (int64_t i = 0; (i + 1) * item <= bytes; ++i) {
        const int64_t value = in.number();
        std::memcpy(begin + i * item, &value, static_cast<size_t>(item));
      }
    } else {
      for (int64_t i = 0; i < bytes; ++i)
        begin[i] = static_cast<unsigned char>(i * 37);
    }
  }
};

class Case {
 public:
  explicit Case(Input& in) : in_(in) {}

  const fovea_tensor* tensor(fovea_dtype dtype, std::initializer_list<int64_t> dims) {
    if (in_.below(32) == 31) return nullptr;
    return &tensors_.emplace_back(in_, dtype, dims).t;
  }
  const fovea_tensor* maybe(bool there, fovea_dtype dtype, std::initializer_list<int64_t> dims) {
    return there != (in_.below(64) == 63) ? tensor(dtype, dims) : nullptr;
  }

  /// A dense index tensor of ascending or other values.
  const fovea_tensor* indices(std::vector<int64_t> values) {
    const bool narrow = in_.below(2) == 0;
    const auto n = static_cast<int64_t>(values.size());
    Tensor& made = tensors_.emplace_back(in_, kDtypes[narrow ? 3 : 4], std::initializer_list<int64_t>{n});
    for (int64_t i = 0; i < n; ++i)
      if (in_.below(24) == 23) values[static_cast<size_t>(i)] = in_.number();
    if (made.memory != nullptr && made.t.ndim == 1 && made.shape[0] == n && made.t.strides != nullptr &&
        made.strides[0] == 1 && made.t.byte_offset == 0 && made.t.dtype.bits == (narrow ? 32 : 64))
      for (int64_t i = 0; i < n; ++i) {
        if (narrow) {
          const auto value = static_cast<int32_t>(values[static_cast<size_t>(i)]);
          std::memcpy(made.memory.get() + 4 * i, &value, 4);
        } else {
          std::memcpy(made.memory.get() + 8 * i, &values[static_cast<size_t>(i)], 8);
        }
      }
    return &made.t;
  }

 private:
  Input& in_;
  std::deque<Tensor> tensors_;
};

void check(fovea_status status) {
  if (status == FOVEA_OK) return;
  const char* text = fovea_last_error();
  if (status == FOVEA_INTERNAL || *text == '\0' || std::strchr(text, '\n') != nullptr) std::abort();
}

void attend(Input& in) {
  Case c(in);
  fovea_attention_spec spec;
  fovea_attention_spec_init(&spec);
  const int group = 1 + in.below(3);
  spec.num_kv_heads = 1 + in.below(2);
  spec.num_heads = group * spec.num_kv_heads;
  spec.head_dim = 16;
  spec.v_head_dim = 16 + 8 * in.below(2);
  spec.dtype = kDtypes[in.below(3)];
  spec.page_size = 1 + in.below(4);
  const uint8_t mask = in.byte();
  spec.causal = mask & 1;
  spec.window_left = mask & 2 ? in.below(5) : -1;
  spec.spans = mask >> 2 & 1;
  spec.tree = mask >> 3 & 1;
  spec.packed_mask = spec.causal == 0 && (mask & 16) ? 1 : 0;
  spec.has_sink = mask >> 5 & 1;
  spec.has_alibi = mask >> 6 & 1;
  spec.kv_dtype = mask & 128 ? "int8_per_token_head" : nullptr;
  if (in.below(16) == 0) spec.chunk = static_cast<int32_t>(in.number());
  if (in.below(16) == 0) spec.sink_tokens = static_cast<int32_t>(in.number());
  if (in.below(16) == 0) spec.head_dim = static_cast<int32_t>(in.number());
  fovea_limits limits = {sizeof(limits), 4, 16, 64, 20, 0, FOVEA_TUNE_FOR_LIMITS};
  if (in.below(16) == 0) limits.max_kv_len = static_cast<int32_t>(in.number());
  fovea_attention* attention = nullptr;
  check(fovea_attention_create(&spec, &limits, in.below(4) == 0 ? "CPU_ATTN" : "TORCH_NATIVE", {FOVEA_CPU, 0},
                               0, nullptr, &attention));
  if (attention == nullptr) return;

  const int seqs = in.below(4), pages = 6, page = spec.page_size;
  std::vector<int64_t> offsets = {0}, lens, lists = {0}, spans = {0}, bytes = {0}, rows = {0};
  for (int b = 0; b < seqs; ++b) {
    const int n_q = in.below(4), n_k = n_q + in.below(6);
    offsets.push_back(offsets.back() + n_q);
    lens.push_back(n_k);
    lists.push_back(lists.back() + (n_k + page - 1) / page);
    rows.push_back(rows.back() + n_k);
    spans.push_back(spans.back() + in.below(2));
    bytes.push_back(bytes.back() + (n_q * n_k + 7) / 8);
  }
  const int64_t tokens = offsets.back();
  fovea_step step = {};
  step.size = sizeof(step);
  step.phase = in.below(2);
  step.num_tokens = static_cast<int32_t>(in.below(16) == 0 ? in.number() : tokens);
  step.q_offsets = c.indices(offsets);
  step.kv_lens = c.indices(lens);
  const int places = in.below(3);
  if (places == 0) step.page_table = c.tensor(kDtypes[3 + in.below(2)], {seqs, 9});
  if (places > 0) step.kv_indptr = c.indices(page == 1 && places == 2 ? rows : lists);
  if (places == 1) {
    std::vector<int64_t> ids;
    for (int64_t i = 0; i < lists.back(); ++i)
      ids.push_back(in.below(pages));
    step.kv_indices = c.indices(ids);
  }
  step.spans = c.maybe(spec.spans != 0, kDtypes[3], {spans.back(), 2});
  if (spec.spans != 0) step.span_offsets = c.indices(spans);
  step.packed_mask = c.maybe(spec.packed_mask != 0, kDtypes[5], {bytes.back()});
  if (spec.packed_mask != 0) {
    const fovea_tensor* of = c.indices(bytes);
    step.packed_offsets = of;
  }
  step.tree_bias = c.maybe(spec.tree != 0, kDtypes[0], {3, 3});
  check(fovea_attention_plan(attention, &step, nullptr, nullptr));
  check(fovea_attention_check(attention, pages, nullptr));

  fovea_layer layer = {};
  layer.size = sizeof(layer);
  layer.q = c.tensor(spec.dtype, {tokens, spec.num_heads, spec.head_dim});
  layer.out = c.tensor(spec.dtype, {tokens, spec.num_heads, spec.v_head_dim});
  layer.lse = c.maybe(in.below(2) == 0, kDtypes[0], {tokens, spec.num_heads});
  const bool eight = spec.kv_dtype != nullptr;
  const fovea_dtype stored = eight ? kDtypes[6] : spec.dtype;
  if (places == 2) {
    layer.k = c.tensor(stored, {rows.back(), spec.num_kv_heads, spec.head_dim});
    layer.v = c.tensor(stored, {rows.back(), spec.num_kv_heads, spec.v_head_dim});
  } else {
    layer.k = c.tensor(stored, {pages, page, spec.num_kv_heads, spec.head_dim});
    layer.v = c.tensor(stored, {pages, page, spec.num_kv_heads, spec.v_head_dim});
  }
  layer.k_scales = c.maybe(eight, kDtypes[0], {pages, page, spec.num_kv_heads});
  layer.v_scales = c.maybe(eight, kDtypes[0], {pages, page, spec.num_kv_heads});
  layer.sinks = c.maybe(spec.has_sink != 0, kDtypes[0], {spec.num_heads});
  layer.alibi_slopes = c.maybe(spec.has_alibi != 0, kDtypes[0], {spec.num_heads});
  check(fovea_attention_run(attention, &layer, nullptr));
  fovea_attention_destroy(attention);
}

void append(Input& in) {
  Case c(in);
  const int64_t tokens = in.below(5), heads = 1 + in.below(3), dim = 2 + 2 * in.below(5), pages = 4,
                page = 1 + in.below(3);
  const fovea_dtype dtype = kDtypes[in.below(3)], stored = kDtypes[in.below(9)];
  const uint8_t parts = in.byte();
  fovea_append_args a = {};
  a.size = sizeof(a);
  a.q = c.maybe(parts & 1, dtype, {tokens, 2 * heads, dim});
  a.q_out = c.maybe(parts & 1, dtype, {tokens, 2 * heads, dim});
  a.k = c.maybe(parts & 2, dtype, {tokens, heads, dim});
  a.v = c.maybe(parts & 2, dtype, {tokens, heads, dim});
  if (parts & 4) {
    const int64_t x = 16 / std::max(stored.bits / 8, 1);
    a.k_cache = c.maybe(parts & 2, stored, {pages, heads, std::max<int64_t>(dim / x, 1), page, x});
    a.v_cache = c.maybe(parts & 2, stored, {pages, heads, dim, page});
  } else {
    a.k_cache = c.maybe(parts & 2, stored, {pages, page, heads, dim});
    a.v_cache = c.maybe(parts & 2, stored, {pages, page, heads, dim});
  }
  const bool eight = stored.code == FOVEA_INT && stored.bits == 8;
  a.k_scales = c.maybe(eight, kDtypes[0], {pages, page, heads});
  a.v_scales = c.maybe(eight, kDtypes[0], {pages, page, heads});
  if (parts & 8) {
    a.slots = c.tensor(kDtypes[3 + in.below(2)], {tokens});
  } else {
    a.q_offsets = c.indices({0, std::min<int64_t>(tokens, 2), tokens});
    a.kv_lens = c.indices({in.below(5), in.below(5)});
    a.page_table = c.tensor(kDtypes[3 + in.below(2)], {2, 3});
  }
  a.q_norm = c.maybe(parts & 16, kDtypes[0], {dim});
  a.k_norm = c.maybe(parts & 32, kDtypes[0], {dim});
  a.cos = c.maybe(parts & 64, kDtypes[0], {5, dim / 2});
  a.sin = c.maybe(parts & 64, kDtypes[0], {5, dim / 2});
  a.positions = c.maybe(parts & 128, kDtypes[3 + in.below(2)], {tokens});
  a.interleaved = in.below(2);
  check(fovea_append(&a, nullptr));

  check(
      fovea_copy_pages(a.k_cache, a.v_cache, c.tensor(kDtypes[3], {2}), c.tensor(kDtypes[4], {2}), nullptr));
  check(fovea_gather(a.k_cache, a.v_cache, 0, 0, c.tensor(kDtypes[3], {tokens}),
                     c.tensor(dtype, {tokens, heads, dim}), c.tensor(dtype, {tokens, heads, dim}), nullptr));
}

void merge(Input& in) {
  Case c(in);
  const int64_t parts = 1 + in.below(3), rows = in.below(4), heads = 1 + in.below(3), dim = 1 + in.below(9);
  const fovea_dtype dtype = kDtypes[in.below(3)];
  check(fovea_merge_states(c.tensor(dtype, {parts, rows, heads, dim}),
                           c.tensor(kDtypes[0], {parts, rows, heads}), c.tensor(dtype, {rows, heads, dim}),
                           c.tensor(kDtypes[0], {rows, heads}), nullptr));
  check(fovea_merge_state(c.tensor(dtype, {rows, heads, dim}), c.tensor(kDtypes[0], {rows, heads}),
                          c.tensor(dtype, {rows, heads, dim}), c.tensor(kDtypes[0], {rows, heads}),
                          c.tensor(dtype, {rows, heads, dim}), c.tensor(kDtypes[0], {rows, heads}), nullptr));
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  setenv("FOVEA_NUM_THREADS", "1", 1);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input in(data, size);
  switch (in.below(4)) {
    case 0: merge(in); break;
    case 1: append(in); break;
    default: attend(in);
  }
  return 0;
}
