#include "plugin/backend.h"

#include "attention/batch_check.h"
#include "backends/cuda/step_check.h"
#include "device/stream.h"
#include "plugin/convert.h"

namespace fovea::plugin {
namespace {

constexpr size_t kWorkspaceAlignment = 64;  // guaranteed by Workspace
constexpr uint64_t kMostWorkspace = uint64_t{1} << 48;

/// The object made by create(). Plans share it, because they may outlive the backend.
struct Instance {
  explicit Instance(const Library& of) : library(of), functions(of.functions()) {
    Text text;
    const int32_t code = functions.create(&object, text.target());
    created = status_of(code, library.info().name, "create", text);
  }
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;
  ~Instance() {
    if (created) functions.destroy(object);
  }

  const Library& library;
  const fovea_backend& functions;
  void* object = nullptr;
  Status created;
};

/// Callback of launched() and kernels(): appends to a vector of KernelName.
void add_kernel(void* names, const fovea_backend_kernel* kernel) {
  if (kernel == nullptr || kernel->size < sizeof *kernel) return;
  const auto text = [](const char* given) { return std::string(given == nullptr ? "" : given); };
  static_cast<std::vector<KernelName>*>(names)->push_back(
      {text(kernel->family), text(kernel->instance), kernel->split_keys, kernel->split_rows});
}

struct LibraryPlan : Plan {
  LibraryPlan(std::shared_ptr<Instance> of, const AttentionSpec& for_spec, int pages)
      : instance(std::move(of)), spec(for_spec), page_size(pages) {}
  ~LibraryPlan() override {
    if (object != nullptr) instance->functions.destroy_plan(instance->object, object);
  }

  std::vector<KernelName> launched() const override {
    std::vector<KernelName> names;
    if (object != nullptr && instance->functions.launched != nullptr)
      instance->functions.launched(instance->object, object, add_kernel, &names);
    return names;
  }

  std::shared_ptr<Instance> instance;
  AttentionSpec spec;
  int page_size;
  void* object = nullptr;  ///< null = a step without rows
};

class LibraryBackend : public AttentionBackend {
 public:
  explicit LibraryBackend(const Library& library) : instance_(std::make_shared<Instance>(library)) {}

  const BackendInfo& info() const noexcept override { return instance_->library.info(); }

  Result<size_t> workspace_bytes(const AttentionSpec& spec, const AttentionLimits& limits) const override {
    return bytes_of(functions().workspace_bytes, "workspace_bytes", spec, limits);
  }

  Result<std::unique_ptr<Plan>> plan(const AttentionSpec& spec, const AttentionLimits& limits,
                                     const BatchMeta& meta, Workspace workspace, Stream& stream) override {
    FOVEA_TRY(needed, workspace_bytes(spec, limits));
    return planned(functions().plan, "plan", spec, limits, meta, workspace, needed, stream);
  }

  Status forward_extend(const Plan& plan, const AttentionArgs& args, Stream& stream) override {
    return forward(plan, args, Phase::prefill, stream);
  }
  Status forward_decode(const Plan& plan, const AttentionArgs& args, Stream& stream) override {
    return forward(plan, args, Phase::decode, stream);
  }

  Status check_plan(const Plan& base, int64_t pages, Stream& stream) override {
    const auto& plan = static_cast<const LibraryPlan&>(base);
    if (functions().check_plan == nullptr || plan.object == nullptr) return {};
    FOVEA_RETURN_IF_ERROR(check_stream(stream));
    const fovea_backend_stream s = to_abi(stream);
    Text text;
    const int32_t code = functions().check_plan(object(), plan.object, pages, &s, text.target());
    return status_of(code, info().name, "check_plan", text);
  }

  std::vector<KernelName> kernels(const DeviceInfo& device) const override {
    std::vector<KernelName> names;
    if (!instance_->created || functions().kernels == nullptr || device.kind != info().capability.device)
      return names;
    const fovea_backend_device d = to_abi(device);
    functions().kernels(object(), &d, add_kernel, &names);
    return names;
  }

  Result<size_t> init_graph_state(const AttentionSpec& spec, const AttentionLimits& limits) override {
    if (info().capability.graph == GraphSupport::never)
      return AttentionBackend::init_graph_state(spec, limits);
    return bytes_of(functions().graph_workspace_bytes, "graph_workspace_bytes", spec, limits);
  }

  Result<std::unique_ptr<Plan>> plan_for_capture(const AttentionSpec& spec, const AttentionLimits& limits,
                                                 const BatchMeta& meta, Workspace workspace,
                                                 Stream& stream) override {
    if (info().capability.graph == GraphSupport::never)
      return AttentionBackend::plan_for_capture(spec, limits, meta, workspace, stream);
    FOVEA_TRY(needed, init_graph_state(spec, limits));
    return planned(functions().plan_for_capture, "plan_for_capture", spec, limits, meta, workspace, needed,
                   stream);
  }

