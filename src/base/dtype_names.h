#pragma once
// Error texts for dtype names that do not parse. Separate from fovea/dtype.h, which kernels include.
#include <string>
#include <string_view>

namespace fovea {

/// "auto, fp8, float32, ...": the names of KV cache dtypes that can be stored.
std::string stored_kv_cache_dtypes();

/// "unknown; allowed are ...", with the nearest name that parse_kv_cache_dtype() accepts.
std::string unknown_kv_cache_dtype(std::string_view name);

}  // namespace fovea
