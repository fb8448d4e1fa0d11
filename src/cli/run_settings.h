#pragma once
// The settings that answers depend on, for --resume: rows are kept only if all are unchanged.
#include "cli/row_journal.h"
#include "fovea/embed.h"
#include "fovea/engine.h"

namespace fovea::cli {

/// Settings of a command on an engine: the program, the model's files and the resolved configuration.
RunSettings run_settings(const std::string& command, const Engine& engine);
RunSettings run_settings(const std::string& command, const EmbedInfo& info);

/// Digest of a request without the members that do not affect its answer: priority, client and callback.
uint64_t request_digest(const GenerateRequest& request);

}  // namespace fovea::cli
