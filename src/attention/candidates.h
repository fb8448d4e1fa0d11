#pragma once
// The candidate backends for one phase of one kind of layers, the choice among them, and the changes that
// would let a refused backend serve.
#include <optional>
#include <string>
#include <vector>

#include "attention/requests.h"
#include "attention/resolve_name.h"
#include "attention/validate.h"
#include "fovea/attention.h"

namespace fovea {

/// A row with the findings against it, before fixes name other backends.
struct Evaluated {
  const BackendInfo* row = nullptr;
  std::vector<Finding> findings;
};

Evaluated evaluate(const Version& version, const SelectionContext& context, Phase phase);

/// Rows in the order of automatic choice: the device's priorities, each version that is not built followed by
/// one that is built, then all other built rows.
std::vector<Version> automatic_order(const SelectionContext& context);

/// Fills in what would serve if this build had its kernels. Rows that another build of the project has go
/// before rows that none has, and rows whose documents mention all requirements before the others.
void set_if_built(const std::vector<Evaluated>& evaluated, PhaseSelection& selection);

/// The requested backend, or the first that serves.
Result<PhaseSelection> choose(const BackendRequest& request, const SelectionContext& context, Phase phase);
/// Considers only `version`.
PhaseSelection choose_only(const Version& version, const SelectionContext& context, Phase phase,
                           std::string why);

/// `title` is "Selected backend": "Selected backend X is not valid for this configuration. Reason: [...].
/// Fix: ..."
Error not_valid(std::string_view title, const Candidate& candidate, const SelectionContext& context);

/// ['a', 'b'], as Python prints a list.
std::string quoted_list(const std::vector<Reason>& reasons);

}  // namespace fovea
