// fovea_append, fovea_copy_pages, fovea_gather.
#include <climits>
#include <cmath>
#include <cstring>
#include <string>

#include "c_api/cache_view.h"
#include "c_api/device.h"
#include "c_api/errors.h"
#include "c_api/structs.h"

namespace fovea::c_api {
namespace {

std::string str(int64_t v) {
  return std::to_string(v);
}

/// Converts fovea_append's arguments to those of a kernel.
class Append {
 public:
  Append(const fovea_append_args& a, const Arguments& arguments) : a_(a), arguments_(arguments) {}

  Result<AppendParams> read() {
    if ((a_.k == nullptr) != (a_.v == nullptr))
      return invalid(std::string(a_.k == nullptr ? "k" : "v") +
                     " is null and the other of k and v is given; give both, or none");
    FOVEA_RETURN_IF_ERROR(read_queries());
    FOVEA_RETURN_IF_ERROR(read_keys());
    FOVEA_RETURN_IF_ERROR(read_places());
    FOVEA_RETURN_IF_ERROR(read_norms());
    FOVEA_RETURN_IF_ERROR(read_rotation());
    FOVEA_RETURN_IF_ERROR(check_append(p_));
    return p_;
  }

 private:
  /// The first activation tensor determines the dtype and the number of tokens.
  Status read_first(const Tensor& t, std::string_view name) {
    if (t.size(0) > INT32_MAX || t.size(1) > INT32_MAX || t.size(2) > kMaxRowElements || t.size(1) < 1 ||
        t.size(2) < 1)
      return invalid(std::string(name) + " has shape " + shape_text(t.shape.data(), 3) +
                     "; heads must be 1 or more, the head size 1 to " + str(kMaxRowElements));
    p_.tokens = static_cast<int>(t.size(0));
    p_.dtype = dtype_of(t.element);
    p_.head_dim = static_cast<int>(t.size(2));
    return {};
  }

  Status read_queries() {
    if (a_.q == nullptr) {
      if (a_.q_out != nullptr) return invalid("q_out is given without q; give both, or none");
      return {};
    }
    FOVEA_TRY(q, arguments_.take(a_.q, {"q", kFloat, {{"T"}, {"Hq"}, {"D"}}, Packing::rows}));
    FOVEA_RETURN_IF_ERROR(read_first(q, "q"));
    p_.num_heads = static_cast<int>(q.size(1));
    FOVEA_TRY(out, arguments_.take(a_.q_out, {"q_out",
                                              {q.element},
                                              {{"T", q.size(0)}, {"Hq", q.size(1)}, {"D", q.size(2)}},
                                              Packing::rows}));
    FOVEA_RETURN_IF_ERROR(check_written(out, "q_out"));
    p_.q = q.data;
    p_.q_row_stride = q.step(0);
    p_.q_out = out.data;
    p_.q_out_row_stride = out.step(0);
    return {};
  }

  Status read_keys() {
    if (a_.k == nullptr) {
      for (const auto& [tensor, name] :
           {std::pair(a_.k_cache, "k_cache"), std::pair(a_.v_cache, "v_cache"),
            std::pair(a_.k_norm, "k_norm"), std::pair(a_.slots, "slots"), std::pair(a_.k_scales, "k_scales"),
            std::pair(a_.v_scales, "v_scales")})
        if (tensor != nullptr) return invalid(std::string(name) + " is given without k and v");
      return {};
    }
    const Dim any_tokens{"T", a_.q == nullptr ? Dim::kAny : p_.tokens},
        any_dim{"D", a_.q == nullptr ? Dim::kAny : p_.head_dim};
    FOVEA_TRY(k, arguments_.take(a_.k, {"k", kFloat, {any_tokens, {"Hkv"}, any_dim}, Packing::rows}));
    if (a_.q != nullptr && dtype_of(k.element) != p_.dtype)
      return invalid("k has dtype " + std::string(to_string(k.element)) + " and q " +
                     std::string(fovea::to_string(p_.dtype)) + "; they must have the same");
    FOVEA_RETURN_IF_ERROR(read_first(k, "k"));
    FOVEA_TRY(v,
              arguments_.take(
                  a_.v, {"v", {k.element}, {{"T", k.size(0)}, {"Hkv", k.size(1)}, {"Dv"}}, Packing::rows}));
    if (v.size(2) < 1 || v.size(2) > kMaxRowElements)
      return invalid("v has head size " + str(v.size(2)) + "; it must be 1 to " + str(kMaxRowElements));
    p_.num_kv_heads = static_cast<int>(k.size(1));
    p_.v_head_dim = static_cast<int>(v.size(2));
    p_.k = k.data;
    p_.k_row_stride = k.step(0);
    p_.v = v.data;
    p_.v_row_stride = v.step(0);
    CacheShape shape;
    FOVEA_TRY(dtype, read_kv_dtype(a_.kv_dtype));
    if (dtype == KvCacheDType::fp8_ds_mla || (dtype != KvCacheDType::auto_ && fovea::size_of(dtype) == 0))
      return unsupported("kv_dtype " + std::string(fovea::to_string(dtype)) + " can't be stored");
    shape.dtype = dtype;
    shape.num_kv_heads = k.size(1);
    shape.head_dim = k.size(2);
    shape.v_head_dim = v.size(2);
    shape.written = true;
    FOVEA_TRY(cache, read_cache(arguments_,
                                {"k_cache", "v_cache", a_.k_cache, a_.v_cache, a_.k_scale, a_.v_scale,
                                 a_.k_scales, a_.v_scales},
                                shape));
    p_.kv = cache.view;
    p_.num_slots = cache.num_slots();
    return {};
  }

