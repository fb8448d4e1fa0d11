#include "c_api/step.h"

#include <algorithm>
#include <climits>
#include <string>

#include "c_api/structs.h"

namespace fovea::c_api {
namespace {

std::string str(int64_t v) {
  return std::to_string(v);
}

int64_t pages_of(int64_t keys, int page_size) {
  return (keys + page_size - 1) / page_size;
}

/// Reads the arrays of one step.
class Reader {
 public:
  Reader(const fovea_step& step, const AttentionSpec& spec, AttentionLimits& limits,
         const Arguments& arguments, IndexBuffers& buffers, Stream& stream)
      : step_(step),
        spec_(spec),
        limits_(limits),
        arguments_(arguments),
        buffers_(buffers),
        stream_(stream) {}

  Result<BatchMeta> read() {
    buffers_.begin_step();
    if (step_.phase != FOVEA_PREFILL && step_.phase != FOVEA_DECODE)
      return invalid("phase is " + str(step_.phase) + "; it must be " + str(FOVEA_PREFILL) +
                     " (prefill) or " + str(FOVEA_DECODE) + " (decode)");
    if (step_.num_tokens < 0 || step_.num_tokens > limits_.max_tokens)
      return invalid("num_tokens is " + str(step_.num_tokens) + "; it must be 0 to max_tokens, " +
                     str(limits_.max_tokens));
    meta_.phase = step_.phase == FOVEA_DECODE ? Phase::decode : Phase::prefill;
    meta_.tokens = step_.num_tokens;
    FOVEA_TRY(lens, arguments_.take(step_.kv_lens, {"kv_lens", kIndex, {{"B"}}, Packing::strided}));
    seqs_ = lens.size(0);
    if (seqs_ > limits_.max_seqs)
      return invalid("kv_lens has " + str(seqs_) + " sequences; max_seqs is " + str(limits_.max_seqs));
    FOVEA_TRY(kv_lens, numbers(lens, "kv_lens", IndexBuffers::kv_lens));
    meta_.kv_lens = kv_lens;
    FOVEA_TRY(q_offsets, offsets(step_.q_offsets, "q_offsets", IndexBuffers::q_offsets));
    meta_.q_offsets = q_offsets;
    if (arguments_.on_cpu() && meta_.q_offsets.back() != step_.num_tokens)
      return invalid("num_tokens is " + str(step_.num_tokens) + "; q_offsets ends with " +
                     str(meta_.q_offsets.back()));
    FOVEA_RETURN_IF_ERROR(read_pages());
    FOVEA_RETURN_IF_ERROR(read_spans());
    FOVEA_RETURN_IF_ERROR(read_packed());
    FOVEA_RETURN_IF_ERROR(read_tree());
    FOVEA_RETURN_IF_ERROR(read_settled());
    FOVEA_RETURN_IF_ERROR(buffers_.queue(stream_));
    return meta_;
  }

 private:
  static bool is_dense(const Tensor& t) { return t.element == Element::i32 && t.step(t.ndim - 1) == 1; }

  /// Reads a one-dimensional index tensor; copied unless it is dense int32.
  Result<std::span<const int32_t>> numbers(const Tensor& t, const char* name, IndexBuffers::Which which) {
    const auto n = static_cast<size_t>(t.size(0));
    if (is_dense(t)) return std::span<const int32_t>(t.as<int32_t>(), n);
    FOVEA_TRY(narrow, buffers_.narrow(which, {name, t.data, t.element == Element::i64, nullptr, 1, t.size(0),
                                              0, t.step(0)}));
    return std::span<const int32_t>(narrow, n);
  }

  Result<std::span<const int32_t>> offsets(const fovea_tensor* tensor, const char* name,
                                           IndexBuffers::Which which) {
    FOVEA_TRY(t, arguments_.take(tensor, {name, kIndex, {{"B + 1", seqs_ + 1}}, Packing::strided}));
    return numbers(t, name, which);
  }

