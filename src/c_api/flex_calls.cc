// fovea_flex_attention.
#include <climits>
#include <cmath>
#include <deque>
#include <numeric>
#include <string>
#include <vector>

#include "c_api/device.h"
#include "c_api/errors.h"
#include "c_api/structs.h"
#include "fovea/flex_attention.h"

namespace fovea::c_api {
namespace {

static_assert(sizeof(fovea_flex_args) == kFlexSize1);

/// Converts the arguments of one call.
class FlexCall {
 public:
  FlexCall(const fovea_flex_args& a, const Arguments& arguments) : a_(a), arguments_(arguments) {}

  Status read() {
    FOVEA_RETURN_IF_ERROR(read_buffers());
    FOVEA_RETURN_IF_ERROR(a_.q_offsets == nullptr ? read_padded() : read_ragged());
    spec.mask.causal = false;
    spec.scale = a_.scale != 0.0f ? a_.scale : 1.0f / std::sqrt(static_cast<float>(spec.head_dim));
    return {};
  }

  std::vector<FlexBuffer> buffers;
  AttentionSpec spec;
  BatchMeta meta;
  AttentionArgs args;

 private:
  /// Index arrays as int32: where they are, or copied.
  Result<std::span<const int32_t>> indices(const Arguments& where, const fovea_tensor* given,
                                           const Wanted& wanted) {
    FOVEA_TRY(t, where.take(given, wanted));
    return narrow(t, wanted.name);
  }
  Result<std::span<const int32_t>> narrow(const Tensor& t, std::string_view name) {
    const auto count = static_cast<size_t>(t.count());
    if (t.element == Element::i32) return std::span<const int32_t>(t.as<const int32_t>(), count);
    std::vector<int32_t>& copy = copies_.emplace_back(count);
    for (size_t i = 0; i < count; ++i) {
      const int64_t x = t.as<const int64_t>()[i];
      if (x < INT32_MIN || x > INT32_MAX)
        return invalid(std::string(name) + "[" + std::to_string(i) + "] is " + std::to_string(x) +
                       "; it must fit 32 bits");
      copy[i] = static_cast<int32_t>(x);
    }
    return std::span<const int32_t>(copy);
  }

  Status read_buffers() {
    if (a_.num_buffers < 0 || a_.num_buffers > 256)
      return invalid("num_buffers is " + std::to_string(a_.num_buffers) + "; it must be 0 to 256");
    if (a_.num_buffers > 0 && a_.buffers == nullptr)
      return invalid("buffers is null; num_buffers says otherwise");
    for (int i = 0; i < a_.num_buffers; ++i) {
      const fovea_flex_buffer& given = a_.buffers[i];
      if (given.name == nullptr) return invalid("buffers[" + std::to_string(i) + "].name is null");
      const std::string name = "buffer '" + std::string(given.name) + "'";
      const bool wide = given.tensor != nullptr && element_of(given.tensor->dtype) == Element::i64;
      const auto elements = {Element::i32, Element::f32, Element::u8, Element::i64};
      const auto on_device = {Element::i32, Element::f32, Element::u8};
      FOVEA_TRY(t, arguments_.take_any(given.tensor, name, arguments_.on_cpu() ? elements : on_device, 1, 2,
                                       "[n] or [n, m]", wide ? Packing::contiguous : Packing::last));
      FlexBuffer buffer;
      buffer.name = given.name;
      buffer.dims = t.ndim;
      for (int d = 0; d < t.ndim; ++d)
        if (t.size(d) < 1 || t.size(d) > INT32_MAX)
          return invalid(name + " has shape " + shape_text(t.shape.data(), t.ndim) +
                         "; every dimension must be 1 to 2^31 - 1");
      buffer.rows = t.ndim == 2 ? static_cast<int32_t>(t.size(0)) : 1;
      buffer.columns = static_cast<int32_t>(t.size(t.ndim - 1));
      buffer.row_stride = t.ndim == 2 ? t.step(0) : 0;
      buffer.data = t.data;
      buffer.element = t.element == Element::f32  ? FlexElement::real
                       : t.element == Element::u8 ? FlexElement::boolean
                                                  : FlexElement::integer;
      if (wide) {
        FOVEA_TRY(copy, narrow(t, name));
        buffer.data = copy.data();
      }
      buffers.push_back(buffer);
    }
    return {};
  }

  Status set_heads(Element element, int64_t heads, int64_t kv_heads, int64_t d, int64_t dv) {
    for (const int64_t size : {heads, kv_heads, d, dv})
      if (size < 1 || size > INT32_MAX)
        return invalid("q, k and v have " + std::to_string(heads) + " and " + std::to_string(kv_heads) +
                       " heads of sizes " + std::to_string(d) + " and " + std::to_string(dv) +
                       "; all must be 1 or more and below 2^31");
    spec.dtype = dtype_of(element);
    spec.num_heads = static_cast<int>(heads);
    spec.num_kv_heads = static_cast<int>(kv_heads);
    spec.head_dim = static_cast<int>(d);
    spec.v_head_dim = static_cast<int>(dv);
    args.kv.dtype = resolve(KvCacheDType::auto_, spec.dtype);
    return {};
  }

