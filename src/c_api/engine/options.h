#pragma once
// The options and sampling parameters of fovea/c_engine.h, from JSON.
#include <optional>

#include "fovea/embed.h"
#include "fovea/engine.h"

namespace fovea::c_api {

/// `text` may be null: an object without members. The environment's attention settings are applied. Errors
/// name the key, its value and what is allowed.
Result<EngineConfig> engine_options(const char* text);
Result<EmbedConfig> embed_options(const char* text);

/// A request's `sampling`; keys that are not there keep the values of `defaults`. *prompt_logprobs is set,
/// too.
Result<SamplingParams> sampling_of(const char* text, const SamplingParams& defaults,
                                   std::optional<int>* prompt_logprobs);

}  // namespace fovea::c_api
