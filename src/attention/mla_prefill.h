#pragma once
// Who prefills: for MLA models, whose prefill is not absorbed, a backend of a registry of its own; for a
// backend that only decodes, its partner; else whoever serves the phase.
#include "attention/candidates.h"

namespace fovea {

/// `decode` is what was chosen for the same layers' decode.
Result<PhaseSelection> choose_prefill(const Request& request, const SelectionContext& context,
                                      const PhaseSelection& decode);

/// What the layer is to a backend of the MLA prefill registry: every head has keys and values of its own, as
/// plain tensors.
AttentionSpec mla_prefill_spec(const AttentionSpec& spec);

/// A warning for each switch in use that mla_prefill_backend replaces.
std::vector<std::string> deprecated_switches(const AttentionConfig& config);

/// The keys in use that choose among MLA's prefills: mla_prefill_backend and the switches that it replaces.
std::vector<std::string_view> mla_prefill_keys(const AttentionConfig& config);

/// An error for a name that no MLA prefill of `registry` has and for switches that contradict, also where no
/// layers ask for one.
Status check_mla_prefill(const AttentionConfig& config, const BackendRegistry& registry);

bool is_mla_prefill(const BackendInfo& row, const BackendRegistry& registry);

}  // namespace fovea