  /// K and V [pages or sequences, slots, Hkv, D], and what follows from them.
  Status read_pages(const Tensor& q, int64_t heads, int64_t d, Dim first) {
    FOVEA_TRY(k,
              arguments_.take(a_.k, {"k", {q.element}, {first, {"Sk"}, {"Hkv"}, {"D", d}}, Packing::last}));
    FOVEA_TRY(v,
              arguments_.take(a_.v, {"v",
                                     {q.element},
                                     {{first.name, k.size(0)}, {"Sk", k.size(1)}, {"Hkv", k.size(2)}, {"Dv"}},
                                     Packing::last}));
    FOVEA_RETURN_IF_ERROR(set_heads(q.element, heads, k.size(2), d, v.size(3)));
    if (k.size(1) > INT32_MAX || k.size(0) > INT32_MAX) return invalid("k has 2^31 or more keys");
    KvView& kv = args.kv;
    kv.k = k.data;
    kv.v = v.data;
    kv.num_pages = k.size(0);
    kv.page_size = spec.page_size = static_cast<int>(std::max<int64_t>(k.size(1), 1));
    kv.k_page_stride = k.step(0);
    kv.k_slot_stride = k.step(1);
    kv.k_head_stride = k.step(2);
    kv.v_page_stride = v.step(0);
    kv.v_slot_stride = v.step(1);
    kv.v_head_stride = v.step(2);
    slots_ = k.size(1);
    return {};
  }

  /// [B, Sq, Hq, D]: every sequence is a page.
  Status read_padded() {
    for (const auto& [tensor, name] :
         {std::pair(a_.kv_offsets, "kv_offsets"), std::pair(a_.kv_lens, "kv_lens"),
          std::pair(a_.page_table, "page_table")})
      if (tensor != nullptr) return invalid(std::string(name) + " is given without q_offsets");
    FOVEA_TRY(q, arguments_.take(a_.q, {"q", kFloat, {{"B"}, {"Sq"}, {"Hq"}, {"D"}}, Packing::last}));
    const Dim batch{"B", q.size(0)}, rows{"Sq", q.size(1)}, heads{"Hq", q.size(2)};
    FOVEA_RETURN_IF_ERROR(read_pages(q, q.size(2), q.size(3), batch));
    FOVEA_TRY(
        out, arguments_.take(
                 a_.out, {"out", {q.element}, {batch, rows, heads, {"Dv", spec.v_head_dim}}, Packing::last}));
    FOVEA_RETURN_IF_ERROR(check_written(out, "out"));
    if (q.size(0) * q.size(1) > INT32_MAX / 2 || q.size(0) * slots_ > INT32_MAX / 2)
      return invalid("q has shape " + shape_text(q.shape.data(), 4) +
                     "; below 2^30 rows and keys are possible");
    if (a_.lse != nullptr) {
      FOVEA_TRY(lse, arguments_.take(a_.lse, {"lse", {Element::f32}, {batch, rows, heads}}));
      args.lse = lse.as<float>();
    }
    args.q = q.data;
    args.q_block_rows = static_cast<int>(q.size(1));
    args.q_block_stride = q.step(0);
    args.q_row_stride = q.step(1);
    args.q_head_stride = q.step(2);
    args.out = out.data;
    args.out_block_rows = args.q_block_rows;
    args.out_block_stride = out.step(0);
    args.out_row_stride = out.step(1);
    args.out_head_stride = out.step(2);
    auto& offsets = copies_.emplace_back();
    for (int64_t b = 0; b <= q.size(0); ++b)
      offsets.push_back(static_cast<int32_t>(b * q.size(1)));
    auto& pages = copies_.emplace_back(static_cast<size_t>(q.size(0)));
    std::iota(pages.begin(), pages.end(), 0);
    meta.q_offsets = offsets;
    meta.kv_lens = copies_.emplace_back(static_cast<size_t>(q.size(0)), static_cast<int32_t>(slots_));
    meta.page_table = pages;
    meta.page_table_stride = 1;
    return {};
  }

