#include "conformance/batch.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "attention/kv_view.h"
#include "base/check.h"
#include "base/float16.h"
#include "base/float8.h"
#include "conformance/textbook_mask.h"
#include "fovea/result.h"
#include "kernels/cache/ds_mla.h"

namespace fovea::conformance {
namespace {

/// Page ids past the end of a sequence.
constexpr int32_t kGarbage[] = {std::numeric_limits<int32_t>::max(), -1, 0x3fffffff,
                                std::numeric_limits<int32_t>::min()};

void put(std::byte* data, DType dtype, int64_t index, float value) {
  if (dtype == DType::f32) {
    std::memcpy(data + index * 4, &value, 4);
    return;
  }
  const uint16_t bits = dtype == DType::f16 ? float_to_fp16(value) : float_to_bf16(value);
  std::memcpy(data + index * 2, &bits, 2);
}

template <class T>
void fill(std::byte* data, int64_t elements, T pattern) {
  for (int64_t i = 0; i < elements; ++i)
    std::memcpy(data + i * static_cast<int64_t>(sizeof(T)), &pattern, sizeof(T));
}

void fill_nan(std::byte* data, DType dtype, int64_t elements) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  switch (dtype) {
    case DType::f32: return fill(data, elements, kNaN);
    case DType::f16: return fill(data, elements, float_to_fp16(kNaN));
    case DType::bf16: return fill(data, elements, float_to_bf16(kNaN));
  }
}

/// Writes `value` as the cache stores it: exactly, or up to the rounding of code x scale.
void put(std::byte* data, KvCacheDType dtype, int64_t index, float value, float scale) {
  switch (dtype) {
    case KvCacheDType::float32: return put(data, DType::f32, index, value);
    case KvCacheDType::float16: return put(data, DType::f16, index, value);
    case KvCacheDType::bfloat16: return put(data, DType::bf16, index, value);
    case KvCacheDType::fp8_e4m3: data[index] = std::byte{float_to_e4m3(value / scale)}; return;
    case KvCacheDType::fp8_e5m2: data[index] = std::byte{float_to_e5m2(value / scale)}; return;
    case KvCacheDType::int8_per_token_head:
      data[index] = static_cast<std::byte>(static_cast<int8_t>(std::nearbyint(value / scale)));
      return;
    default: FOVEA_CHECK(false);
  }
}

/// Poisons elements that must not be read: NaN, or -128 for types without NaN, a code that is never written.
void fill_nan(std::byte* data, KvCacheDType dtype, int64_t elements) {
  switch (dtype) {
    case KvCacheDType::float32: return fill_nan(data, DType::f32, elements);
    case KvCacheDType::float16: return fill_nan(data, DType::f16, elements);
    case KvCacheDType::bfloat16: return fill_nan(data, DType::bf16, elements);
    case KvCacheDType::fp8_e4m3:
    case KvCacheDType::fp8_ds_mla:
    case KvCacheDType::fp8_e5m2: return fill<uint8_t>(data, elements, 0x7f);
    case KvCacheDType::int8_per_token_head: return fill<uint8_t>(data, elements, 0x80);
    default: FOVEA_CHECK(false);
  }
}

/// Strides of KvPlace::gaps: larger than dense strides, by a different amount at each level.
void spread(KvView& kv, bool nhd, int num_kv_heads, int64_t gap) {
  const auto widen = [&](int64_t& slot, int64_t& head, int64_t& page) {
    if (kv.form == KvForm::strided) {
      (nhd ? head : slot) += gap;
      (nhd ? slot : head) = nhd ? head * num_kv_heads + gap : slot * kv.page_size + gap;
      page = nhd ? slot * kv.page_size : head * num_kv_heads;
    }
    page += 3 * gap;
  };
  widen(kv.k_slot_stride, kv.k_head_stride, kv.k_page_stride);
  widen(kv.v_slot_stride, kv.v_head_stride, kv.v_page_stride);
}

/// True for keys that some row of the sequence may read. Keys hidden by a tree count, as their scores are
/// computed.
std::vector<bool> seen_keys(MaskSpec mask, const Problem& problem, const Sequence& s) {
  mask.tree = false;
  std::vector<bool> seen(static_cast<size_t>(s.n_k));
  for (int j = 0; j < s.n_k; ++j)
    for (int i = s.n_q - 1; i >= 0 && !seen[j]; --i)
      seen[j] = textbook_sees(mask, problem, s, i, j);
  return seen;
}

}  // namespace

