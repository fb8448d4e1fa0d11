#include "kernels/reference/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/float8.h"
#include "base/thread_pool.h"
#include "kernels/cache/ds_mla.h"
#include "kernels/reference/visibility.h"

namespace fovea {
namespace {

// Partial sums of a dot product: lane l adds the elements l, l + 8, ... and the lanes are added as a tree.
// Fixed by the head size alone; eight lanes let a compiler use vector registers without reordering anything.
constexpr int kLanes = 8;

template <class Acc>
Acc dot(const Acc* a, const Acc* b, int n) {
  Acc lanes[kLanes] = {};
  int d = 0;
  for (; d + kLanes <= n; d += kLanes)
    for (int l = 0; l < kLanes; ++l)
      lanes[l] += a[d + l] * b[d + l];
  for (int l = 0; d + l < n; ++l)
    lanes[l] += a[d + l] * b[d + l];
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

/// Calls f(decode), where decode(data, at) widens one stored element of a tensor or of the cache: the element
/// type is dispatched once and not for each element.
template <class F>
void with_decoder(KvCacheDType dtype, F&& f) {
  const auto of = [&]<class T>(T, auto widen) {
    f([widen](const void* data, int64_t at) { return widen(static_cast<const T*>(data)[at]); });
  };
  const auto same = [](auto x) { return static_cast<float>(x); };
  switch (dtype) {
    case KvCacheDType::float32: return of(float{}, same);
    case KvCacheDType::float16: return of(uint16_t{}, [](uint16_t x) { return fp16_to_float(x); });
    case KvCacheDType::bfloat16: return of(uint16_t{}, [](uint16_t x) { return bf16_to_float(x); });
    case KvCacheDType::fp8_e4m3: return of(uint8_t{}, [](uint8_t x) { return e4m3_to_float(x); });
    case KvCacheDType::fp8_e5m2: return of(uint8_t{}, [](uint8_t x) { return e5m2_to_float(x); });
    case KvCacheDType::int8_per_token_head: return of(int8_t{}, same);
    default: break;
  }
  FOVEA_CHECK(false);  // the backend rejects other types
}

/// Widens n elements that start `offset` elements after `data`.
template <class Acc>
void load(const void* data, DType dtype, int64_t offset, int n, Acc* out) {
  with_decoder(resolve(KvCacheDType::auto_, dtype), [&](auto decode) {
    for (int d = 0; d < n; ++d)
      out[d] = static_cast<Acc>(decode(data, offset + d));
  });
}

/// n elements from `at` on, in runs of `run` that are `stride` apart, times `scale`.
template <class Acc>
void load_codes(const void* data, KvCacheDType dtype, int64_t at, int64_t run, int64_t stride, Acc scale,
                int n, Acc* out) {
  with_decoder(dtype, [&](auto decode) {
    for (int64_t first = 0; first < n; first += run, at += stride) {
      const int64_t count = std::min<int64_t>(run, n - first);
      for (int64_t d = 0; d < count; ++d)
        out[first + d] = static_cast<Acc>(decode(data, at + d)) * scale;
    }
  });
}

/// Reads the key and value of a (page, KV head, slot) of a view.
template <class Acc>
class KvReader {
 public:
  KvReader(const KvView& kv, const AttentionSpec& spec) : kv_(kv), spec_(spec) {}

  void key(int64_t page, int64_t head, int64_t slot, int n, Acc* out) const {
    if (kv_.dtype == KvCacheDType::fp8_ds_mla) return record(page, slot, n, out);
    const bool packed = kv_.form == KvForm::x_packed;
    load_codes(kv_.k, kv_.dtype,
               page * kv_.k_page_stride + head * kv_.k_head_stride + slot * kv_.k_slot_stride,
               packed ? x_of(kv_.dtype) : n, kv_.k_chunk_stride,
               static_cast<Acc>(kv_.k_scale) * token_scale(kv_.k_scales, page, head, slot), n, out);
  }
  void value(int64_t page, int64_t head, int64_t slot, int n, Acc* out) const {
    if (kv_.dtype == KvCacheDType::fp8_ds_mla) return record(page, slot, n, out);
    const bool packed = kv_.form == KvForm::x_packed;
    load_codes(kv_.v, kv_.dtype, page * kv_.v_page_stride + head * kv_.v_head_stride + kv_.v_slot(slot),
               packed ? 1 : n, kv_.v_dim_stride,
               static_cast<Acc>(kv_.v_scale) * token_scale(kv_.v_scales, page, head, slot), n, out);
  }

 private:
  Acc token_scale(const float* scales, int64_t page, int64_t head, int64_t slot) const {
    if (scales == nullptr) return 1;
    return static_cast<Acc>(
        scales[page * kv_.scale_page_stride + head * kv_.scale_head_stride + slot * kv_.scale_slot_stride]);
  }

  /// The first n elements of a record, as fp32 arithmetic reads them.
  void record(int64_t page, int64_t slot, int n, Acc* out) const {
    float all[kReferenceMaxHeadDim];
    load_ds_mla(static_cast<const std::byte*>(kv_.k) + page * kv_.k_page_stride + slot * kv_.k_slot_stride,
                spec_.v_head_dim, spec_.head_dim - spec_.v_head_dim, all);
    std::copy_n(all, n, out);
  }

  const KvView& kv_;
  const AttentionSpec& spec_;
};

template <class Acc>
void store(const Acc* in, int n, void* data, DType dtype, int64_t offset) {
  for (int d = 0; d < n; ++d) {
    const float value = static_cast<float>(in[d]);
    switch (dtype) {
      case DType::f32: static_cast<float*>(data)[offset + d] = value; break;
      case DType::f16: static_cast<uint16_t*>(data)[offset + d] = float_to_fp16(value); break;
      case DType::bf16: static_cast<uint16_t*>(data)[offset + d] = float_to_bf16(value); break;
    }
  }
}

/// Softmax-weighted sum over keys that arrive one at a time: o = sum e^(s - m) v / l, l = sum e^(s - m).
template <class Acc>
struct RunningSoftmax {
  Acc m, l, o[kReferenceMaxHeadDim];

  void reset(int dv) {
    m = -std::numeric_limits<Acc>::infinity();
    l = 0;
    std::fill_n(o, dv, Acc{0});
  }

  void add(Acc s, const Acc* v, int dv) {
    const Acc m_new = std::max(m, s);
    if (m_new != m) {
      const Acc shrink = std::exp(m - m_new);
      l *= shrink;
      for (int d = 0; d < dv; ++d)
        o[d] *= shrink;
      m = m_new;
    }
    const Acc weight = std::exp(s - m);
    l += weight;
    for (int d = 0; d < dv; ++d)
      o[d] += weight * v[d];
  }
};

/// One (row, query head) of a layer.
template <class Acc>
class ReferenceRow {
 public:
  ReferenceRow(const AttentionSpec& spec, const BatchMeta& meta, const AttentionArgs& args)
      : spec_(spec), meta_(meta), args_(args) {}

  void compute(int b, int64_t token, int head) {
    const SequenceMask seq = sequence_mask(spec_.mask, meta_, b);
    const int64_t row = token - meta_.q_offsets[b];
    load(args_.q, spec_.dtype, args_.q_offset(token, head, spec_.head_dim), spec_.head_dim, q_);
    softmax_.reset(spec_.v_head_dim);
    any_ = false;
    if (spec_.use_sparse) {
      add_listed(seq, b, token, head);
    } else {
      const KeyRanges ranges = key_ranges(spec_.mask, seq, row, row + 1);
      add_keys(seq, b, row, head, ranges.sinks);
      add_keys(seq, b, row, head, ranges.body);
    }
    finish(token, head);
  }

 private:
  void add_keys(const SequenceMask& seq, int b, int64_t row, int head, KeyRange keys) {
    const int32_t* pages = keys.first < keys.last ? meta_.pages(b) : nullptr;
    for (int64_t j = keys.first; j < keys.last; ++j)
      if (visible(spec_.mask, seq, row, j)) add_key(seq, pages, row, head, j);
  }

  /// The keys of AttentionArgs::chosen.
  void add_listed(const SequenceMask& seq, int b, int64_t token, int head) {
    const int32_t* list = args_.chosen + token * args_.chosen_row_stride;
    for (int i = 0; i < spec_.sparse_topk; ++i)
      if (list[i] >= 0 && list[i] < seq.n_k)
        add_key(seq, meta_.pages(b), token - meta_.q_offsets[b], head, list[i]);
  }

  void add_key(const SequenceMask& seq, const int32_t* pages, int64_t row, int head, int64_t j) {
    const int64_t kv_head = head / (spec_.num_heads / spec_.num_kv_heads);
    const KvReader<Acc> kv(args_.kv, spec_);
    const int64_t page = pages[j / args_.kv.page_size];
    const int64_t slot = j % args_.kv.page_size;
    kv.key(page, kv_head, slot, spec_.head_dim, k_);
    const Acc s = score(seq, row, head, j);
    if (s == -std::numeric_limits<Acc>::infinity()) return;  // hidden by a bias
    any_ = true;
    kv.value(page, kv_head, slot, spec_.v_head_dim, v_);
    softmax_.add(s, v_, spec_.v_head_dim);
  }

  Acc score(const SequenceMask& seq, int64_t row, int head, int64_t j) const {
    Acc s = static_cast<Acc>(spec_.scale) * dot(q_, k_, spec_.head_dim);
    if (spec_.softcap > 0) {
      const Acc cap = static_cast<Acc>(spec_.softcap);
      s = cap * std::tanh(s / cap);
    }
    if (spec_.has_alibi)
      s -= static_cast<Acc>(args_.alibi_slopes[head]) * static_cast<Acc>(std::abs(position(seq, row) - j));
    return s + static_cast<Acc>(tree_bias(seq, row, j));
  }

  void finish(int64_t token, int head) {
    constexpr Acc kInf = std::numeric_limits<Acc>::infinity();
    const int dv = spec_.v_head_dim;
    Acc lse = -kInf;
    if (any_) {
      // The sink logit has no value: it only enlarges the denominator. e^(sink - m) may overflow to
      // infinity, which makes the output 0, as it must.
      Acc denominator = softmax_.l;
      if (spec_.has_sink) denominator += std::exp(static_cast<Acc>(args_.sinks[head]) - softmax_.m);
      for (int d = 0; d < dv; ++d)
        softmax_.o[d] /= denominator;
      lse = softmax_.m + std::log(softmax_.l);
    }
    store(softmax_.o, dv, args_.out, spec_.dtype, args_.out_offset(token, head, dv));
    if (args_.lse == nullptr) return;
    if (spec_.has_sink && spec_.lse_includes_sink)
      lse = log_add_exp(lse, static_cast<Acc>(args_.sinks[head]));
    args_.lse[token * spec_.num_heads + head] = static_cast<float>(lse);
  }

  static Acc log_add_exp(Acc a, Acc b) {
    const Acc high = std::max(a, b);
    if (std::isinf(high)) return high;
    return high + std::log1p(std::exp(std::min(a, b) - high));
  }

  const AttentionSpec& spec_;
  const BatchMeta& meta_;
  const AttentionArgs& args_;
  bool any_ = false;
  Acc q_[kReferenceMaxHeadDim], k_[kReferenceMaxHeadDim], v_[kReferenceMaxHeadDim];
  RunningSoftmax<Acc> softmax_;
};

template <class Acc>
void run(const AttentionSpec& spec, const BatchMeta& meta, const AttentionArgs& args, ThreadPool& pool) {
  pool.parallel_tasks(int64_t{meta.num_tokens()} * spec.num_heads, [&](int64_t task, int) {
    const int64_t token = task / spec.num_heads;
    const auto after = std::upper_bound(meta.q_offsets.begin(), meta.q_offsets.end(), token);
    const int b = static_cast<int>(after - meta.q_offsets.begin()) - 1;
    ReferenceRow<Acc>(spec, meta, args).compute(b, token, static_cast<int>(task % spec.num_heads));
  });
}

}  // namespace

void reference_attention(const AttentionSpec& spec, const BatchMeta& meta, const AttentionArgs& args,
                         ThreadPool& pool) {
  FOVEA_CHECK(spec.head_dim <= kReferenceMaxHeadDim && spec.v_head_dim <= kReferenceMaxHeadDim);
  if (spec.fp64_accumulate)
    run<double>(spec, meta, args, pool);
  else
    run<float>(spec, meta, args, pool);
}

}  // namespace fovea
