#pragma once
// Why a backend can't serve, with what kind of change would help: the part of validate() that selection uses
// to name the change.
#include <span>
#include <string>
#include <vector>

#include "fovea/attention.h"

namespace fovea {

enum class Remedy : uint8_t {
  flag,                 ///< the reason's fix names it
  other_backend,        ///< no flag of this backend's helps
  other_phase_backend,  ///< it does not serve this phase
  other_device,
  kernels,  ///< this build lacks them
  unsaid,   ///< of a backend that is not built: its document does not say whether it takes this
};

struct Finding {
  int rank = 0;  ///< of the check in vLLM's order
  Remedy remedy = Remedy::flag;
  Reason reason;
};

/// What the backend would be used for: pages of a cache, or MLA's prefill over plain tensors.
enum class UseCase : uint8_t { paged, mla_prefill };

/// The reasons of all of `specs`, each once, in vLLM's order.
std::vector<Finding> find_reasons(const BackendInfo& backend, std::span<const AttentionSpec> specs,
                                  const DeviceInfo& device, Phase phase, UseCase use_case = UseCase::paged);

/// Nothing but its kernels is missing.
bool only_kernels_missing(const std::vector<Finding>& findings);
/// A finding that no setting of its own backend removes and that is more than missing kernels; null = none.
const Finding* lasting(const std::vector<Finding>& findings);
/// Nothing but its kernels is missing, and what its document does not say.
bool kernels_missing_or_unsaid(const std::vector<Finding>& findings);
/// What that is: "attention sinks", ...
std::vector<std::string> unsaid(const std::vector<Finding>& findings);

/// "a cuda device of compute capability 9.0 to 9.9"
std::string describe_needed_device(const Capability& capability);

}  // namespace fovea