Batch::Batch(const Problem& problem, const Layout& layout) : masks_(problem), meta_(masks_.meta()) {
  lay_out_queries(problem, layout);
  lay_out_cache(problem, layout);
  if (problem.spec.use_sparse) list_keys(problem);
  meta_.past_kv_ready = layout.past_kv_ready;
  limits_ = larger_of(limits_of(problem), layout.declared);
  sinks_ = problem.sinks;
  slopes_ = problem.slopes;
  args_.sinks = sinks_.empty() ? nullptr : sinks_.data();
  args_.alibi_slopes = slopes_.empty() ? nullptr : slopes_.data();
}

MaskArrays::MaskArrays(const Problem& problem) {
  const MaskSpec& mask = problem.spec.mask;
  q_offsets_ = {0};
  span_offsets_ = {0};
  packed_offsets_ = {0};
  for (const Sequence& s : problem.seqs) {
    q_offsets_.push_back(q_offsets_.back() + s.n_q);
    kv_lens_.push_back(s.n_k);
    spans_.insert(spans_.end(), s.spans.begin(), s.spans.end());
    span_offsets_.push_back(static_cast<int32_t>(spans_.size()));
    packed_.insert(packed_.end(), s.packed.begin(), s.packed.end());
    packed_offsets_.push_back(static_cast<int64_t>(packed_.size()));
  }
  tree_bias_ = problem.tree_bias;
  meta_.phase = problem.phase;
  meta_.tokens = q_offsets_.back();
  meta_.q_offsets = q_offsets_;
  meta_.kv_lens = kv_lens_;
  if (mask.spans) {
    meta_.spans = spans_;
    meta_.span_offsets = span_offsets_;
  }
  if (mask.packed) {
    meta_.packed_mask = packed_;
    meta_.packed_offsets = packed_offsets_;
  }
  if (mask.tree) {
    meta_.tree_bias = tree_bias_;
    meta_.tree_size = problem.tree_size;
  }
}

void Batch::lay_out_queries(const Problem& problem, const Layout& layout) {
  const AttentionSpec& spec = problem.spec;
  const int64_t width = int64_t{spec.num_heads} * spec.head_dim;
  args_.q_row_stride = width + layout.row_padding;
  const int64_t elements = std::max<int64_t>(1, meta_.num_tokens() * args_.q_row_stride);
  q_ = AlignedArray<std::byte>(static_cast<size_t>(elements) * size_of(spec.dtype));
  fill_nan(q_.data(), spec.dtype, elements);
  int64_t row = 0;
  for (const Sequence& s : problem.seqs)
    for (int i = 0; i < s.n_q; ++i, ++row)
      for (int64_t e = 0; e < width; ++e)
        put(q_.data(), spec.dtype, row * args_.q_row_stride + e, s.q[i * width + e]);
  args_.q = q_.data();
}

/// The keys of each row, ascending; where there is room, entries that name none are before, between and after
/// them.
void Batch::list_keys(const Problem& problem) {
  constexpr int kPadding = 3;
  constexpr int32_t kNone[] = {-1, std::numeric_limits<int32_t>::max(), std::numeric_limits<int32_t>::min()};
  const int topk = problem.spec.sparse_topk;
  args_.chosen_row_stride = topk + kPadding;
  chosen_.assign(static_cast<size_t>(meta_.num_tokens() * args_.chosen_row_stride),
                 0);  // 0: a key's position
  int32_t* list = chosen_.data();
  for (const Sequence& s : problem.seqs)
    for (int i = 0; i < s.n_q; ++i, list += args_.chosen_row_stride) {
      std::vector<int32_t> keys;
      for (int j = 0; j < s.n_k; ++j)
        if (textbook_sees(problem.spec.mask, problem, s, i, j)) keys.push_back(j);
      FOVEA_CHECK(static_cast<int>(keys.size()) <= topk);
      const int here = s.n_k - s.n_q + i;  // gaps depend on the position alone, as a row's bits may
      std::fill_n(list, topk, -1);
      size_t at = 0, gaps = static_cast<size_t>(topk) - keys.size();
      for (const int32_t key : keys) {
        if (gaps > 0 && (key + here) % 5 == 0) {
          list[at++] = kNone[gaps % 3];
          --gaps;
        }
        list[at++] = key;
      }
    }
  args_.chosen = chosen_.data();
}

