#pragma once
// Settings that only Granite's config.json has.

namespace fovea {

/// ModelConfig::family of Granite.
struct GraniteSettings {
  float residual_scale = 1.0f;  ///< residual_multiplier: multiplies a block's output
  float logit_scale = 1.0f;     ///< 1 / logits_scaling: multiplies the logits
};

}  // namespace fovea
