#pragma once
// TORCH_NATIVE, or another backend, under any name; counts the engine's calls.
#include <algorithm>
#include <memory>
#include <string_view>

#include "backends/torch_native/torch_native.h"

namespace fovea::test {

struct Counts {
  int plans = 0, extends = 0, decodes = 0;
  int plans_since_forward = 0;
  int most_plans_in_a_row = 0;  // more than one: planned twice for one step
};

class CountingBackend final : public AttentionBackend {
 public:
  explicit CountingBackend(Counts& counts, std::unique_ptr<AttentionBackend> real = make_torch_native())
      : counts_(counts), real_(std::move(real)) {}
  const BackendInfo& info() const noexcept override { return real_->info(); }
  Result<size_t> workspace_bytes(const AttentionSpec& spec, const AttentionLimits& limits) const override {
    return real_->workspace_bytes(spec, limits);
  }
  Result<std::unique_ptr<Plan>> plan(const AttentionSpec& spec, const AttentionLimits& limits,
                                     const BatchMeta& meta, Workspace workspace, Stream& stream) override {
    ++counts_.plans;
    counts_.most_plans_in_a_row = std::max(counts_.most_plans_in_a_row, ++counts_.plans_since_forward);
    return real_->plan(spec, limits, meta, workspace, stream);
  }
  Status forward_extend(const Plan& plan, const AttentionArgs& args, Stream& stream) override {
    ++counts_.extends;
    counts_.plans_since_forward = 0;
    return real_->forward_extend(plan, args, stream);
  }
  Status forward_decode(const Plan& plan, const AttentionArgs& args, Stream& stream) override {
    ++counts_.decodes;
    counts_.plans_since_forward = 0;
    return real_->forward_decode(plan, args, stream);
  }

 private:
  Counts& counts_;
  std::unique_ptr<AttentionBackend> real_;
};

/// TORCH_NATIVE's row under `name`, which must outlive it.
inline BackendInfo info_named(std::string_view name) {
  BackendInfo info = torch_native_info();
  info.name = name;
  info.aliases = {};
  return info;
}

}  // namespace fovea::test
