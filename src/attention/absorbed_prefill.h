#pragma once
// Latent attention that is absorbed in both phases: the backend of decode prefills too.
#include <string>
#include <vector>

#include "fovea/attention_backend.h"
#include "fovea/attention_config.h"

namespace fovea {

/// `registry` without its backends for un-absorbed prefill: selection then gives prefill to MLA backends.
BackendRegistry without_mla_prefill(const BackendRegistry& registry);

/// Removes the settings that select an un-absorbed prefill; a warning for each.
std::vector<std::string> drop_mla_prefill(AttentionConfig& config);

}  // namespace fovea