/// Rows of ragged tensors: contiguous for each sequence, with some unowned rows between sequences.
void Batch::place_rows(const Problem& problem, const Layout& layout) {
  num_pages_ = layout.null_page ? 1 : 0;
  for (const Sequence& s : problem.seqs) {
    kv_indptr_.push_back(static_cast<int32_t>(num_pages_));
    std::vector<int32_t>& rows = pages_.emplace_back(static_cast<size_t>(s.n_k));
    std::iota(rows.begin(), rows.end(), static_cast<int32_t>(num_pages_));
    num_pages_ += s.n_k + static_cast<int64_t>(pages_.size() % 2);
  }
  kv_indptr_.push_back(static_cast<int32_t>(num_pages_));
  num_pages_ = std::max<int64_t>(num_pages_, 1);
}

/// Decides which pages each sequence has; some pages are unowned.
void Batch::place_pages(const Problem& problem, const Layout& layout) {
  const int page_size = problem.spec.page_size;
  constexpr int kUnowned = 3;
  const int shared = layout.share_pages ? problem.shared_prefix / page_size : 0;
  int64_t longest = 0;
  std::vector<std::pair<size_t, size_t>> wanted;  // sequence, index of its page; in order of placement
  std::vector<size_t> counts;
  for (const Sequence& s : problem.seqs) {
    counts.push_back(static_cast<size_t>((s.n_k + page_size - 1) / page_size));
    longest = std::max(longest, static_cast<int64_t>(counts.back()));
  }
  if (layout.order == PageOrder::interleaved) {
    for (size_t i = 0; i < static_cast<size_t>(longest); ++i)
      for (size_t b = 0; b < counts.size(); ++b)
        if (i < counts[b]) wanted.emplace_back(b, i);
  } else {
    for (size_t b = 0; b < counts.size(); ++b)
      for (size_t i = 0; i < counts[b]; ++i)
        wanted.emplace_back(b, i);
  }
  num_pages_ = static_cast<int64_t>(wanted.size()) + kUnowned;
  std::vector<int32_t> order(static_cast<size_t>(num_pages_));
  std::iota(order.begin(), order.end(), 0);
  if (layout.null_page) order.erase(order.begin());
  if (layout.order == PageOrder::descending) std::reverse(order.begin(), order.end());
  if (layout.order == PageOrder::shuffled) {
    Random random(layout.shuffle);
    for (size_t i = order.size() - 1; i > 0; --i)
      std::swap(order[i], order[random.below(static_cast<int>(i) + 1)]);
  }
  pages_.resize(problem.seqs.size());
  for (size_t b = 0; b < counts.size(); ++b)
    pages_[b].resize(counts[b]);
  for (size_t at = 0; at < wanted.size(); ++at)
    pages_[wanted[at].first][wanted[at].second] = order[at];
  // All sequences share the first owner's page for each whole page of the prefix.
  for (int i = 0; i < shared; ++i) {
    int32_t owned = -1;
    for (size_t b = 0; b < pages_.size(); ++b) {
      if (problem.seqs[b].n_k < (i + 1) * page_size) continue;
      if (owned < 0) owned = pages_[b][i];
      pages_[b][i] = owned;
    }
  }
}

