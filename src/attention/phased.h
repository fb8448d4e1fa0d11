#pragma once
// The prefill and the decode backend of one kind of layers, used as one: planned once per step, run once per
// layer. Host data alone decides which of them runs a step; the arrays of its BatchMeta may be in a device's
// memory and are not read here.
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "attention/expanded_prefill.h"
#include "attention/work.h"
#include "fovea/attention.h"
#include "fovea/attention_backend.h"

namespace fovea {

/// How a step divides, as known on the host: its first sequences decode (usually one row each), the others
/// are prefills or chunks of prefills.
struct PhaseSplit {
  int num_decodes = 0;  ///< sequences
  int decode_rows = 0;  ///< query rows of these sequences together
  /// [B - num_decodes + 1] q_offsets of the other sequences, starting at 0, in the same memory as the
  /// BatchMeta's. Only for a step of both phases and two backends.
  std::span<const int32_t> prefill_offsets = {};
  /// [B + 1] q_offsets and [B] kv_lens in host memory, from which Use::work is counted; empty = not counted.
  std::span<const int32_t> host_q_offsets = {}, host_kv_lens = {};
};

/// A step of one phase whose forwards are captured in a graph.
struct CapturedAttention {
  Phase phase = Phase::decode;
  std::unique_ptr<Plan> plan;
};

class PhasedAttention {
 public:
  /// The work that forward() gave one backend in one phase.
  struct Use {
    int64_t calls = 0;
    double seconds = 0;
    AttentionWork work;
  };

  /// The backends that `selection` names, created from `registry`. A row that serves both phases is created
  /// twice if its phases differ in their bits: a mixed step is then split as for two rows, so that prefills
  /// beside a decode do not decide which kernels compute it.
  /// A prefill of the registry's mla_prefill() makes an expanded() one.
  static Result<PhasedAttention> create(const KindSelection& selection, const BackendRegistry& registry);

  /// If `decode` is null, `prefill` serves both phases.
  explicit PhasedAttention(std::unique_ptr<AttentionBackend> prefill,
                           std::unique_ptr<AttentionBackend> decode = nullptr);

  AttentionBackend& prefill_backend() { return *prefill_; }
  AttentionBackend& decode_backend() { return decode_ ? *decode_ : *prefill_; }
  const Use& use(Phase phase) const { return use_[static_cast<size_t>(phase)]; }

  /// Bytes that both backends need at the same time.
  Result<size_t> workspace_bytes(const AttentionSpec& spec, const AttentionLimits& limits) const;

  /// Called once per step, for the layers of one spec. A step of one phase goes to that phase's backend; a
  /// mixed one is split when the backends differ, else planned as one extend. The arrays and `workspace` are
  /// kept by reference until the next plan().
  Status plan(const AttentionSpec& spec, const AttentionLimits& limits, const BatchMeta& meta,
              const PhaseSplit& split, Workspace workspace, Stream& stream);

  /// The planned step's rows that forward() leaves out, because latent attention prefills without absorption;
  /// null = none.
  const ExpandedPrefill* expanded() const {
    return expanded_ && !expanded_->blocks().empty() ? &*expanded_ : nullptr;
  }
  /// ExpandedPrefill::attend(), counted in use().
  Status attend(const ExpandedPrefill::Block& block, const AttentionArgs& args,
                const ExpandedPrefill::Scratch& scratch, Stream& stream);

  /// Called once per layer, after plan(). Rows and tensors as in the planned meta.
  Status forward(const AttentionArgs& args, Stream& stream);

  // Captured steps, each of one phase: a mixed step counts as prefill if one backend serves both phases, and
  // is refused otherwise. Their plans are independent of plan(). The functions are those of AttentionBackend
  // with the same names.

  /// Bytes of workspace for captured steps of `phase`.
  Result<size_t> init_graph_state(Phase phase, const AttentionSpec& spec, const AttentionLimits& limits);
  Result<CapturedAttention> plan_for_capture(const AttentionSpec& spec, const AttentionLimits& limits,
                                             const BatchMeta& meta, const PhaseSplit& split,
                                             Workspace workspace, Stream& stream);
  /// Refuses a step that is not of the captured phase.
  Status plan_for_replay(CapturedAttention& captured, const BatchMeta& meta, const PhaseSplit& split,
                         Stream& stream);
  /// Called once per layer within the capture; not counted in use().
  Status forward(const CapturedAttention& captured, const AttentionArgs& args, Stream& stream);

 private:
  Result<size_t> prefill_workspace_bytes(const AttentionSpec& spec, const AttentionLimits& limits) const;
  Result<size_t> decode_workspace_offset(const AttentionSpec& spec, const AttentionLimits& limits) const;
  AttentionBackend& backend(Phase phase) { return phase == Phase::decode ? decode_backend() : *prefill_; }
  Result<Phase> phase_to_capture(const BatchMeta& meta, const PhaseSplit& split) const;
  AttentionWork& work(Phase phase) { return work_[static_cast<size_t>(phase)]; }

  std::unique_ptr<AttentionBackend> prefill_;
  std::unique_ptr<AttentionBackend> decode_;
  std::optional<ExpandedPrefill> expanded_;  // by *prefill_

  AttentionSpec spec_;
  std::unique_ptr<Plan> extend_plan_;
  std::unique_ptr<Plan> decode_plan_;
  int64_t decode_rows_ = 0;            // rows before those of the extend when both plans are set
  std::array<AttentionWork, 2> work_;  // of one forward() with these plans, by phase
  std::array<Use, 2> use_;
};

}  // namespace fovea
