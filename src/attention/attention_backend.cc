// Default implementations of the graph functions and of check_plan(): errors of backends without graphs.
#include "fovea/attention_backend.h"

#include <string>

namespace fovea {
namespace {

Error no_graphs(const BackendInfo& info) {
  return unsupported(info.label() + " can't be captured in a graph: " +
                     (info.capability.device == DeviceKind::cpu ? "its work is done when its calls return"
                                                                : "its kernels are not made for it"));
}

}  // namespace

std::vector<KernelName> AttentionBackend::kernels(const DeviceInfo&) const {
  return {};
}

Status AttentionBackend::check_plan(const Plan&, int64_t, Stream&) {
  return {};
}

Result<size_t> AttentionBackend::init_graph_state(const AttentionSpec&, const AttentionLimits&) {
  return no_graphs(info());
}

Result<std::unique_ptr<Plan>> AttentionBackend::plan_for_capture(const AttentionSpec&, const AttentionLimits&,
                                                                 const BatchMeta&, Workspace, Stream&) {
  return no_graphs(info());
}

Status AttentionBackend::plan_for_replay(Plan&, const BatchMeta&, Stream&) {
  return no_graphs(info());
}

}  // namespace fovea