void Batch::lay_out_cache(const Problem& problem, const Layout& layout) {
  const AttentionSpec& spec = problem.spec;
  const int page_size = spec.page_size;
  FOVEA_CHECK(page_size > 0 && (!layout.ragged || page_size == 1));
  if (layout.ragged)
    place_rows(problem, layout);
  else
    place_pages(problem, layout);
  const KvCacheDType dtype = kv_dtype_of(spec);
  KvView& kv = args_.kv;
  latent_ = spec.use_mla;
  kv = latent_ ? latent_view(dtype, page_size, spec.head_dim, spec.v_head_dim)
               : paged_view(layout.kv, dtype, spec.num_kv_heads, page_size, spec.head_dim, spec.v_head_dim);
  FOVEA_CHECK(check_layout(layout.kv, dtype, page_size, spec.head_dim).ok());
  const bool nhd = layout.kv == KvLayout::nhd && !latent_;
  if (layout.place == KvPlace::gaps) spread(kv, nhd, spec.num_kv_heads, layout.kv_gap);
  allocate_cache(layout);
  kv.num_pages = num_pages_;
  kv.k = k_.data();
  kv.v = latent_ ? k_.data() : v_.data();
  kv.k_scale = k_scale_of(spec);
  kv.v_scale = v_scale_of(spec);
  if (has_token_scales(dtype)) {  // [pages, S, Hkv]
    k_scales_.assign(static_cast<size_t>(num_pages_ * page_size * spec.num_kv_heads),
                     std::numeric_limits<float>::quiet_NaN());
    if (!latent_) v_scales_ = k_scales_;
    kv.k_scales = k_scales_.data();
    kv.v_scales = latent_ ? kv.k_scales : v_scales_.data();
    kv.scale_page_stride = int64_t{page_size} * spec.num_kv_heads;
    kv.scale_slot_stride = spec.num_kv_heads;
    kv.scale_head_stride = 1;
  } else if (has_head_scales(spec)) {
    for (int h = 0; h < spec.num_kv_heads; ++h) {
      k_scales_.push_back(k_head_scale(spec, h));
      v_scales_.push_back(v_head_scale(spec, h));
    }
    kv.k_scales = k_scales_.data();
    kv.v_scales = v_scales_.data();
    kv.scale_head_stride = 1;
  }

  size_t stride = 2;  // entries past the end
  for (const auto& pages : pages_)
    stride = std::max(stride, pages.size() + 2);
  Random random(layout.shuffle);
  page_table_.resize(problem.seqs.size() * stride);
  for (int32_t& id : page_table_)
    id = kGarbage[random.below(4)];
  for (int b = 0; b < static_cast<int>(problem.seqs.size()); ++b) {
    const Sequence& s = problem.seqs[b];
    std::vector<bool> seen(static_cast<size_t>(s.n_k), true);
    if (layout.poison_invisible) {
      MaskSpec mask = spec.mask;
      mask.packed = mask.packed && layout.packed_hides;
      seen = seen_keys(mask, problem, s);
    }
    for (int64_t j = 0; j < s.n_k; ++j) {
      if (!seen[j]) continue;
      const int32_t page = pages_[b][j / page_size];
      page_table_[static_cast<size_t>(b) * stride + j / page_size] = page;
      store(s, j, page, spec);
    }
  }
  if (layout.ragged) {
    meta_.kv_indptr = kv_indptr_;
    return;
  }
  meta_.page_table = page_table_;
  meta_.page_table_stride = static_cast<int64_t>(stride);
  if (layout.page_lists) make_page_lists(problem);
}

