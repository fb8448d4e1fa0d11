#pragma once
// The contract of an attention backend: plan once a step, forward once a layer. See docs/architecture.md.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/attention_spec.h"
#include "fovea/attention_step.h"
#include "fovea/backend_info.h"
#include "fovea/result.h"

namespace fovea {

class Stream;

/// One step's schedule; made by plan(), read by forward_*.
class Plan {
 public:
  virtual ~Plan() = default;

  /// The attention kernels that the forwards of this plan have launched so far, without duplicates.
  /// Conformance counts a case for the kernels named here. Empty: no forward has launched one, or the backend
  /// does not record them.
  virtual std::vector<KernelName> launched() const { return {}; }
};

class AttentionBackend {
 public:
  virtual ~AttentionBackend() = default;

  virtual const BackendInfo& info() const noexcept = 0;

  /// The kernels of the row's own families that some spec, step and limits within the row's capability reach
  /// on `device` (split_keys and split_rows are ignored). Conformance fails if one of them never ran. Empty:
  /// the backend does not report them.
  virtual std::vector<KernelName> kernels(const DeviceInfo& device) const;

  /// Bytes of workspace that suffice for any step within `limits`.
  virtual Result<size_t> workspace_bytes(const AttentionSpec& spec, const AttentionLimits& limits) const = 0;

  /// Called once per step. Refuses steps that exceed `limits` or the workspace; may allocate host memory. The
  /// plan keeps references to `meta`'s arrays and to `workspace`. On a GPU the schedule is computed on the
  /// device: the call does not wait, and may be captured with the step's forward_*; a replay then follows the
  /// contents of the arrays. Forwards use the contents at the time when the schedule is computed. Errors that
  /// the host can't see are reported by check_plan(): a sequence whose length exceeds the limits or the page
  /// table, or, with meta.num_pages, whose page ids are not in the cache, is dropped: its rows of O and LSE
  /// are NaN, none of its keys is read, and the other rows are correct. With invalid q_offsets, or more keys
  /// in total than the limits, all rows are NaN.
  virtual Result<std::unique_ptr<Plan>> plan(const AttentionSpec& spec, const AttentionLimits& limits,
                                             const BatchMeta& meta, Workspace workspace, Stream& stream) = 0;

  /// Called once per layer: prefill, cached prefill, mixed, target verify. Does not allocate or wait. Errors,
  /// before anything runs: a view that does not match the plan, missing arrays in `args`; on a GPU errors of
  /// the CUDA runtime.
  virtual Status forward_extend(const Plan& plan, const AttentionArgs& args, Stream& stream) = 0;

  /// Called once per layer: decode and draft decode (one or a few query rows per sequence).
  virtual Status forward_decode(const Plan& plan, const AttentionArgs& args, Stream& stream) = 0;

  /// Reports errors of a plan that only the device can see: lengths beyond the limits, and page ids outside a
  /// cache of `pages` pages (-1 = ids are not checked). Waits for the stream. On a CPU, plan() has already
  /// reported the former.
  virtual Status check_plan(const Plan& plan, int64_t pages, Stream& stream);

  // Steps that are captured once and replayed. A backend with capability.graph == never, and one whose calls
  // are synchronous, refuses all three.

  /// Called once, before the first capture: bytes of workspace for graphs within `limits`.
  virtual Result<size_t> init_graph_state(const AttentionSpec& spec, const AttentionLimits& limits);
  /// A plan whose forward_* may be captured: the captured kernels serve every step within `limits` that has
  /// at most as many sequences and rows as `meta`. They keep the addresses of `meta`'s arrays; the lengths in
  /// them don't matter.
  virtual Result<std::unique_ptr<Plan>> plan_for_capture(const AttentionSpec& spec,
                                                         const AttentionLimits& limits, const BatchMeta& meta,
                                                         Workspace workspace, Stream& stream);
  /// Queues the schedule of another step into a captured plan, before the graph is replayed. `meta` has at
  /// most as many sequences and rows, in the same arrays; rows past its own are not written.
  virtual Status plan_for_replay(Plan& plan, const BatchMeta& meta, Stream& stream);
};

/// Backends by name. Built explicitly; there is no self-registration. A copy is an independent registry over
/// the same rows: `BackendRegistry mine = builtin_backends(); mine.add(info, create);`.
class BackendRegistry {
 public:
  using Factory = std::function<std::unique_ptr<AttentionBackend>()>;
  struct Entry {
    const BackendInfo* info;
    Factory create;  ///< empty when missing(*info) is not
  };

  /// Why `info` can't be added, in one line: it has no name, or its name or an alias is taken by another
  /// backend or by another row of the same version.
  Status check(const BackendInfo& info) const;
  /// The order of registration is the order of automatic choice where priorities() names none. Rows of one
  /// name with different versions are one backend. Aborts the program where check() returns an error;
  /// `create` must be empty exactly for rows with a non-empty `absent`. `info` must outlive the registry and
  /// all copies of it.
  void add(const BackendInfo& info, Factory create);
  const std::vector<Entry>& entries() const { return entries_; }
  /// Exact names in any letter case, and aliases; null when unknown. The first of several versions.
  const Entry* find(std::string_view name) const;
  /// The row of `info`; null when it is not in this registry.
  const Entry* find(const BackendInfo& info) const;

  /// MLA prefill is not absorbed and has separate backends with their own names.
  void add_mla_prefill(const BackendInfo& info, Factory create);
  const std::vector<Entry>& mla_prefill() const { return mla_prefill_; }
  /// The known name nearest to `name` (for "did you mean"); empty when none is near.
  std::string_view nearest(std::string_view name) const;

 private:
  std::vector<Entry> entries_, mla_prefill_;
};

/// Every backend that this program knows, built or not.
const BackendRegistry& builtin_backends();
/// `registry`, or builtin_backends() if it is null.
inline const BackendRegistry& backends_or_builtin(const BackendRegistry* registry) {
  return registry != nullptr ? *registry : builtin_backends();
}

}  // namespace fovea
