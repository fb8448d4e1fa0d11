#pragma once
// What a backend does not claim must be refused, in the documented words, by the selection and by the
// backend.
#include <optional>
#include <string>
#include <vector>

#include "attention/columns.h"
#include "conformance/machine.h"
#include "fovea/attention_backend.h"

namespace fovea::conformance {

/// A configuration that asks for the value of one cell, and for nothing else that is not claimed.
struct Request {
  AttentionSpec spec;
  DeviceInfo device;
  Phase phase = Phase::prefill;
  /// Refusals that validate() must give, and no other, in any order.
  std::vector<std::string> expected;
  bool of_spec = true;    ///< false: of the device or the phase, which a plan is not told
  bool of_graph = false;  ///< asked for by init_graph_state() alone
};

/// `plain` is a spec that `backend` serves on `device`. nullopt when nothing that a run is told asks for this
/// cell, as for a graph level above the one that is claimed.
std::optional<Request> request_of(const BackendInfo& backend, const Cell& cell, const AttentionSpec& plain,
                                  const DeviceInfo& device);

/// What is wrong about the refusal of an unclaimed cell; empty = nothing.
std::string find_acceptance(const BackendInfo& backend, AttentionBackend& instance, const Request& request,
                            Machine& machine);

}  // namespace fovea::conformance
