#pragma once
// Caches as callers have them, as views.
#include "c_api/tensor.h"
#include "fovea/attention_backend.h"

namespace fovea::c_api {

/// What one of the calls is given of a layer's cache.
struct CacheTensors {
  std::string_view k_name, v_name;
  const fovea_tensor* k = nullptr;
  const fovea_tensor* v = nullptr;
  float k_scale = 0.0f, v_scale = 0.0f;  ///< 0 = 1
  const fovea_tensor* k_scales = nullptr;
  const fovea_tensor* v_scales = nullptr;
};

/// What is known of it; Dim::kAny = nothing.
struct CacheShape {
  KvCacheDType dtype = KvCacheDType::auto_;  ///< auto = that of the tensors
  int64_t page_size = Dim::kAny, num_kv_heads = Dim::kAny, head_dim = Dim::kAny, v_head_dim = Dim::kAny;
  KvLayout layout = KvLayout::hnd;  ///< only of a known cache: else the numbers of dimensions say it
  bool known = false;
  bool per_head_scales = false;  ///< k_scales and v_scales [Hkv] of an fp8 cache
  bool written = false;          ///< what overlaps is refused: check_written()
};

struct Cache {
  KvView view;
  int64_t num_pages = 0;
  int num_kv_heads = 0, head_dim = 0, v_head_dim = 0;
  int64_t num_slots() const { return num_pages * view.page_size; }
};

Result<Cache> read_cache(const Arguments& arguments, const CacheTensors& tensors, const CacheShape& shape);

/// "auto" for null. Errors: names that are unknown, or of what this library does not store.
Result<KvCacheDType> read_kv_dtype(const char* name);

}  // namespace fovea::c_api