  Status read_places() {
    if (a_.slots != nullptr) {
      for (const auto& [tensor, name] :
           {std::pair(a_.q_offsets, "q_offsets"), std::pair(a_.kv_lens, "kv_lens"),
            std::pair(a_.page_table, "page_table")})
        if (tensor != nullptr) return invalid(std::string(name) + " is given with slots; give one of them");
      FOVEA_TRY(slots, arguments_.take(a_.slots, {"slots", kIndex, {{"T", p_.tokens}}}));
      p_.slots = slots.indices();
      return {};
    }
    if (a_.k == nullptr && a_.q_offsets == nullptr && a_.kv_lens == nullptr && a_.page_table == nullptr)
      return {};
    FOVEA_TRY(lens, arguments_.take(a_.kv_lens, {"kv_lens", kIndex, {{"B"}}}));
    const int64_t seqs = lens.size(0);
    if (seqs > INT32_MAX - 1)
      return invalid("kv_lens has " + str(seqs) + " sequences; below 2^31 are possible");
    FOVEA_TRY(offsets, arguments_.take(a_.q_offsets, {"q_offsets", kIndex, {{"B + 1", seqs + 1}}}));
    p_.sequences.q_offsets = offsets.indices();
    p_.sequences.kv_lens = lens.indices();
    p_.sequences.seqs = static_cast<int>(seqs);
    if (a_.k == nullptr && a_.page_table == nullptr) return {};
    FOVEA_TRY(table, arguments_.take(a_.page_table,
                                     {"page_table", kIndex, {{"B", seqs}, {"pages"}}, Packing::rows}));
    if (table.size(1) > INT32_MAX)
      return invalid("page_table has " + str(table.size(1)) + " columns; below 2^31 are possible");
    p_.sequences.page_table = table.indices();
    p_.sequences.columns = table.size(1);
    p_.sequences.page_table_stride = table.step(0);
    // An empty table may be null; the sequence lengths then need no entries.
    static constexpr int32_t kNoPage = 0;
    if (table.data == nullptr) p_.sequences.page_table = IndexArray(&kNoPage);
    return {};
  }

  Status read_norms() {
    for (const auto& [tensor, name, norm] :
         {std::tuple(a_.q_norm, "q_norm", &p_.q_norm), std::tuple(a_.k_norm, "k_norm", &p_.k_norm)}) {
      if (tensor == nullptr) continue;
      FOVEA_TRY(t, arguments_.take(tensor, {name, {Element::f32}, {{"D", p_.head_dim}}}));
      if (!(a_.norm_eps >= 0.0f) || !std::isfinite(a_.norm_eps))
        return invalid("norm_eps is " + std::to_string(a_.norm_eps) + "; it must be 0 or a positive number");
      *norm = {t.as<float>(), a_.norm_eps};
    }
    return {};
  }

  Status read_rotation() {
    if (a_.cos == nullptr || a_.sin == nullptr) {
      if (a_.cos != nullptr || a_.sin != nullptr || a_.positions != nullptr)
        return invalid(std::string(a_.cos == nullptr ? "cos" : "sin") +
                       " is null with others of cos, sin and positions given; a rotation needs cos and sin");
      return {};
    }
    FOVEA_TRY(cos, arguments_.take(a_.cos, {"cos", {Element::f32}, {{"positions"}, {"rotary_dim / 2"}}}));
    if (cos.size(1) < 1 || 2 * cos.size(1) > p_.head_dim)
      return invalid("cos has shape " + shape_text(cos.shape.data(), 2) + "; its rows must have 1 to " +
                     str(p_.head_dim / 2) + " elements, half of what is rotated of a head");
    FOVEA_TRY(sin, arguments_.take(a_.sin, {"sin",
                                            {Element::f32},
                                            {{"positions", cos.size(0)}, {"rotary_dim / 2", cos.size(1)}}}));
    p_.rope.dim = static_cast<int>(2 * cos.size(1));
    p_.rope.interleaved = a_.interleaved != 0;
    // An empty table may be null; no position is in it.
    static constexpr float kNone = 0.0f;
    p_.rope.cos = cos.data == nullptr ? &kNone : cos.as<float>();
    p_.rope.sin = sin.data == nullptr ? &kNone : sin.as<float>();
    p_.rope.rows = cos.size(0);
    if (a_.positions == nullptr) return {};
    FOVEA_TRY(positions, arguments_.take(a_.positions, {"positions", kIndex, {{"T", p_.tokens}}}));
    p_.rope.positions = positions.indices();
    return {};
  }

