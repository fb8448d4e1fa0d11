#pragma once
// TORCH_NATIVE as the attention backend of a GuardedDevice: plan() keeps the arrays and reads none of them,
// as a GPU's does, and forwards are queued.
#include <memory>
#include <string_view>
#include <utility>

#include "backends/torch_native/torch_native.h"
#include "tests/reference_device/guarded_device.h"

namespace fovea::test {

class ReferenceBackend : public AttentionBackend {
 public:
  static constexpr std::string_view kName = "REFERENCE_DEVICE";
  static constexpr size_t kWorkspace = 4096;

  explicit ReferenceBackend(const GuardedDevice& device) : device_(device), real_(make_torch_native()) {}

  static const BackendInfo& row() {
    static const BackendInfo info = [] {
      BackendInfo i = torch_native_info();
      i.name = kName;
      i.aliases = {};
      i.documented = nullptr;
      i.capability.device = DeviceKind::xpu;
      return i;
    }();
    return info;
  }
  /// The built-in backends and this one. `device` must outlive it.
  static BackendRegistry registry(const GuardedDevice& device) {
    BackendRegistry registry = builtin_backends();
    registry.add(row(), [&device] { return std::make_unique<ReferenceBackend>(device); });
    return registry;
  }

  const BackendInfo& info() const noexcept override { return row(); }
  Result<size_t> workspace_bytes(const AttentionSpec&, const AttentionLimits&) const override {
    return kWorkspace;
  }

  Result<std::unique_ptr<Plan>> plan(const AttentionSpec& spec, const AttentionLimits& limits,
                                     const BatchMeta& meta, Workspace workspace, Stream&) override {
    FOVEA_CHECK(workspace.size() >= kWorkspace && meta.tokens >= 0);
    auto plan = std::make_unique<Planned>();
    plan->step = {spec, limits, meta, workspace};
    return std::unique_ptr<Plan>(std::move(plan));
  }
  Status forward_extend(const Plan& plan, const AttentionArgs& args, Stream& stream) override {
    return queue(plan, args, stream, false);
  }
  Status forward_decode(const Plan& plan, const AttentionArgs& args, Stream& stream) override {
    return queue(plan, args, stream, true);
  }

 private:
  struct Step {
    AttentionSpec spec;
    AttentionLimits limits;
    BatchMeta meta;
    Workspace workspace;
  };
  struct Planned : Plan {
    Step step;
  };

  /// The operation has its own copy of the step, because the plan may be destroyed before it runs.
  Status queue(const Plan& plan, const AttentionArgs& args, Stream& stream, bool decode) {
    device_.queue([real = real_, step = static_cast<const Planned&>(plan).step, args, &stream, decode] {
      std::memset(step.workspace.data(), 0xA5, kWorkspace);
      auto planned = real->plan(step.spec, step.limits, step.meta, {}, stream);
      FOVEA_CHECK(planned.ok());
      const Status status = decode ? real->forward_decode(**planned, args, stream)
                                   : real->forward_extend(**planned, args, stream);
      FOVEA_CHECK(status.ok());
    });
    return {};
  }

  const GuardedDevice& device_;
  std::shared_ptr<AttentionBackend> real_;
};

}  // namespace fovea::test
