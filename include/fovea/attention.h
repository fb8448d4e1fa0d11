#pragma once
// How a backend is chosen for each phase of a model's attention layers (AttentionSpec), or refused with
// reasons (select, explain), by what it offers (Capability).
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/attention_config.h"
#include "fovea/attention_spec.h"
#include "fovea/backend_info.h"
#include "fovea/capability.h"
#include "fovea/dtype.h"
#include "fovea/result.h"

namespace fovea {

/// A backend that was considered, and every reason against it; none = it can serve. For a backend that is not
/// built, the reasons include requirements that its documentation does not mention.
struct Candidate {
  const BackendInfo* backend = nullptr;
  std::vector<Reason> reasons;
};

/// The result for one phase of one kind of layers.
struct PhaseSelection {
  const BackendInfo* backend = nullptr;  ///< null = none can serve; see `error`
  std::string why;                       ///< the reason for the choice, one line
  std::vector<Candidate> candidates;     ///< in order of preference; only the named backend when one is named
  /// Without a backend: the first that would serve if this build had its kernels; null = none would.
  const BackendInfo* if_built = nullptr;
  /// Requirements that the documentation of if_built does not mention: "attention sinks". Empty = all
  /// documented.
  std::vector<std::string> unstated = {};
  Error error;
  bool version_named = false;  ///< the name that was given pins the version ("fa3")
};

struct KindSelection {
  LayerKind kind = LayerKind::full;
  std::vector<int> specs;  ///< indices of the given specs that are of this kind
  PhaseSelection prefill, decode;
  const PhaseSelection& of(Phase phase) const { return phase == Phase::prefill ? prefill : decode; }
};

/// Whether the keys and values of a position, and all that follows from them, have the same bits if prefill
/// computed it, in any chunk, or decode: one backend serves both phases and claims Invariance::chunking.
/// Encoder layers only prefill. Otherwise an engine must keep apart what each phase computes, or the bits of
/// an answer depend on preemption, prefix hits and load. Both phases must have a backend.
bool same_bits_across_phases(const KindSelection& kind);

/// One resolved value and its source: a flag, an environment variable, config.json, a backend, a default.
struct ResolvedValue {
  std::string key, value, from;
};

struct Selection {
  DeviceInfo device;
  std::vector<KindSelection> kinds;  ///< in ascending order of kind; at least one
  int page_size = 0;                 ///< 0 when a phase has no backend, or they have no size in common
  std::string page_size_why;         ///< its source, or why there is none
  std::vector<ResolvedValue> resolved;
  std::vector<std::string> warnings;

  /// The backends of the layers like `spec`.
  const KindSelection& of(const AttentionSpec& spec) const;
  /// Every phase has a backend, and they share a page size.
  bool complete() const;
};

/// True if it is so for every kind of layers: one that differs makes the keys of all layers after it differ.
bool same_bits_across_phases(const Selection& selection);

class BackendRegistry;

LayerKind kind_of(const AttentionSpec& spec);
/// Layers of this kind keep keys and values in pages: not encoders, not linear attention.
bool has_kv_pages(LayerKind kind);
/// `spec` with the settings that change the layer itself: use_non_causal removes the causal mask of decoder
/// layers with softmax, and makes a window as wide to the right as it is to the left. select() applies this
/// itself; callers must also apply it to the specs that they plan for.
AttentionSpec with_settings(AttentionSpec spec, const AttentionConfig& config);
/// vLLM's error for an unknown layer kind `name`, found in the setting `where`.
Error unknown_layer_kind(std::string_view name, std::string_view where = "backend_per_kind");

/// "cpu", "sm75" to "sm121", "rocm", "npu", "xpu", in any letter case; the error lists them.
Result<DeviceInfo> parse_device(std::string_view name);
/// The names that parse_device() accepts.
std::vector<std::string_view> device_names();
/// "cpu", "cuda 9.0", ...
std::string describe(const DeviceInfo& device);
/// The type of Q and O (AttentionSpec::dtype) of a model that runs on `device` with weights of type
/// `weights`: fp32 on a CPU, else the weights'.
DType activation_dtype(const DeviceInfo& device, DType weights);

/// Every reason why `backend` can't serve `spec` on `device` in `phase`, in vLLM's order; empty = it can.
std::vector<Reason> validate(const BackendInfo& backend, const AttentionSpec& spec, const DeviceInfo& device,
                             Phase phase);

/// Considers every backend for each phase of each kind of layers in `specs` (a model's distinct attentions,
/// at least one). Encoder layers only prefill: their decode is the same. Fails only for invalid settings: an
/// unknown name, or two settings that contradict each other. That no backend can serve is a valid result.
Result<Selection> consider(const AttentionConfig& config, std::span<const AttentionSpec> specs,
                           const DeviceInfo& device, const BackendRegistry& registry);

/// As consider(), and an error where a phase has no backend: for a named backend vLLM's message with every
/// reason, for an automatic choice every backend with its reasons.
Result<Selection> select(const AttentionConfig& config, std::span<const AttentionSpec> specs,
                         const DeviceInfo& device, const BackendRegistry& registry);
inline Result<Selection> select(const AttentionConfig& config, const AttentionSpec& spec,
                                const DeviceInfo& device, const BackendRegistry& registry) {
  return select(config, std::span(&spec, 1), device, registry);
}

/// A line for each phase (and kind, where kinds differ): the backend and why it was chosen.
std::string explain(const Selection& selection);
/// The full report: candidates in order with every reason and fix, the choice, and the source of each value.
std::string explain_in_full(const Selection& selection);

}  // namespace fovea
