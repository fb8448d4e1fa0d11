#pragma once
// What the C ABI says about an engine and an embedder, as JSON.
#include <string>

#include "fovea/embed.h"
#include "fovea/engine.h"

namespace fovea::c_api {

std::string info_json(const Engine& engine);
std::string stats_json(const EngineStats& stats);
std::string info_json(const EmbedInfo& info);

}  // namespace fovea::c_api