  Status read_pages() {
    if (step_.page_table != nullptr) {
      if (step_.kv_indptr != nullptr || step_.kv_indices != nullptr)
        return invalid("page_table and " +
                       std::string(step_.kv_indptr != nullptr ? "kv_indptr" : "kv_indices") +
                       " are given; give one of them");
      return read_table();
    }
    if (step_.kv_indptr == nullptr)
      return invalid(step_.kv_indices != nullptr ? "kv_indices is given without kv_indptr; give both"
                                                 : "page_table and kv_indptr are null; give one of them");
    FOVEA_TRY(indptr, offsets(step_.kv_indptr, "kv_indptr", IndexBuffers::kv_indptr));
    meta_.kv_indptr = indptr;
    if (step_.kv_indices == nullptr) return read_ragged();
    FOVEA_TRY(t, arguments_.take(step_.kv_indices, {"kv_indices", kIndex, {{"nnz"}}, Packing::strided}));
    if (!is_dense(t) && !arguments_.on_cpu() && t.size(0) > buffers_.capacity(IndexBuffers::kv_indices))
      return invalid(
          "kv_indices has " + str(t.size(0)) + (t.element == Element::i64 ? " int64" : " strided") +
          " entries; the limits have room for " + str(buffers_.capacity(IndexBuffers::kv_indices)) +
          " copies: give dense int32, or fewer");
    FOVEA_TRY(indices, numbers(t, "kv_indices", IndexBuffers::kv_indices));
    // A null pointer would mean that there are no lists.
    meta_.kv_indices = indices.data() == nullptr ? std::span(meta_.kv_lens.data(), 0) : indices;
    return {};
  }

  Status read_table() {
    FOVEA_TRY(t, arguments_.take(step_.page_table,
                                 {"page_table", kIndex, {{"B", seqs_}, {"pages"}}, Packing::strided}));
    if (const int64_t stride = t.step(0); is_dense(t) && stride >= t.size(1)) {
      if (stride > t.size(1))  // the gap between rows holds no page ids
        limits_.max_kv_len =
            static_cast<int>(std::min<int64_t>(limits_.max_kv_len, t.size(1) * spec_.page_size));
      // The size includes the gap after the last row, which is not read.
      meta_.page_table = {t.as<int32_t>(), static_cast<size_t>(t.count() == 0 ? 0 : seqs_ * stride)};
      meta_.page_table_stride = stride;
      return {};
    }
    // Columns past the longest sequence's pages are never read, nor are entries past a sequence's own pages,
    // which may have any value.
    const int64_t columns = std::min(t.size(1), pages_of(limits_.max_kv_len, spec_.page_size));
    FOVEA_TRY(table, buffers_.narrow(IndexBuffers::page_table,
                                     {"page_table", t.data, t.element == Element::i64, nullptr, seqs_,
                                      columns, t.step(0), t.step(1), false}));
    meta_.page_table = {table, static_cast<size_t>(seqs_ * columns)};
    meta_.page_table_stride = columns;
    return {};
  }

  /// Sequence b's keys are the rows from kv_indptr[b] on. For CPU backends, builds index lists of the rows.
  Status read_ragged() {
    if (spec_.page_size != 1)
      return invalid(
          "kv_indices is null, so that keys are rows of a ragged tensor; that needs page_size 1 in the "
          "spec, which has " +
          str(spec_.page_size));
    if (!arguments_.on_cpu()) return {};
    std::vector<int32_t>& rows = buffers_.host(IndexBuffers::kv_indices);
    std::vector<int32_t> starts;  // separate, because kv_indptr is still read here
    int64_t total = 0;
    for (size_t b = 0; b < static_cast<size_t>(seqs_); ++b) {
      const int64_t first = meta_.kv_indptr[b], keys = meta_.kv_lens[b], last = meta_.kv_indptr[b + 1];
      if (first < 0 || last < first)
        return invalid("kv_indptr[" + str(static_cast<int64_t>(b)) + "] is " + str(first) + " and the next " +
                       str(last) + "; they must be 0 or more and not decrease");
      if (keys < 0 || keys > last - first || keys > limits_.max_kv_len)
        return invalid("kv_lens[" + str(static_cast<int64_t>(b)) + "] is " + str(keys) +
                       "; it must be 0 to max_kv_len, " + str(limits_.max_kv_len) + ", and kv_indptr has " +
                       str(last - first) + " rows for it");
      total += keys;
    }
    if (total > std::min<int64_t>(limits_.max_kv_tokens, INT32_MAX))
      return invalid("kv_lens has " + str(total) + " keys; max_kv_tokens is " + str(limits_.max_kv_tokens));
    rows.clear();
    starts.reserve(static_cast<size_t>(seqs_) + 1);
    for (size_t b = 0; b < static_cast<size_t>(seqs_); ++b) {
      starts.push_back(static_cast<int32_t>(rows.size()));
      for (int32_t i = 0; i < meta_.kv_lens[b]; ++i)
        rows.push_back(meta_.kv_indptr[b] + i);
    }
    starts.push_back(static_cast<int32_t>(rows.size()));
    std::vector<int32_t>& indptr = buffers_.host(IndexBuffers::kv_indptr);
    indptr = std::move(starts);
    meta_.kv_indptr = indptr;
    meta_.kv_indices = rows;
    return {};
  }

