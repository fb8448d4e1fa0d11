#include "builtin/create_backend.h"

#include "backends/cuda/factory.h"
#include "fovea/attention_config.h"

namespace fovea {

Result<std::unique_ptr<AttentionBackend>> create_backend(const BackendInfo& info,
                                                         const AttentionConfig& config,
                                                         const BackendRegistry& registry) {
  const BackendRegistry::Entry* entry = registry.find(info);
  for (const BackendRegistry::Entry& prefill : registry.mla_prefill())
    if (prefill.info == &info) entry = &prefill;
  if (entry == nullptr || !entry->create)
    return unsupported("attention backend " + info.label() + " is not in this build");
  if (info.name == "FLASHINFER" && builtin_backends().find(info) != nullptr &&
      config.flashinfer_use_tensor_cores)
    return cuda_factory(*entry->info, config.flashinfer_use_tensor_cores)();
  return entry->create();
}

}  // namespace fovea
