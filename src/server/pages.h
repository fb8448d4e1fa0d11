#pragma once
// Small JSON answers that are not part of the OpenAI API.
#include <string>
#include <string_view>

#include "fovea/engine_stats.h"
#include "server/http/server.h"

namespace fovea::server {

/// {"version": "0.1.0"}
std::string version_json(std::string_view version);
/// The answer while the model loads: OpenAI's error, and for the waiting page
/// {"loading": {"weights": fraction read, "seconds": since the start}}.
std::string loading_json(double weights, double seconds);
/// The API's description in OpenAPI 3.1: src/server/openapi.json, with the program's version.
std::string openapi_json(std::string_view version);
/// `fixed`, a JSON object, with the variable members added: {"engine": {"running": 3, ...}, ...}.
std::string server_info_json(const std::string& fixed, const EngineStats* stats, int in_flight, int waiting,
                             const http::ConnectionCounts& connections);

}  // namespace fovea::server
