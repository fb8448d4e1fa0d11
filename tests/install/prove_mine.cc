// A backend of the calling program, proven there; and one with a defect, which fails its proof.
#include <attention/batch_check.h>
#include <base/thread_pool.h>
#include <conformance/prove.h>
#include <device/stream.h>

#include <cstdio>
#include <vector>

namespace {

using namespace fovea;

/// Hides one key too many with windows; showing one too many could read a page that does not exist.
bool defect = false;

BackendInfo make_info() {
  BackendInfo info;
  info.name = "MINE";
  info.description = "TORCH_NATIVE by another name";
  info.capability = builtin_backends().find("TORCH_NATIVE")->info->capability;
  return info;
}
const BackendInfo& mine() {
  static const BackendInfo info = make_info();
  return info;
}

class Mine : public AttentionBackend {
 public:
  const BackendInfo& info() const noexcept override { return mine(); }
  Result<size_t> workspace_bytes(const AttentionSpec& spec, const AttentionLimits& limits) const override {
    FOVEA_RETURN_IF_ERROR(check_supported(info(), spec));
    return inner_->workspace_bytes(spec, limits);
  }
  Result<std::unique_ptr<Plan>> plan(const AttentionSpec& spec, const AttentionLimits& limits,
                                     const BatchMeta& meta, Workspace workspace, Stream& stream) override {
    FOVEA_RETURN_IF_ERROR(check_supported(info(), spec));
    if (stream.pool().size() < 1) return unsupported("MINE has no threads");
    AttentionSpec asked = spec;
    if (defect && spec.mask.window_left > 0) --asked.mask.window_left;
    return inner_->plan(asked, limits, meta, workspace, stream);
  }
  Status forward_extend(const Plan& plan, const AttentionArgs& args, Stream& stream) override {
    return inner_->forward_extend(plan, args, stream);
  }
  Status forward_decode(const Plan& plan, const AttentionArgs& args, Stream& stream) override {
    return inner_->forward_decode(plan, args, stream);
  }

 private:
  std::unique_ptr<AttentionBackend> inner_ = builtin_backends().find("TORCH_NATIVE")->create();
};

bool window_is_proven() {
  conformance::ProveOptions options;
  options.quick = true;
  for (const Cell& cell : cells(mine().capability))
    if (cell.id() == "window=yes") options.only_cell = cell;
  const auto report = conformance::prove(mine(), [] { return std::make_unique<Mine>(); }, options);
  if (!report) std::puts(report.error().message.c_str());
  return report.ok() && report->all_right();
}

}  // namespace

int main() {
  const bool right = window_is_proven();
  defect = true;
  const bool wrong = window_is_proven();
  std::printf("MINE: windows are %s; with a defect they are %s\n", right ? "proven" : "not proven",
              wrong ? "proven" : "not proven");
  return right && !wrong ? 0 : 1;
}
