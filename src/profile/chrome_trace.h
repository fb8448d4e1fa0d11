#pragma once
// A recording in Chrome's JSON trace format, which ui.perfetto.dev and chrome://tracing show.
#include <string>
#include <utility>
#include <vector>

#include "fovea/result.h"
#include "profile/records.h"

namespace fovea::profile {

/// Names and values for the trace's "otherData".
using TraceNotes = std::vector<std::pair<std::string, std::string>>;

/// Process 1 has the host's threads and counters, process 2 the device's streams. Ranges of one track are
/// nested or follow each other: a kernel that starts while the one in front of it runs is drawn where that
/// one has ended, and its argument "early_us" says how much earlier it began. Error: the file can't be
/// written.
Status write_chrome_trace(const std::string& path, const Recording& recording, const TraceNotes& notes);

}  // namespace fovea::profile
