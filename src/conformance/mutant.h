#pragma once
// For tests: a backend with a defect.
#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "attention/batch_check.h"
#include "fovea/attention_backend.h"

namespace fovea::conformance {

/// Wraps a backend with changes before and after its calls.
struct Mutant : AttentionBackend {
  /// Modifiable copies of a step's arrays; valid as long as the mutant.
  struct Step {
    std::vector<int32_t> kv_lens, page_table, kv_indices;
  };

  explicit Mutant(std::unique_ptr<AttentionBackend> original) : inner(std::move(original)) {}

  std::function<void(AttentionSpec&)> spec = [](AttentionSpec&) {};
  std::function<void(AttentionLimits&)> declared = [](AttentionLimits&) {};
  std::function<void(const AttentionSpec&, BatchMeta&, Step&)> meta;
  std::function<void(AttentionArgs&)> before = [](AttentionArgs&) {};
  std::function<void(const AttentionArgs&)> after = [](const AttentionArgs&) {};
  /// Steps whose forwards write nothing.
  std::function<bool(const AttentionSpec&, const BatchMeta&)> skips = [](const AttentionSpec&,
                                                                         const BatchMeta&) { return false; };
  std::unique_ptr<AttentionBackend> inner;
  const BackendInfo* claims = nullptr;  ///< replaces the original's; what these claims lack is refused
  int num_seqs = 0;                     ///< of the last plan

  const BackendInfo& info() const noexcept override { return claims != nullptr ? *claims : inner->info(); }
  Result<size_t> workspace_bytes(const AttentionSpec& s, const AttentionLimits& l) const override {
    FOVEA_RETURN_IF_ERROR(check_supported(info(), s));
    FOVEA_TRY(bytes, inner->workspace_bytes(s, l));
    AttentionSpec changed = s;
    spec(changed);  // the changed spec may select other kernels
    const Result<size_t> others = inner->workspace_bytes(changed, changed_limits(l));
    return others ? std::max(bytes, *others) : bytes;
  }
  Result<std::unique_ptr<Plan>> plan(const AttentionSpec& s, const AttentionLimits& l, const BatchMeta& given,
                                     Workspace workspace, Stream& stream) override {
    FOVEA_RETURN_IF_ERROR(check_supported(info(), s));
    AttentionSpec changed = s;
    spec(changed);
    num_seqs = given.num_seqs();
    skip_ = skips(s, given);
    const AttentionLimits changed_to = changed_limits(l);
    if (meta == nullptr) return inner->plan(changed, changed_to, given, workspace, stream);
    Step& step = steps_.emplace_back();
    step.kv_lens.assign(given.kv_lens.begin(), given.kv_lens.end());
    step.page_table.assign(given.page_table.begin(), given.page_table.end());
    step.kv_indices.assign(given.kv_indices.begin(), given.kv_indices.end());
    BatchMeta other = given;
    other.kv_lens = step.kv_lens;
    other.page_table = step.page_table;
    other.kv_indices = step.kv_indices;
    meta(changed, other, step);
    AttentionLimits more = changed_to;
    more.max_kv_len += 1;
    more.max_kv_tokens += given.num_seqs();
    return inner->plan(changed, more, other, workspace, stream);
  }
  Status forward_extend(const Plan& plan, const AttentionArgs& args, Stream& stream) override {
    return forward(&AttentionBackend::forward_extend, plan, args, stream);
  }
  Status forward_decode(const Plan& plan, const AttentionArgs& args, Stream& stream) override {
    return forward(&AttentionBackend::forward_decode, plan, args, stream);
  }
  Status check_plan(const Plan& plan, int64_t pages, Stream& stream) override {
    return inner->check_plan(plan, pages, stream);
  }
  Result<size_t> init_graph_state(const AttentionSpec& s, const AttentionLimits& l) override {
    return inner->init_graph_state(s, changed_limits(l));
  }
  Result<std::unique_ptr<Plan>> plan_for_capture(const AttentionSpec& s, const AttentionLimits& l,
                                                 const BatchMeta& step, Workspace workspace,
                                                 Stream& stream) override {
    AttentionSpec changed = s;
    spec(changed);
    skip_ = skips(s, step);
    return inner->plan_for_capture(changed, changed_limits(l), step, workspace, stream);
  }
  Status plan_for_replay(Plan& plan, const BatchMeta& step, Stream& stream) override {
    return inner->plan_for_replay(plan, step, stream);
  }

 protected:
  using Forward = Status (AttentionBackend::*)(const Plan&, const AttentionArgs&, Stream&);
  virtual Status forward(Forward which, const Plan& plan, const AttentionArgs& args, Stream& stream) {
    if (skip_) return {};
    AttentionArgs changed = args;
    before(changed);
    FOVEA_RETURN_IF_ERROR(((*inner).*which)(plan, changed, stream));
    after(args);
    return {};
  }

 private:
  AttentionLimits changed_limits(AttentionLimits l) const {
    declared(l);
    return l;
  }

  std::deque<Step> steps_;
  bool skip_ = false;  // skip the forwards of the last plan
};

}  // namespace fovea::conformance
