#pragma once
// Settings that only Llama 4's config.json has.
#include "model/layers.h"

namespace fovea {

/// ModelConfig::family of Llama 4.
struct Llama4Settings {
  QueryTemperature temperature;  ///< attn_temperature_tuning, attn_scale, floor_scale
};

}  // namespace fovea