/// Allocates K and V of all pages, poisoned.
void Batch::allocate_cache(const Layout& layout) {
  KvView& kv = args_.kv;
  const auto element = static_cast<int64_t>(size_of(kv.dtype));
  const auto place = [&](int64_t& page_stride, std::vector<ByteRange>& used) {
    const int64_t dense = page_stride;
    if (layout.place != KvPlace::far) {
      HostRegion region = HostRegion::dense(static_cast<size_t>(num_pages_ * dense * element));
      fill_nan(region.data(), kv.dtype, num_pages_ * dense);
      return region;
    }
    // The last page is beyond 2^31 elements by more than a page's size; strides are multiples of 16-byte
    // loads.
    const int64_t apart = ((int64_t{1} << 31) + (int64_t{1} << 22)) / std::max<int64_t>(num_pages_ - 1, 1);
    page_stride = std::max(dense, (apart + 15) / 16 * 16);
    HostRegion region = HostRegion::sparse(static_cast<size_t>(num_pages_ * page_stride * element));
    for (int64_t page = 0; page < num_pages_ && region.data() != nullptr; ++page) {
      const ByteRange part{static_cast<size_t>(page * page_stride * element),
                           static_cast<size_t>(dense * element)};
      fill_nan(region.data() + part.first, kv.dtype, dense);
      used.push_back(part);
    }
    return region;
  };
  k_ = place(kv.k_page_stride, k_used_);
  if (latent_)
    kv.v_page_stride = kv.k_page_stride;
  else
    v_ = place(kv.v_page_stride, v_used_);
}

/// Stores token `j` in its slot.
void Batch::store(const Sequence& s, int64_t j, int64_t page, const AttentionSpec& spec) {
  if (args_.kv.k == nullptr || args_.kv.v == nullptr) return;  // upload_args() reports it
  const KvView& kv = args_.kv;
  const int64_t heads = spec.num_kv_heads, d = spec.head_dim, dv = spec.v_head_dim;
  const int64_t slot = j % kv.page_size, x = x_of(kv.dtype);
  if (kv.dtype == KvCacheDType::fp8_ds_mla)
    return store_ds_mla(s.k.data() + j * d, spec.v_head_dim, spec.head_dim - spec.v_head_dim,
                        k_.data() + page * kv.k_page_stride + slot * kv.k_slot_stride);
  const bool packed = kv.form == KvForm::x_packed;
  for (int64_t h = 0; h < heads; ++h) {
    float k_scale = kv.k_scale * k_head_scale(spec, static_cast<int>(h));
    float v_scale = kv.v_scale * v_head_scale(spec, static_cast<int>(h));
    if (has_token_scales(kv.dtype)) {
      k_scale = s.k_scales[j * heads + h];
      v_scale = s.v_scales[j * heads + h];
      const int64_t at = (page * kv.page_size + slot) * heads + h;
      k_scales_[at] = k_scale;
      if (!latent_) v_scales_[at] = v_scale;
    }
    const int64_t k_at = page * kv.k_page_stride + h * kv.k_head_stride + slot * kv.k_slot_stride;
    const int64_t v_at = page * kv.v_page_stride + h * kv.v_head_stride + kv.v_slot(slot);
    for (int64_t e = 0; e < d; ++e)
      put(k_.data(), kv.dtype, k_at + (packed ? e / x * kv.k_chunk_stride + e % x : e),
          s.k[(j * heads + h) * d + e], k_scale);
    for (int64_t e = 0; e < dv && !latent_; ++e)
      put(v_.data(), kv.dtype, v_at + (packed ? e * kv.v_dim_stride : e), s.v[(j * heads + h) * dv + e],
          v_scale);
  }
}

/// The table's rows as lists, some with an extra entry.
void Batch::make_page_lists(const Problem& problem) {
  const auto stride = meta_.page_table_stride;
  Random random(problem.seqs.size());
  kv_indices_ = {kGarbage[0]};  // the first list need not begin at 0
  for (int64_t b = 0; b < static_cast<int64_t>(problem.seqs.size()); ++b) {
    kv_indptr_.push_back(static_cast<int32_t>(kv_indices_.size()));
    const auto n = static_cast<int64_t>(pages_[b].size()) + random.below(2);
    kv_indices_.insert(kv_indices_.end(), page_table_.begin() + b * stride,
                       page_table_.begin() + b * stride + n);
  }
  kv_indptr_.push_back(static_cast<int32_t>(kv_indices_.size()));
  meta_.page_table = {};
  meta_.page_table_stride = 0;
  meta_.kv_indptr = kv_indptr_;
  meta_.kv_indices = kv_indices_;
}

