#pragma once
// Converts callers' caches to views.
#include "c_api/tensor.h"
#include "fovea/attention_step.h"

namespace fovea::c_api {

/// The cache arguments of a call, for one layer.
struct CacheTensors {
  std::string_view k_name, v_name;
  const fovea_tensor* k = nullptr;
  const fovea_tensor* v = nullptr;
  float k_scale = 0.0f, v_scale = 0.0f;  ///< 0 = 1
  const fovea_tensor* k_scales = nullptr;
  const fovea_tensor* v_scales = nullptr;
};

/// The known properties of the cache; Dim::kAny = unknown.
struct CacheShape {
  KvCacheDType dtype = KvCacheDType::auto_;  ///< auto = that of the tensors
  int64_t page_size = Dim::kAny, num_kv_heads = Dim::kAny, head_dim = Dim::kAny, v_head_dim = Dim::kAny;
  KvLayout layout = KvLayout::hnd;  ///< only if `known`; otherwise derived from the number of dimensions
  bool known = false;
  bool per_head_scales = false;  ///< an fp8 cache with k_scales and v_scales [Hkv]
  bool written = false;          ///< overlapping elements are refused: check_written()
};

struct Cache {
  KvView view;
  int64_t num_pages = 0;
  int num_kv_heads = 0, head_dim = 0, v_head_dim = 0;
  int64_t num_slots() const { return num_pages * view.page_size; }
};

Result<Cache> read_cache(const Arguments& arguments, const CacheTensors& tensors, const CacheShape& shape);

/// The same of latent attention, whose cache is K alone: [pages, page size, D] or [pages, page size, 1, D].
/// The shape is known.
Result<Cache> read_records(const Arguments& arguments, const CacheTensors& tensors, const CacheShape& shape);

/// "auto" for null. Errors: unknown names, and types that this library does not store.
Result<KvCacheDType> read_kv_dtype(const char* name);

}  // namespace fovea::c_api