  Status plan_for_replay(Plan& base, const BatchMeta& meta, Stream& stream) override {
    if (info().capability.graph == GraphSupport::never)
      return AttentionBackend::plan_for_replay(base, meta, stream);
    auto& plan = static_cast<LibraryPlan&>(base);
    if (plan.object == nullptr)
      return invalid(name() + " was captured without rows; capture the largest step");
    FOVEA_RETURN_IF_ERROR(check_stream(stream));
    const fovea_backend_batch batch = to_abi(meta);
    const fovea_backend_stream s = to_abi(stream);
    Text text;
    const int32_t code = functions().plan_for_replay(object(), plan.object, &batch, &s, text.target());
    return status_of(code, info().name, "plan_for_replay", text);
  }

 private:
  const fovea_backend& functions() const { return instance_->functions; }
  void* object() const { return instance_->object; }
  std::string name() const { return std::string(info().name); }

  Status check_stream(const Stream& stream) const {
    const bool cpu = info().capability.device == DeviceKind::cpu;
    if (stream.on_cpu() == cpu) return {};
    return invalid(name() + " runs on " + std::string(to_string(info().capability.device)) +
                   "; the stream is another device's");
  }

  Result<size_t> bytes_of(decltype(fovea_backend::workspace_bytes) function, const char* function_name,
                          const AttentionSpec& spec, const AttentionLimits& limits) const {
    FOVEA_RETURN_IF_ERROR(instance_->created);
    FOVEA_RETURN_IF_ERROR(check_supported(info(), spec));
    FOVEA_RETURN_IF_ERROR(check_limits(limits));
    const fovea_backend_spec s = to_abi(spec, page_size_of(info(), spec));
    const fovea_backend_limits l = to_abi(limits);
    uint64_t bytes = 0;
    Text text;
    const int32_t code = function(object(), &s, &l, &bytes, text.target());
    FOVEA_RETURN_IF_ERROR(status_of(code, info().name, function_name, text));
    if (bytes > kMostWorkspace)
      return Error{ErrorCode::out_of_memory, name() + ": " + function_name + "() gives " +
                                                 std::to_string(bytes) + " bytes; use smaller limits"};
    return static_cast<size_t>(bytes);
  }

  /// Common part of plan() and plan_for_capture().
  Result<std::unique_ptr<Plan>> planned(decltype(fovea_backend::plan) function, const char* function_name,
                                        const AttentionSpec& spec, const AttentionLimits& limits,
                                        const BatchMeta& meta, Workspace workspace, size_t needed,
                                        Stream& stream) {
    FOVEA_RETURN_IF_ERROR(check_stream(stream));
    if (workspace.size() < needed)
      return invalid(name() + " got a workspace of " + std::to_string(workspace.size()) +
                     " bytes; these limits need " + std::to_string(needed));
    if (reinterpret_cast<uintptr_t>(workspace.data()) % kWorkspaceAlignment != 0)
      return invalid(name() + " got a workspace that is not aligned to 64 bytes");
    auto plan = std::make_unique<LibraryPlan>(instance_, spec, page_size_of(info(), spec));
    FOVEA_RETURN_IF_ERROR(stream.on_cpu() ? check_batch(spec, limits, meta, plan->page_size)
                                          : cuda::check_step(spec, limits, meta, plan->page_size));
    if (meta.num_tokens() == 0) return std::unique_ptr<Plan>(std::move(plan));
    const fovea_backend_spec s = to_abi(spec, plan->page_size);
    const fovea_backend_limits l = to_abi(limits);
    const fovea_backend_batch batch = to_abi(meta);
    const fovea_backend_stream on = to_abi(stream);
    Text text;
    const int32_t code = function(object(), &s, &l, &batch, workspace.data(), workspace.size(), &on,
                                  &plan->object, text.target());
    if (code != FOVEA_BACKEND_OK) plan->object = nullptr;
    FOVEA_RETURN_IF_ERROR(status_of(code, info().name, function_name, text));
    if (plan->object == nullptr)
      return Error{ErrorCode::internal,
                   name() + ": " + function_name + "() returned FOVEA_BACKEND_OK and no plan"};
    return std::unique_ptr<Plan>(std::move(plan));
  }

  Status forward(const Plan& base, const AttentionArgs& args, Phase phase, Stream& stream) {
    const auto& plan = static_cast<const LibraryPlan&>(base);
    if (plan.object == nullptr) return {};
    FOVEA_RETURN_IF_ERROR(check_stream(stream));
    FOVEA_RETURN_IF_ERROR(check_args(args, plan.spec, plan.page_size));
    if (args.kv.dtype != resolve(plan.spec.kv_dtype, plan.spec.dtype))
      return invalid("the cache has " + std::string(to_string(args.kv.dtype)) +
                     "; the step was planned for " +
                     std::string(to_string(resolve(plan.spec.kv_dtype, plan.spec.dtype))));
    const fovea_backend_args a = to_abi(args, plan.spec);
    const fovea_backend_stream s = to_abi(stream);
    Text text;
    const int32_t code = functions().forward(
        object(), plan.object, &a, phase == Phase::decode ? FOVEA_BACKEND_DECODE : FOVEA_BACKEND_PREFILL, &s,
        text.target());
    return status_of(code, info().name, "forward", text);
  }

  std::shared_ptr<Instance> instance_;
};

}  // namespace

std::unique_ptr<AttentionBackend> make_backend(const Library& library) {
  return std::make_unique<LibraryBackend>(library);
}

}  // namespace fovea::plugin
