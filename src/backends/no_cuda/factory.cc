#include "backends/cuda/factory.h"

#include "base/check.h"

namespace fovea {

BackendRegistry::Factory cuda_factory(const BackendInfo&, std::optional<bool>) {
  return []() -> std::unique_ptr<AttentionBackend> {
    FOVEA_CHECK(false);
    return nullptr;
  };
}

}  // namespace fovea
