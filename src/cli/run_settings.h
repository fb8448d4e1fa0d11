#pragma once
// What answers depend on, for --resume: rows are kept where all of it is as it was.
#include "cli/row_journal.h"
#include "fovea/embed.h"
#include "fovea/engine.h"

namespace fovea::cli {

/// Of a command on an engine: the program, the files of the model and what was decided about it.
RunSettings run_settings(const std::string& command, const EngineInfo& info);
RunSettings run_settings(const std::string& command, const EmbedInfo& info);

/// All of a request but its priority, which no answer depends on.
uint64_t request_digest(const GenerateRequest& request);

}  // namespace fovea::cli
