#include "attention/absorbed_prefill.h"

#include "attention/mla_prefill.h"

namespace fovea {

BackendRegistry without_mla_prefill(const BackendRegistry& registry) {
  BackendRegistry out;
  for (const BackendRegistry::Entry& entry : registry.entries())
    out.add(*entry.info, entry.create);
  return out;
}

std::vector<std::string> drop_mla_prefill(AttentionConfig& config) {
  std::vector<std::string> warnings;
  for (const std::string_view key : mla_prefill_keys(config))
    warnings.push_back(
        std::string(key) +
        " has no effect: on a GPU latent attention runs absorbed in both phases, by one backend");
  config.mla_prefill_backend = {};
  config.use_trtllm_ragged_deepseek_prefill.reset();
  config.disable_flashinfer_prefill.reset();
  config.use_cudnn_prefill.reset();
  return warnings;
}

}  // namespace fovea