  /// Whether an array is present; it must be given exactly if the spec requires it.
  Result<bool> wanted(bool in_spec, const void* given, const char* name, const char* field) const {
    if (in_spec == (given != nullptr)) return in_spec;
    return invalid(std::string(name) +
                   (in_spec ? " is null; the spec has " : " is given; the spec does not have ") + field);
  }

  Status read_spans() {
    FOVEA_TRY(needed, wanted(spec_.mask.spans, step_.spans, "spans", "spans"));
    FOVEA_TRY(again, wanted(spec_.mask.spans, step_.span_offsets, "span_offsets", "spans"));
    if (!needed || !again) return {};
    FOVEA_TRY(t, arguments_.take(step_.spans, {"spans", {Element::i32}, {{"n"}, {"", 2}}}));
    meta_.spans = {t.as<const Span>(), static_cast<size_t>(t.size(0))};
    FOVEA_TRY(of, offsets(step_.span_offsets, "span_offsets", IndexBuffers::span_offsets));
    meta_.span_offsets = of;
    return {};
  }

  Status read_packed() {
    FOVEA_TRY(needed, wanted(spec_.mask.packed, step_.packed_mask, "packed_mask", "packed_mask"));
    FOVEA_TRY(again, wanted(spec_.mask.packed, step_.packed_offsets, "packed_offsets", "packed_mask"));
    if (!needed || !again) return {};
    FOVEA_TRY(t, arguments_.take(step_.packed_mask, {"packed_mask", {Element::u8}, {{"bytes"}}}));
    meta_.packed_mask = {t.as<const uint8_t>(), static_cast<size_t>(t.size(0))};
    FOVEA_TRY(of, arguments_.take(step_.packed_offsets,
                                  {"packed_offsets", {Element::i64}, {{"B + 1", seqs_ + 1}}}));
    meta_.packed_offsets = {of.as<const int64_t>(), static_cast<size_t>(of.size(0))};
    return {};
  }

  Status read_tree() {
    FOVEA_TRY(needed, wanted(spec_.mask.tree, step_.tree_bias, "tree_bias", "tree"));
    if (!needed) return {};
    FOVEA_TRY(t, arguments_.take(step_.tree_bias, {"tree_bias", {Element::f32}, {{"n"}, {"n"}}}));
    if (t.size(0) != t.size(1) || t.size(0) < 1 || t.size(0) > INT16_MAX)
      return invalid("tree_bias has shape " + shape_text(t.shape.data(), 2) +
                     "; it must be [n, n] with n from 1 to " + str(INT16_MAX));
    meta_.tree_bias = {t.as<const float>(), static_cast<size_t>(t.count())};
    meta_.tree_size = static_cast<int>(t.size(0));
    return {};
  }

  Status read_settled() {
    if (step_.past_kv_ready != 0 && step_.past_kv_ready != 1)
      return invalid("past_kv_ready is " + str(step_.past_kv_ready) + "; it must be 0 or 1");
    meta_.past_kv_ready = step_.past_kv_ready == 1;
    if (step_.num_pages < 0 || step_.num_pages > INT32_MAX)
      return invalid("num_pages is " + str(step_.num_pages) +
                     "; it must be 0, which is not given, to 2^31 - 1");
    meta_.num_pages = step_.num_pages;
    return {};
  }

