#include "c_api/settings.h"

#include <cstdlib>
#include <string>
#include <string_view>

#include "fovea/result.h"

namespace fovea::c_api {

Status apply_environment(AttentionConfig& config) {
  const char* text = std::getenv("FLASHINFER_USE_TENSOR_CORES");
  const std::string_view value = text == nullptr ? "" : text;
  if (value.empty()) return {};
  if (value != "0" && value != "1")
    return invalid("FLASHINFER_USE_TENSOR_CORES is '" + std::string(value) +
                   "'; it must be 1 (FLASHINFER decodes on tensor cores) or 0 (on CUDA cores)");
  config.flashinfer_use_tensor_cores = value == "1";
  config.sources["flashinfer_use_tensor_cores"] = "env FLASHINFER_USE_TENSOR_CORES";
  return {};
}

}  // namespace fovea::c_api
