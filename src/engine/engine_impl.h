#pragma once
// Engine::create() with the registry as a parameter, so that tests can count and fake backends.
#include <memory>

#include "fovea/attention_backend.h"
#include "fovea/engine.h"

namespace fovea {

/// `registry` must outlive the engine.
Result<std::unique_ptr<Engine>> create_engine(const EngineConfig& config, const BackendRegistry& registry);

}  // namespace fovea
