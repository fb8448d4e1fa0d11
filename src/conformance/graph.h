#pragma once
// Steps that are captured once and replayed: the same bits as those that are planned and run as they come.
#include <string>

#include "conformance/case_space.h"
#include "conformance/run.h"

namespace fovea::conformance {

/// Runs `c` by graphs that were captured before its lengths were known: with plan_for_capture() at a larger
/// size, replayed at that size and at its own after plan_for_replay(); and with plan() inside of the graph.
/// `first` is what it gave without; empty = the same bits, else what is wrong.
std::string find_graph_change(AttentionBackend& backend, const Case& c, const Output& first,
                              Machine& machine);

}  // namespace fovea::conformance
