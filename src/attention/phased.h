#pragma once
// The prefill and the decode backend of one kind of layers, used as one: planned once per step, run once per
// layer.
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "attention/work.h"
#include "fovea/attention_backend.h"

namespace fovea {

class PhasedAttention {
 public:
  /// The work that forward() gave one backend in one phase.
  struct Use {
    int64_t calls = 0;
    double seconds = 0;
    AttentionWork work;
  };

  /// The backends that `selection` names, created from `registry`.
  static Result<PhasedAttention> create(const KindSelection& selection, const BackendRegistry& registry);

  /// If `decode` is null, `prefill` serves both phases.
  explicit PhasedAttention(std::unique_ptr<AttentionBackend> prefill,
                           std::unique_ptr<AttentionBackend> decode = nullptr);

  AttentionBackend& prefill_backend() { return *prefill_; }
  AttentionBackend& decode_backend() { return decode_ ? *decode_ : *prefill_; }
  const Use& use(Phase phase) const { return use_[static_cast<size_t>(phase)]; }

  /// Bytes that both backends need at the same time.
  Result<size_t> workspace_bytes(const AttentionSpec& spec, const AttentionLimits& limits) const;

  /// Called once per step, for the layers of one spec. The first `num_decodes` sequences of `meta` decode
  /// (usually one row each), the others are prefills or chunks of them. A step of one phase goes to that
  /// phase's backend; a mixed one is split when the backends differ, else planned as one extend. `meta` and
  /// `workspace` are kept by reference until the next plan().
  Status plan(const AttentionSpec& spec, const AttentionLimits& limits, const BatchMeta& meta,
              int num_decodes, Workspace workspace, Stream& stream);

  /// Called once per layer, after plan(). Rows and tensors as in the planned meta.
  Status forward(const AttentionArgs& args, Stream& stream);

 private:
  Result<size_t> decode_workspace_offset(const AttentionSpec& spec, const AttentionLimits& limits) const;
  AttentionWork& work(Phase phase) { return work_[static_cast<size_t>(phase)]; }

  std::unique_ptr<AttentionBackend> prefill_;
  std::unique_ptr<AttentionBackend> decode_;

  AttentionSpec spec_;
  std::unique_ptr<Plan> extend_plan_;
  std::unique_ptr<Plan> decode_plan_;
  int64_t decode_rows_ = 0;            // rows before those of the extend when both plans are set
  std::vector<int32_t> q_offsets_;     // of the split-off extend, from 0
  std::array<AttentionWork, 2> work_;  // of one forward() with these plans, by phase
  std::array<Use, 2> use_;
};

}  // namespace fovea
