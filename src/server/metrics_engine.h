#pragma once
// The metrics that are read from the engine at a scrape.
#include <optional>

#include "fovea/engine.h"
#include "server/metrics_text.h"

namespace fovea::server {

/// The backend of each phase and layer kind.
void write_backends(const Selection& selection, MetricsText& out);
/// vLLM's cache_config_info.
void write_cache_config(const EngineInfo& info, MetricsText& out);
/// `floor` nullopt = unknown: metrics that are relative to it are omitted.
void write_engine_stats(const EngineStats& stats, const std::optional<MachineFloor>& floor, MetricsText& out);

}  // namespace fovea::server
