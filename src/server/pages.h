#pragma once
// Small JSON answers that are no part of the OpenAI API.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/engine.h"

namespace fovea::server {

/// {"version": "0.1.0"}
std::string version_json(std::string_view version);
/// `fixed`, a JSON object, and what changes: {"engine": {"running": 3, ...}, ...}.
std::string server_info_json(const std::string& fixed, const EngineStats* stats, int in_flight, int waiting);
/// vLLM's form: {"count", "max_model_len", "tokens", "token_strs"}; `words` null = no token_strs.
std::string tokenize_json(std::span<const int32_t> ids, int max_model_len, const std::vector<std::string>* words);
/// {"prompt": "text"}
std::string detokenize_json(std::string_view text);

}  // namespace fovea::server
