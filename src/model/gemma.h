#pragma once
// Settings that only Gemma's config.json has.

namespace fovea {

/// ModelConfig::family of Gemma 2 and 3.
struct GemmaSettings {
  float logit_softcap = 0.0f;  ///< final_logit_softcapping: cap * tanh(logit / cap); 0 = off
};

}  // namespace fovea