  /// [Tq, Hq, D] with offsets.
  Status read_ragged() {
    const Arguments host({FOVEA_CPU, 0});
    FOVEA_TRY(q, arguments_.take(a_.q, {"q", kFloat, {{"Tq"}, {"Hq"}, {"D"}}, Packing::last}));
    FOVEA_TRY(offsets, indices(host, a_.q_offsets, {"q_offsets", kIndex, {{"B + 1"}}}));
    if (offsets.empty() || offsets.back() != q.size(0))
      return invalid("q_offsets must end with the " + std::to_string(q.size(0)) + " rows of q");
    const auto seqs = static_cast<int64_t>(offsets.size()) - 1;
    meta.q_offsets = offsets;
    if ((a_.kv_offsets != nullptr) == (a_.kv_lens != nullptr))
      return invalid("give kv_offsets for keys in one tensor, or kv_lens and page_table for pages");
    if (a_.kv_lens != nullptr) {
      FOVEA_RETURN_IF_ERROR(read_pages(q, q.size(1), q.size(2), {"pages"}));
      FOVEA_TRY(lens, indices(host, a_.kv_lens, {"kv_lens", kIndex, {{"B", seqs}}}));
      meta.kv_lens = lens;
      FOVEA_TRY(table, host.take(a_.page_table, {"page_table", kIndex, {{"B", seqs}, {"n"}}}));
      FOVEA_TRY(pages, narrow(table, "page_table"));
      meta.page_table = pages;
      meta.page_table_stride = table.size(1);
      meta.num_pages = args.kv.num_pages;
    } else {
      if (a_.page_table != nullptr) return invalid("page_table is given with kv_offsets; give one of them");
      FOVEA_RETURN_IF_ERROR(read_rows(q, host, seqs));
    }
    const Dim rows{"Tq", q.size(0)}, heads{"Hq", q.size(1)};
    FOVEA_TRY(out, arguments_.take(
                       a_.out, {"out", {q.element}, {rows, heads, {"Dv", spec.v_head_dim}}, Packing::last}));
    FOVEA_RETURN_IF_ERROR(check_written(out, "out"));
    if (a_.lse != nullptr) {
      FOVEA_TRY(lse, arguments_.take(a_.lse, {"lse", {Element::f32}, {rows, heads}}));
      args.lse = lse.as<float>();
    }
    args.q = q.data;
    args.q_row_stride = q.step(0);
    args.q_head_stride = q.step(1);
    args.out = out.data;
    args.out_row_stride = out.step(0);
    args.out_head_stride = out.step(1);
    return {};
  }

  /// K and V [T, Hkv, D]: pages of one slot.
  Status read_rows(const Tensor& q, const Arguments& host, int64_t seqs) {
    FOVEA_TRY(k,
              arguments_.take(a_.k, {"k", {q.element}, {{"T"}, {"Hkv"}, {"D", q.size(2)}}, Packing::last}));
    FOVEA_TRY(v,
              arguments_.take(
                  a_.v, {"v", {q.element}, {{"T", k.size(0)}, {"Hkv", k.size(1)}, {"Dv"}}, Packing::last}));
    FOVEA_RETURN_IF_ERROR(set_heads(q.element, q.size(1), k.size(1), q.size(2), v.size(2)));
    FOVEA_TRY(offsets, indices(host, a_.kv_offsets, {"kv_offsets", kIndex, {{"B + 1", seqs + 1}}}));
    if (k.size(0) > INT32_MAX || offsets.front() != 0 || offsets.back() != k.size(0))
      return invalid("kv_offsets must begin with 0 and end with the " + std::to_string(k.size(0)) +
                     " rows of k");
    auto& lens = copies_.emplace_back();
    for (size_t b = 0; b + 1 < offsets.size(); ++b) {
      if (offsets[b + 1] < offsets[b])
        return invalid("kv_offsets decreases after entry " + std::to_string(b));
      lens.push_back(offsets[b + 1] - offsets[b]);
    }
    auto& rows = copies_.emplace_back(static_cast<size_t>(k.size(0)));
    std::iota(rows.begin(), rows.end(), 0);
    meta.kv_lens = lens;
    meta.kv_indptr = offsets;
    meta.kv_indices = rows;
    KvView& kv = args.kv;
    kv.k = k.data;
    kv.v = v.data;
    kv.num_pages = k.size(0);
    kv.page_size = spec.page_size = 1;
    kv.k_page_stride = k.step(0);
    kv.k_head_stride = k.step(1);
    kv.v_page_stride = v.step(0);
    kv.v_head_stride = v.step(1);
    return {};
  }

  const fovea_flex_args& a_;
  const Arguments& arguments_;
  std::deque<std::vector<int32_t>> copies_;
  int64_t slots_ = 0;
};

Status flex(const fovea_flex_args* given, void* handle) {
  FOVEA_TRY(a, read_struct(given, fovea_flex_args{}, kFlexSize1, "fovea_flex_args"));
  FOVEA_TRY(arguments, arguments_of(a.q, "q"));
  FlexCall call(a, arguments);
  FOVEA_RETURN_IF_ERROR(call.read());
  const std::string_view mask = a.mask != nullptr ? a.mask : "", score = a.score != nullptr ? a.score : "";
  FOVEA_TRY(program, FlexProgram::parse(mask, score, call.buffers));
  return on_stream(arguments.device(), handle, [&](Stream& stream) -> Status {
    FlexBlocks blocks;
    FOVEA_RETURN_IF_ERROR(
        flex_attention(program, call.buffers, call.spec, call.meta, call.args, stream, &blocks));
    if (a.blocks != nullptr)
      a.blocks[0] = blocks.empty, a.blocks[1] = blocks.partial, a.blocks[2] = blocks.full;
    return {};
  });
}

}  // namespace
}  // namespace fovea::c_api

fovea_status fovea_flex_attention(const fovea_flex_args* args, void* stream) {
  return fovea::c_api::guard("fovea_flex_attention", [&] { return fovea::c_api::flex(args, stream); });
}
