#include "c_api/cache_view.h"

#include <climits>
#include <cmath>
#include <string>
#include <utility>

#include "base/dtype_names.h"
#include "fovea/result.h"
#include "kernels/cache/ds_mla.h"

namespace fovea::c_api {
namespace {

constexpr std::initializer_list<Element> kAnyStored = {Element::f32,  Element::f16,  Element::bf16,
                                                       Element::e4m3, Element::e5m2, Element::i8};
constexpr std::initializer_list<Element> kF32 = {Element::f32};
constexpr std::initializer_list<Element> kF16 = {Element::f16};
constexpr std::initializer_list<Element> kBf16 = {Element::bf16};
constexpr std::initializer_list<Element> kE4m3 = {Element::e4m3, Element::u8};
constexpr std::initializer_list<Element> kE5m2 = {Element::e5m2, Element::u8};
constexpr std::initializer_list<Element> kI8 = {Element::i8};
constexpr std::initializer_list<Element> kBytes = {Element::u8, Element::i8, Element::e4m3};

std::initializer_list<Element> elements_of(KvCacheDType dtype) {
  switch (dtype) {
    case KvCacheDType::float32: return kF32;
    case KvCacheDType::float16: return kF16;
    case KvCacheDType::bfloat16: return kBf16;
    case KvCacheDType::fp8_e4m3: return kE4m3;
    case KvCacheDType::fp8_e5m2: return kE5m2;
    case KvCacheDType::int8_per_token_head: return kI8;
    case KvCacheDType::fp8_ds_mla: return kBytes;
    default: return kAnyStored;
  }
}

KvCacheDType dtype_stored_as(Element element) {
  switch (element) {
    case Element::f32: return KvCacheDType::float32;
    case Element::f16: return KvCacheDType::float16;
    case Element::bf16: return KvCacheDType::bfloat16;
    case Element::e4m3: return KvCacheDType::fp8_e4m3;
    case Element::e5m2: return KvCacheDType::fp8_e5m2;
    default: return KvCacheDType::int8_per_token_head;
  }
}

/// The common dimensions of K and V, and the head dimension of one of them.
struct Sizes {
  int64_t pages = 0, page_size = 1, heads = 0, dim = 0;
};

constexpr std::string_view kKnownPaged = "[pages, page size, Hkv, D]";
constexpr std::string_view kKnownRagged = "[pages, page size, Hkv, D] or [rows, Hkv, D]";
constexpr std::string_view kPackedK = "x-packed [pages, Hkv, D / x, page size, x]";
constexpr std::string_view kPackedV = "x-packed [pages, Hkv, Dv, page size]";
constexpr std::string_view kShuffledV = "shuffled [pages, Hkv, page size / x, Dv, x]";

Error wrong_size(std::string_view name, const Tensor& t, std::string_view what, int64_t has, int64_t needed) {
  return invalid(std::string(name) + " has shape " + shape_text(t.shape.data(), t.ndim) + " with " +
                 std::string(what) + " " + std::to_string(has) + "; it must be " + std::to_string(needed));
}

Status check_sizes(std::string_view name, const Tensor& t, const Sizes& sizes, const Sizes& wanted) {
  const auto differs = [](int64_t has, int64_t needed) { return needed != Dim::kAny && has != needed; };
  if (differs(sizes.page_size, wanted.page_size))
    return wrong_size(name, t, "page size", sizes.page_size, wanted.page_size);
  if (differs(sizes.heads, wanted.heads)) return wrong_size(name, t, "KV heads", sizes.heads, wanted.heads);
  if (differs(sizes.dim, wanted.dim)) return wrong_size(name, t, "head size", sizes.dim, wanted.dim);
  if (differs(sizes.pages, wanted.pages)) return wrong_size(name, t, "pages", sizes.pages, wanted.pages);
  if (sizes.pages > INT32_MAX || sizes.page_size < 1 || sizes.page_size > INT32_MAX || sizes.heads < 1 ||
      sizes.heads > INT32_MAX || sizes.dim < 1 || sizes.dim > INT32_MAX)
    return invalid(std::string(name) + " has shape " + shape_text(t.shape.data(), t.ndim) +
                   "; page size, heads and head size must be 1 or more, and all sizes below 2^31");
  return {};
}

/// [pages, page size, heads, dim], or with page size 1 [rows, heads, dim].
Sizes strided_sizes(const Tensor& t) {
  if (t.ndim == 3) return {t.size(0), 1, t.size(1), t.size(2)};
  return {t.size(0), t.size(1), t.size(2), t.size(3)};
}

Result<float> scale_of(float scale, const char* name) {
  if (scale == 0.0f) return 1.0f;
  if (!(scale > 0.0f) || !std::isfinite(scale))
    return invalid(std::string(name) + " is " + std::to_string(scale) +
                   "; it must be a positive number, or 0 for 1");
  return scale;
}

Status read_scales(const Arguments& arguments, const CacheTensors& from, const CacheShape& wanted,
                   Cache& cache) {
  KvView& view = cache.view;
  FOVEA_TRY(k_scale, scale_of(from.k_scale, "k_scale"));
  FOVEA_TRY(v_scale, scale_of(from.v_scale, "v_scale"));
  view.k_scale = k_scale;
  view.v_scale = v_scale;
  const bool needed = has_token_scales(view.dtype) || wanted.per_head_scales;
  if (!needed) {
    if (from.k_scales != nullptr || from.v_scales != nullptr)
      return invalid(std::string(from.k_scales != nullptr ? "k_scales" : "v_scales") +
                     " is given; a cache of " + std::string(to_string(view.dtype)) + " takes none" +
                     (is_fp8(view.dtype) ? " without per_head_scales" : ""));
    return {};
  }
  const bool ragged = view.page_size == 1 && view.k_slot_stride == 0;
  const auto is_vector = [](const fovea_tensor* tensor) { return tensor == nullptr || tensor->ndim == 1; };
  const bool of_heads = wanted.per_head_scales && is_vector(from.k_scales) && is_vector(from.v_scales);
  if (wanted.per_head_scales && !of_heads && !arguments.on_cpu())
    return invalid(
        std::string(is_vector(from.k_scales) ? "v_scales" : "k_scales") +
        " has more than one dimension; on a GPU an fp8 cache has one scale per KV head: give [Hkv]");
  const auto take = [&](const fovea_tensor* tensor, std::string_view name) {
    const Dim heads{"Hkv", cache.num_kv_heads};
    if (of_heads) return arguments.take(tensor, {name, {Element::f32}, {heads}, Packing::strided});
    const Dim pages{"pages", cache.num_pages};
    if (ragged) return arguments.take(tensor, {name, {Element::f32}, {pages, heads}, Packing::strided});
    return arguments.take(
        tensor, {name, {Element::f32}, {pages, {"page size", view.page_size}, heads}, Packing::strided});
  };
  FOVEA_TRY(k, take(from.k_scales, "k_scales"));
  FOVEA_TRY(v, take(from.v_scales, "v_scales"));
  for (int i = 0; i < k.ndim; ++i)
    if (k.step(i) != v.step(i))
      return invalid("k_scales has strides " + shape_text(k.stride.data(), k.ndim) + " and v_scales " +
                     shape_text(v.stride.data(), v.ndim) + "; they must be the same");
  if (wanted.written) {
    FOVEA_RETURN_IF_ERROR(check_written(k, "k_scales"));
    FOVEA_RETURN_IF_ERROR(check_written(v, "v_scales"));
  }
  view.k_scales = k.as<float>();
  view.v_scales = v.as<float>();
  view.scale_head_stride = k.step(k.ndim - 1);
  view.scale_page_stride = of_heads ? 0 : k.step(0);
  view.scale_slot_stride = of_heads || ragged ? 0 : k.step(1);
  return {};
}

/// K in runs of x elements; V with a stride between elements, or `shuffled`.
Status read_packed(const CacheTensors& from, const CacheShape& wanted, const Tensor& k, const Tensor& v,
                   bool shuffled, Cache& cache) {
  const int x = x_of(cache.view.dtype);
  if (k.ndim != 5 || k.size(4) != x || k.step(4) != 1)
    return invalid(std::string(from.k_name) + " has shape " + shape_text(k.shape.data(), k.ndim) +
                   "; it must be " + std::string(kPackedK) + " with x = " + std::to_string(x));
  if (v.ndim != (shuffled ? 5 : 4) || (shuffled && v.size(4) != x))
    return invalid(std::string(from.v_name) + " has shape " + shape_text(v.shape.data(), v.ndim) +
                   "; it must be " + std::string(shuffled ? kShuffledV : kPackedV) +
                   (shuffled ? " with x = " + std::to_string(x) : ""));
  const Sizes of_k{k.size(0), k.size(3), k.size(1), k.size(2) * x};
  FOVEA_RETURN_IF_ERROR(
      check_sizes(from.k_name, k, of_k, {Dim::kAny, wanted.page_size, wanted.num_kv_heads, wanted.head_dim}));
  const int dims = shuffled ? 3 : 2;  ///< index of V's head dimension
  const Sizes of_v{v.size(0), shuffled ? v.size(2) * x : v.size(3), v.size(1), v.size(dims)};
  FOVEA_RETURN_IF_ERROR(
      check_sizes(from.v_name, v, of_v, {of_k.pages, of_k.page_size, of_k.heads, wanted.v_head_dim}));
  KvView& view = cache.view;
  view.form = KvForm::x_packed;
  view.page_size = static_cast<int>(of_k.page_size);
  view.k_page_stride = k.step(0);
  view.k_head_stride = k.step(1);
  view.k_chunk_stride = k.step(2);
  view.k_slot_stride = k.step(3);
  view.v_page_stride = v.step(0);
  view.v_head_stride = v.step(1);
  view.v_dim_stride = v.step(dims);
  view.v_slot_stride = v.step(shuffled ? 4 : 3);
  // With a single run any stride is equivalent, but 0 would mean that there are no runs.
  if (shuffled) view.v_chunk_stride = v.step(2) != 0 ? v.step(2) : x;
  cache.num_pages = of_k.pages;
  cache.num_kv_heads = static_cast<int>(of_k.heads);
  cache.head_dim = static_cast<int>(of_k.dim);
  cache.v_head_dim = static_cast<int>(of_v.dim);
  return {};
}

Status read_strided(const CacheTensors& from, const CacheShape& wanted, const Tensor& k, const Tensor& v,
                    Cache& cache) {
  const bool ragged_allowed = !wanted.known || wanted.page_size == 1;
  for (const auto& [name, t] : {std::pair(from.k_name, &k), std::pair(from.v_name, &v)}) {
    if (t->ndim != 4 && !(t->ndim == 3 && ragged_allowed))
      return invalid(std::string(name) + " has shape " + shape_text(t->shape.data(), t->ndim) +
                     "; it must be " + std::string(ragged_allowed ? kKnownRagged : kKnownPaged));
    if (t->count() > 0 && t->step(t->ndim - 1) != 1)
      return invalid(std::string(name) + " has strides " + shape_text(t->stride.data(), t->ndim) +
                     "; its last dimension must be dense");
  }
  if (k.ndim != v.ndim)
    return invalid(std::string(from.k_name) + " has " + std::to_string(k.ndim) + " dimensions and " +
                   std::string(from.v_name) + " " + std::to_string(v.ndim) + "; they must be equal");
  const Sizes of_k = strided_sizes(k), of_v = strided_sizes(v);
  FOVEA_RETURN_IF_ERROR(
      check_sizes(from.k_name, k, of_k, {Dim::kAny, wanted.page_size, wanted.num_kv_heads, wanted.head_dim}));
  FOVEA_RETURN_IF_ERROR(
      check_sizes(from.v_name, v, of_v, {of_k.pages, of_k.page_size, of_k.heads, wanted.v_head_dim}));
  const int head = k.ndim - 2;
  KvView& view = cache.view;
  view.page_size = static_cast<int>(of_k.page_size);
  view.k_page_stride = k.step(0);
  view.v_page_stride = v.step(0);
  view.k_slot_stride = k.ndim == 4 ? k.step(1) : 0;
  view.v_slot_stride = v.ndim == 4 ? v.step(1) : 0;
  view.k_head_stride = k.step(head);
  view.v_head_stride = v.step(head);
  cache.num_pages = of_k.pages;
  cache.num_kv_heads = static_cast<int>(of_k.heads);
  cache.head_dim = static_cast<int>(of_k.dim);
  cache.v_head_dim = static_cast<int>(of_v.dim);
  return {};
}

}  // namespace

Result<Cache> read_cache(const Arguments& arguments, const CacheTensors& from, const CacheShape& wanted) {
  const auto elements = elements_of(wanted.dtype);
  FOVEA_TRY(k, arguments.take_any(from.k, from.k_name, elements, 3, 5, kKnownRagged, Packing::strided));
  FOVEA_TRY(v, arguments.take_any(from.v, from.v_name, elements, 3, 5, kKnownRagged, Packing::strided));
  if (k.element != v.element)
    return invalid(std::string(from.k_name) + " has dtype " + std::string(to_string(k.element)) + " and " +
                   std::string(from.v_name) + " " + std::string(to_string(v.element)) +
                   "; they must have the same");
  if (wanted.written) {
    FOVEA_RETURN_IF_ERROR(check_written(k, from.k_name));
    FOVEA_RETURN_IF_ERROR(check_written(v, from.v_name));
  }
  Cache cache;
  cache.view.k = k.data;
  cache.view.v = v.data;
  cache.view.dtype = wanted.dtype == KvCacheDType::auto_ ? dtype_stored_as(k.element) : wanted.dtype;
  const bool packed =
      wanted.known ? wanted.layout == KvLayout::x_packed || wanted.layout == KvLayout::shuffle : k.ndim == 5;
  const bool shuffled = wanted.known ? wanted.layout == KvLayout::shuffle : v.ndim == 5;
  if (packed)
    FOVEA_RETURN_IF_ERROR(read_packed(from, wanted, k, v, shuffled, cache));
  else
    FOVEA_RETURN_IF_ERROR(read_strided(from, wanted, k, v, cache));
  cache.view.num_pages = cache.num_pages;
  FOVEA_RETURN_IF_ERROR(read_scales(arguments, from, wanted, cache));
  return cache;
}

Result<Cache> read_records(const Arguments& arguments, const CacheTensors& from, const CacheShape& wanted) {
  constexpr std::string_view kShape = "[pages, page size, D] or [pages, page size, 1, D]";
  if (from.v != nullptr || from.v_scales != nullptr)
    return invalid(std::string(from.v != nullptr ? from.v_name : "v_scales") +
                   " is given with mla; V is the beginning of the records in " + std::string(from.k_name));
  FOVEA_TRY(
      k, arguments.take_any(from.k, from.k_name, elements_of(wanted.dtype), 3, 4, kShape, Packing::strided));
  const bool bytes = wanted.dtype == KvCacheDType::fp8_ds_mla;
  const auto rank = static_cast<int>(wanted.v_head_dim), rope = static_cast<int>(wanted.head_dim) - rank;
  const int64_t dim = bytes ? ds_mla_bytes(rank, rope) : wanted.head_dim;
  const Sizes sizes{k.size(0), k.size(1), k.ndim == 4 ? k.size(2) : 1, k.size(k.ndim - 1)};
  FOVEA_RETURN_IF_ERROR(check_sizes(from.k_name, k, sizes, {Dim::kAny, wanted.page_size, 1, dim}));
  if (k.count() > 0 && k.step(k.ndim - 1) != 1)
    return invalid(std::string(from.k_name) + " has strides " + shape_text(k.stride.data(), k.ndim) +
                   "; its last dimension must be dense");
  Cache cache;
  cache.num_pages = sizes.pages;
  cache.num_kv_heads = 1;
  cache.head_dim = static_cast<int>(wanted.head_dim);
  cache.v_head_dim = rank;
  KvView& view = cache.view;
  view.k = k.data;
  view.dtype = wanted.dtype;
  view.page_size = static_cast<int>(sizes.page_size);
  view.num_pages = sizes.pages;
  view.k_page_stride = k.step(0);
  view.k_slot_stride = k.step(1);
  view.k_head_stride = dim;
  CacheTensors scales = from;
  scales.v_scale = from.k_scale;
  scales.v_scales = from.k_scales;
  FOVEA_RETURN_IF_ERROR(read_scales(arguments, scales, wanted, cache));
  view.v = view.k;
  view.v_page_stride = view.k_page_stride;
  view.v_slot_stride = view.k_slot_stride;
  view.v_head_stride = view.k_head_stride;
  return cache;
}

Result<KvCacheDType> read_kv_dtype(const char* name) {
  if (name == nullptr) return KvCacheDType::auto_;
  const auto dtype = parse_kv_cache_dtype(name);
  if (!dtype) return invalid("kv_dtype '" + std::string(name) + "' is " + unknown_kv_cache_dtype(name));
  return *dtype;
}

}  // namespace fovea::c_api
