#pragma once
// Features that a backend does not claim must be refused by the selection and by the backend, with the
// documented message.
#include <optional>
#include <string>
#include <vector>

#include "attention/columns.h"
#include "conformance/machine.h"
#include "fovea/attention_backend.h"

namespace fovea::conformance {

/// A configuration that requires the value of one cell, and nothing else that is not claimed.
struct Request {
  AttentionSpec spec;
  DeviceInfo device;
  Phase phase = Phase::prefill;
  /// The exact set of refusals that validate() must give, in any order.
  std::vector<std::string> expected;
  bool of_spec = true;    ///< false: a property of the device or the phase, which a plan does not get
  bool of_graph = false;  ///< required only by init_graph_state()
};

/// `plain` is a spec that `backend` serves on `device`. nullopt when no input of a run requires this cell, as
/// for a graph level above the claimed one.
std::optional<Request> request_of(const BackendInfo& backend, const Cell& cell, const AttentionSpec& plain,
                                  const DeviceInfo& device);

/// What is wrong with the refusal of an unclaimed cell; empty = nothing.
std::string find_acceptance(const BackendInfo& backend, AttentionBackend& instance, const Request& request,
                            Machine& machine);

}  // namespace fovea::conformance
