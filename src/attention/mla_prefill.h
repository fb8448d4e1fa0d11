#pragma once
// Selects the prefill backend: for MLA models, whose prefill is not absorbed, one from a separate registry;
// for a backend that only decodes, its partner; else any backend that serves the phase.
#include "attention/candidates.h"
#include "fovea/attention.h"
#include "fovea/attention_config.h"

namespace fovea {

/// `decode` is the selection for the decode of the same layers.
Result<PhaseSelection> choose_prefill(const BackendRequest& request, const SelectionContext& context,
                                      const PhaseSelection& decode);

/// The layer as an MLA prefill backend sees it: every head has its own keys and values, in plain tensors.
AttentionSpec mla_prefill_spec(const AttentionSpec& spec);

/// The layer without absorption, as an ordinary backend plans and computes it: K of nope + rope elements and
/// V of mla_v_head_dim for each head, up-projected to ragged rows (page_size 1), causal and in spec.dtype.
/// use_mla is false, so that every backend with these head sizes serves it; the backends that the MLA prefill
/// registry creates are planned with it. Needs mla_nope_head_dim > 0.
AttentionSpec unabsorbed_spec(const AttentionSpec& spec);

/// A warning for each switch in use that mla_prefill_backend replaces.
std::vector<std::string> deprecated_switches(const AttentionConfig& config);

/// The settings in use that select an MLA prefill: mla_prefill_backend and the switches that it replaces.
std::vector<std::string_view> mla_prefill_keys(const AttentionConfig& config);

/// An error for a name that no MLA prefill of `registry` has and for contradicting switches, also if no
/// layers need an MLA prefill.
Status check_mla_prefill(const AttentionConfig& config, const BackendRegistry& registry);

bool is_mla_prefill(const BackendInfo& row, const BackendRegistry& registry);

}  // namespace fovea
