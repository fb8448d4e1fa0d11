#pragma once
// FLEX_ATTENTION on the CPU: the masks of a model as expressions (src/flex), evaluated over strips of keys.
#include <memory>

#include "fovea/attention_backend.h"

namespace fovea {

const BackendInfo& flex_attention_info();
std::unique_ptr<AttentionBackend> make_flex_attention();

}  // namespace fovea