Result<Step> Batch::upload(DeviceSession& session) const {
  Status status;
  Step step;
  step.meta = with_arrays(meta_, [&](auto array) {
    const auto device = session.put(array.data(), array.size_bytes());
    if (!device && status) status = device.error();
    return decltype(array)(device ? reinterpret_cast<decltype(array.data())>(*device) : nullptr,
                           array.size());
  });
  FOVEA_RETURN_IF_ERROR(status);
  FOVEA_TRY(args, upload_args(session));
  step.args = args;
  return step;
}

Result<const std::byte*> Batch::upload_queries(DeviceSession& session) const {
  return session.put(q_.data(), q_.size());
}

Result<AttentionArgs> Batch::upload_args(DeviceSession& session) const {
  AttentionArgs args = args_;
  if (args.kv.k == nullptr || args.kv.v == nullptr)
    return Error{ErrorCode::internal, "this system does not map the " +
                                          std::to_string(num_pages_ * args.kv.k_page_stride) +
                                          " elements of a cache whose offsets pass 2^31; raise ulimit -v"};
  FOVEA_TRY(q, upload_queries(session));
  const auto put_cache = [&](const HostRegion& region, const std::vector<ByteRange>& used) {
    return used.empty() ? session.put(region.data(), region.size())
                        : session.put_parts(region.data(), region.size(), used);
  };
  FOVEA_TRY(k, put_cache(k_, k_used_));
  args.q = q;
  args.kv.k = args.kv.v = k;
  if (!latent_) {
    FOVEA_TRY(v, put_cache(v_, v_used_));
    args.kv.v = v;
  }
  const auto put = [&](const float*& array, const std::vector<float>& host) -> Status {
    if (array == nullptr) return {};
    FOVEA_TRY(device, session.put(host.data(), host.size() * sizeof(float)));
    array = reinterpret_cast<const float*>(device);
    return {};
  };
  if (args.chosen != nullptr) {
    FOVEA_TRY(chosen, session.put(chosen_.data(), chosen_.size() * sizeof(int32_t)));
    args.chosen = reinterpret_cast<const int32_t*>(chosen);
  }
  FOVEA_RETURN_IF_ERROR(put(args.sinks, sinks_));
  FOVEA_RETURN_IF_ERROR(put(args.alibi_slopes, slopes_));
  FOVEA_RETURN_IF_ERROR(put(args.kv.k_scales, k_scales_));
  if (latent_)
    args.kv.v_scales = args.kv.k_scales;
  else
    FOVEA_RETURN_IF_ERROR(put(args.kv.v_scales, v_scales_));
  return args;
}

AttentionLimits limits_of(const Problem& problem) {
  AttentionLimits limits;
  limits.max_seqs = static_cast<int>(problem.seqs.size());
  for (const Sequence& s : problem.seqs) {
    limits.max_tokens += s.n_q;
    limits.max_kv_tokens += s.n_k;
    limits.max_kv_len = std::max(limits.max_kv_len, s.n_k);
  }
  return limits;
}

AttentionLimits larger_of(const AttentionLimits& a, const AttentionLimits& b) {
  return {.max_seqs = std::max(a.max_seqs, b.max_seqs),
          .max_tokens = std::max(a.max_tokens, b.max_tokens),
          .max_kv_tokens = std::max(a.max_kv_tokens, b.max_kv_tokens),
          .max_kv_len = std::max(a.max_kv_len, b.max_kv_len),
          .split_prefill = a.split_prefill && b.split_prefill};
}

Layout random_layout(uint64_t seed, const AttentionSpec& spec) {
  Random random(seed ^ 0x6c61796f7574u);
  Layout layout;
  layout.shuffle = random.bits();
  layout.kv =
      random.pick(std::vector<KvLayout>{KvLayout::hnd, KvLayout::hnd, KvLayout::nhd, KvLayout::x_packed});
  if (!check_layout(layout.kv, kv_dtype_of(spec), spec.page_size, spec.head_dim)) layout.kv = KvLayout::hnd;
  layout.page_lists = random.chance(25);
  layout.row_padding = random.chance(30) ? random.pick(std::vector<int>{1, 8, 48}) : 0;
  layout.poison_invisible = random.chance(70);
  return layout;
}

}  // namespace fovea::conformance