  const fovea_append_args& a_;
  const Arguments& arguments_;
  AppendParams p_;
};

Status append(const fovea_append_args* given, void* handle) {
  FOVEA_TRY(args, read_struct(given, fovea_append_args{}, kAppendSize1, "fovea_append_args"));
  FOVEA_TRY(arguments, args.q != nullptr ? arguments_of(args.q, "q") : arguments_of(args.k, "k"));
  FOVEA_TRY(params, Append(args, arguments).read());
  if (params.tokens == 0) return {};
  return on_stream(arguments.device(), handle, [&](Stream& stream) {
    return stream.on_cpu() ? append_rows(params, stream.pool()) : append_cuda(params, stream);
  });
}

/// Pages as bytes; `name` is one of two caches.
struct PageBytes {
  std::byte* data = nullptr;
  int64_t pages = 0, bytes = 0, stride = 0;  // bytes of a page, bytes between pages
};

constexpr std::initializer_list<Element> kCopied = {Element::f32,  Element::f16, Element::bf16, Element::e4m3,
                                                    Element::e5m2, Element::u8,  Element::i8};

/// The dimensions after the first must be dense in any order: HND is a transposed NHD.
Result<PageBytes> page_bytes(const Arguments& arguments, const fovea_tensor* tensor, const char* name) {
  FOVEA_TRY(t, arguments.take_any(tensor, name, kCopied, 2, kMaxDims, "[pages, ...]", Packing::strided));
  // From the innermost dimension: each stride is the product of the sizes of the dimensions inside it.
  int64_t dense = 1, all = 1;
  for (int i = 1; i < t.ndim; ++i)
    all *= t.size(i);
  for (bool more = all > 0; more;) {
    more = false;
    for (int i = 1; i < t.ndim && !more; ++i)
      if (t.size(i) > 1 && t.step(i) == dense) {
        dense *= t.size(i);
        more = true;
      }
  }
  if (t.count() > 0 && dense != all)
    return invalid(std::string(name) + " has strides " + shape_text(t.stride.data(), t.ndim) + " for shape " +
                   shape_text(t.shape.data(), t.ndim) + "; each page must be one dense block");
  const auto item = static_cast<int64_t>(size_of(t.element));
  const PageBytes bytes{t.data, t.size(0), t.count() == 0 ? 0 : all * item, t.step(0) * item};
  if (bytes.bytes > INT32_MAX || bytes.pages > INT32_MAX)
    return invalid(std::string(name) + " has " + str(bytes.pages) + " pages of " + str(bytes.bytes) +
                   " bytes; below 2^31 of each are possible");
  if (bytes.pages > 1 && bytes.stride < bytes.bytes)
    return invalid(std::string(name) + " has pages " + str(bytes.stride) + " bytes apart that have " +
                   str(bytes.bytes) + "; they must not overlap");
  return bytes;
}

Status copy_on_cpu(const PageBytes& k, const PageBytes& v, IndexArray from, IndexArray to, int64_t count) {
  for (const auto& [ids, name] : {std::pair(from, "from"), std::pair(to, "to")})
    for (int64_t i = 0; i < count; ++i)
      if (ids[i] < 0 || ids[i] >= k.pages)
        return invalid(std::string(name) + "[" + str(i) + "] is " + str(ids[i]) + "; the cache has " +
                       str(k.pages) + " pages");
  for (const PageBytes* cache : {&k, &v})
    for (int64_t i = 0; i < count; ++i)
      if (from[i] != to[i])
        std::memcpy(cache->data + to[i] * cache->stride, cache->data + from[i] * cache->stride,
                    static_cast<size_t>(cache->bytes));
  return {};
}

Status copy_pages(const fovea_tensor* k_cache, const fovea_tensor* v_cache, const fovea_tensor* from,
                  const fovea_tensor* to, void* handle) {
  FOVEA_TRY(arguments, arguments_of(k_cache, "k_cache"));
  FOVEA_TRY(k, page_bytes(arguments, k_cache, "k_cache"));
  FOVEA_TRY(v, page_bytes(arguments, v_cache, "v_cache"));
  if (k.pages != v.pages)
    return invalid("k_cache has " + str(k.pages) + " pages and v_cache " + str(v.pages) +
                   "; they must be equal");
  FOVEA_TRY(sources, arguments.take(from, {"from", kIndex, {{"n"}}}));
  FOVEA_TRY(targets, arguments.take(to, {"to", kIndex, {{"n", sources.size(0)}}}));
  if (sources.size(0) > INT32_MAX)
    return invalid("from has " + str(sources.size(0)) + " pages; below 2^31 are possible");
  if (sources.size(0) == 0 || k.bytes == 0 || v.bytes == 0) return {};
  return on_stream(arguments.device(), handle, [&](Stream& stream) -> Status {
    if (stream.on_cpu()) return copy_on_cpu(k, v, sources.indices(), targets.indices(), sources.size(0));
    CopyPages p;  // bytes as one head of one token
    p.kv.k = k.data;
    p.kv.v = v.data;
    p.kv.dtype = KvCacheDType::fp8_e4m3;
    p.kv.k_page_stride = k.stride;
    p.kv.v_page_stride = v.stride;
    p.num_kv_heads = 1;
    p.head_dim = static_cast<int>(k.bytes);
    p.v_head_dim = static_cast<int>(v.bytes);
    p.from = sources.indices();
    p.to = targets.indices();
    p.count = static_cast<int>(sources.size(0));
    p.num_pages = k.pages;
    return copy_pages_cuda(p, stream);
  });
}

Status gather(const fovea_tensor* k_cache, const fovea_tensor* v_cache, float k_scale, float v_scale,
              const fovea_tensor* slots, const fovea_tensor* k, const fovea_tensor* v, void* handle) {
  FOVEA_TRY(arguments, arguments_of(k_cache, "k_cache"));
  if (k_cache != nullptr && element_of(k_cache->dtype) == Element::i8)
    return unsupported(
        "k_cache has dtype int8; an int8_per_token_head cache can't be gathered: read it with its scales");
  FOVEA_TRY(cache, read_cache(arguments, {"k_cache", "v_cache", k_cache, v_cache, k_scale, v_scale}, {}));
  FOVEA_TRY(ids, arguments.take(slots, {"slots", kIndex, {{"T"}}}));
  const Dim rows{"T", ids.size(0)}, heads{"Hkv", cache.num_kv_heads};
  FOVEA_TRY(to_k, arguments.take(k, {"k", kFloat, {rows, heads, {"D", cache.head_dim}}}));
  FOVEA_TRY(to_v, arguments.take(v, {"v", {to_k.element}, {rows, heads, {"Dv", cache.v_head_dim}}}));
  if (ids.size(0) > INT32_MAX)
    return invalid("slots has " + str(ids.size(0)) + " rows; below 2^31 are possible");
  if (ids.size(0) == 0) return {};
  GatherRows p;
  p.kv = cache.view;
  p.num_kv_heads = cache.num_kv_heads;
  p.head_dim = cache.head_dim;
  p.v_head_dim = cache.v_head_dim;
  p.slots = ids.indices();
  p.num_slots = cache.num_slots();
  p.rows = static_cast<int>(ids.size(0));
  p.dtype = dtype_of(to_k.element);
  p.k = to_k.data;
  p.v = to_v.data;
  return on_stream(arguments.device(), handle, [&](Stream& stream) -> Status {
    if (!stream.on_cpu()) return gather_cuda(p, stream);
    for (int64_t i = 0; i < p.rows; ++i)
      if (p.slots[i] >= p.num_slots)
        return invalid("slots[" + str(i) + "] is " + str(p.slots[i]) + "; the cache has " + str(p.num_slots));
    gather_rows(p, stream.pool());
    return {};
  });
}

}  // namespace
}  // namespace fovea::c_api

fovea_status fovea_append(const fovea_append_args* args, void* stream) {
  return fovea::c_api::guard("fovea_append", [&] { return fovea::c_api::append(args, stream); });
}

fovea_status fovea_copy_pages(const fovea_tensor* k_cache, const fovea_tensor* v_cache,
                              const fovea_tensor* from, const fovea_tensor* to, void* stream) {
  return fovea::c_api::guard("fovea_copy_pages",
                             [&] { return fovea::c_api::copy_pages(k_cache, v_cache, from, to, stream); });
}

fovea_status fovea_gather(const fovea_tensor* k_cache, const fovea_tensor* v_cache, float k_scale,
                          float v_scale, const fovea_tensor* slots, const fovea_tensor* k,
                          const fovea_tensor* v, void* stream) {
  return fovea::c_api::guard("fovea_gather", [&] {
    return fovea::c_api::gather(k_cache, v_cache, k_scale, v_scale, slots, k, v, stream);
  });
}
