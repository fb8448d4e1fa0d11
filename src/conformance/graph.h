#pragma once
// Steps that are captured once and replayed must give the same bits as steps that are planned and run
// directly.
#include <string>

#include "conformance/case_space.h"
#include "conformance/run.h"
#include "fovea/attention_backend.h"

namespace fovea::conformance {

/// Runs `c` with graphs that were captured for other lengths: with plan_for_capture() at a larger size,
/// replayed at that size and at its own after plan_for_replay(); and with plan() inside the graph. `first` is
/// the output without graphs. Returns "" for the same bits, else what is wrong.
std::string find_graph_change(AttentionBackend& backend, const Case& c, const Output& first,
                              Machine& machine);

}  // namespace fovea::conformance
