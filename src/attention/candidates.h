#pragma once
// The backends that one phase of one kind of layers may have, the choice among them, and the changes that
// would let a refused one serve.
#include <optional>
#include <string>
#include <vector>

#include "attention/requests.h"
#include "attention/resolve_name.h"
#include "attention/validate.h"

namespace fovea {

/// A row with what speaks against it, before fixes name other backends.
struct Evaluated {
  const BackendInfo* row = nullptr;
  std::vector<Finding> findings;
};

Evaluated evaluate(const Version& version, const SelectionContext& context, Phase phase);

/// Rows in the order of automatic choice: the device's priorities, of which a version that is not built is
/// followed by one that is, then what else is built.
std::vector<Version> automatic_order(const SelectionContext& context);

/// Fills in what would serve if this build had its kernels: a row that another build of the project has
/// before one that none has, and one whose document says yes to all that is asked before one that leaves some
/// unsaid.
void set_if_built(const std::vector<Evaluated>& evaluated, PhaseSelection& selection);

/// What the user asked for, or the first that serves.
Result<PhaseSelection> choose(const Request& request, const SelectionContext& context, Phase phase);
/// `version` and nothing else.
PhaseSelection choose_only(const Version& version, const SelectionContext& context, Phase phase,
                           std::string why);

/// `title` is "Selected backend": "Selected backend X is not valid for this configuration. Reason: [...].
/// Fix: ..."
Error not_valid(std::string_view title, const Candidate& candidate, const SelectionContext& context);

/// ['a', 'b'], as Python prints a list.
std::string quoted_list(const std::vector<Reason>& reasons);

}  // namespace fovea
