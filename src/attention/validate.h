#pragma once
// Why a backend can't serve, and which kind of change would help: the part of validate() that selection uses
// to propose a fix.
#include <span>
#include <string>
#include <vector>

#include "fovea/backend_info.h"

namespace fovea {

enum class Remedy : uint8_t {
  flag,                 ///< named in the reason's fix
  other_backend,        ///< no flag of this backend helps
  other_phase_backend,  ///< it does not serve this phase
  other_device,
  kernels,  ///< this build lacks them
  unsaid,   ///< for a backend that is not built: its documentation does not mention this
};

struct Finding {
  int rank = 0;  ///< position of the check in vLLM's order
  Remedy remedy = Remedy::flag;
  Reason reason;
};

/// What the backend would be used for: a paged cache, or MLA prefill over plain tensors.
enum class UseCase : uint8_t { paged, mla_prefill };

/// The reasons of all `specs` without duplicates, in vLLM's order.
std::vector<Finding> find_reasons(const BackendInfo& backend, std::span<const AttentionSpec> specs,
                                  const DeviceInfo& device, Phase phase, UseCase use_case = UseCase::paged);

/// Whether only its kernels are missing.
bool only_kernels_missing(const std::vector<Finding>& findings);
/// A finding that no setting of the same backend removes, other than missing kernels; null = none.
const Finding* lasting(const std::vector<Finding>& findings);
/// Whether only its kernels are missing, or requirements that its documentation does not mention.
bool kernels_missing_or_unsaid(const std::vector<Finding>& findings);
/// The requirements that its documentation does not mention: "attention sinks", ...
std::vector<std::string> unsaid(const std::vector<Finding>& findings);

/// "a cuda device of compute capability 9.0 to 9.9"
std::string describe_needed_device(const Capability& capability);

}  // namespace fovea