  const fovea_step& step_;
  const AttentionSpec& spec_;
  AttentionLimits& limits_;
  const Arguments& arguments_;
  IndexBuffers& buffers_;
  Stream& stream_;
  BatchMeta meta_;
  int64_t seqs_ = 0;
};

/// Calls f(b, i, page) for all pages that sequences read.
template <class F>
void for_pages(const BatchMeta& meta, int page_size, const F& f) {
  for (int b = 0; b < meta.num_seqs(); ++b) {
    const int64_t pages = pages_of(meta.kv_lens[static_cast<size_t>(b)], page_size);
    if (pages == 0) continue;
    const int32_t* ids = meta.pages(b);
    for (int64_t i = 0; i < pages; ++i)
      f(b, i, ids[i]);
  }
}

}  // namespace

IndexBuffers::IndexBuffers(fovea_device device, const AttentionLimits& limits, int page_size)
    : device_(device) {
  const int64_t seqs = limits.max_seqs, pages = pages_of(limits.max_kv_len, page_size);
  capacity_[q_offsets] = capacity_[kv_indptr] = capacity_[span_offsets] = seqs + 1;
  capacity_[kv_lens] = seqs;
  capacity_[page_table] = seqs * pages;
  // Full pages for all keys, plus one partial page for each sequence.
  capacity_[kv_indices] = std::min(seqs * pages, limits.max_kv_tokens / page_size + seqs);
}

Result<const int32_t*> IndexBuffers::narrow(Which which, Narrowing array) {
  if (device_.type == FOVEA_CUDA) {
    constexpr int64_t kAlign = 64;  // in int32: arrays are 256-byte aligned
    int64_t begin = kAlign, total = kAlign;
    for (size_t i = 0; i < capacity_.size(); ++i) {
      const int64_t size = (capacity_[i] + kAlign - 1) / kAlign * kAlign;
      if (i < which) begin += size;
      total += size;
    }
    if (block_ == nullptr) {
      FOVEA_TRY(block, allocate(device_, static_cast<size_t>(total) * sizeof(int32_t)));
      block_ = std::move(block);
    }
    array.to = reinterpret_cast<int32_t*>(block_.get()) + begin;
    queued_.push_back(array);
    return array.to;
  }
  std::vector<int32_t>& to = host_[which];
  to.resize(static_cast<size_t>(array.rows * array.columns));
  for (int64_t r = 0; r < array.rows; ++r)
    for (int64_t c = 0; c < array.columns; ++c) {
      const int64_t at = r * array.from_stride + c * array.from_column_stride;
      const int64_t value = array.wide ? static_cast<const int64_t*>(array.from)[at]
                                       : int64_t{static_cast<const int32_t*>(array.from)[at]};
      const int64_t near = std::clamp<int64_t>(value, INT32_MIN, INT32_MAX);
      if (near != value && array.checked)
        return invalid(std::string(array.name) + "[" + str(c) + "] is " + str(value) +
                       "; it must fit 32 bits");
      to[static_cast<size_t>(r * array.columns + c)] = static_cast<int32_t>(near);
    }
  return to.data();
}

Status IndexBuffers::queue(Stream& stream) {
  if (queued_.empty()) return {};
  return narrow_cuda(queued_, reinterpret_cast<uint32_t*>(block_.get()), stream);
}

Status IndexBuffers::check(Stream& stream) const {
  if (queued_.empty()) return {};
  return check_narrowed_cuda(queued_, reinterpret_cast<const uint32_t*>(block_.get()), stream);
}

Result<BatchMeta> read_step(const fovea_step* given, const AttentionSpec& spec, AttentionLimits& limits,
                            const Arguments& arguments, IndexBuffers& buffers, Stream& stream) {
  FOVEA_TRY(step, read_struct(given, fovea_step{}, kStepSize1, "fovea_step"));
  return Reader(step, spec, limits, arguments, buffers, stream).read();
}

PageRange page_range(const BatchMeta& meta, int page_size) {
  PageRange range;
  for_pages(meta, page_size, [&](int, int64_t, int64_t page) {
    range.least = std::min(range.least, page);
    range.most = std::max(range.most, page);
  });
  return range;
}

Error page_error(const BatchMeta& meta, int page_size, int64_t num_pages, bool ragged) {
  Error error = invalid("the step reads a page that the cache does not have");
  bool found = false;
  for_pages(meta, page_size, [&](int b, int64_t i, int64_t page) {
    if (found || (page >= 0 && page < num_pages)) return;
    found = true;
    const std::string where = ragged ? "row of key " + str(i) + " of sequence " + str(b)
                              : meta.kv_indptr.empty()
                                  ? "page_table[" + str(b) + ", " + str(i) + "]"
                                  : "kv_indices[" + str(meta.kv_indptr[static_cast<size_t>(b)] + i) + "]";
    error = invalid(where + " is " + str(page) + "; k has " + str(num_pages) + (ragged ? " rows" : " pages"));
  });
  return error;
}

}  // namespace fovea::c_api
