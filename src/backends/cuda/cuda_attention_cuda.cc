#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <string>
#include <utility>

#include "attention/batch_check.h"
#include "backends/cuda/cuda_attention.h"
#include "backends/cuda/device_check.h"
#include "backends/cuda/device_facts.h"
#include "backends/cuda/device_kernel.h"
#include "backends/cuda/kernel_names.h"
#include "backends/cuda/launch.h"
#include "backends/cuda/step_check.h"
#include "backends/cuda/step_layout.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/cuda_stream.h"
#include "device/stream.h"
#include "kernels/cuda/check/page_check.h"
#include "kernels/cuda/common/schedule.h"
#include "kernels/cuda/mla/lists.h"

namespace fovea::cuda {
namespace {

constexpr size_t kWorkspaceAlignment = 64;

std::string str(int64_t x) {
  return std::to_string(x);
}

struct CudaPlan : Plan {
  AttentionSpec spec;
  AttentionLimits limits;  ///< the caller's
  BatchMeta meta;          ///< of the plan or the capture
  int page_size = 0;
  int device = 0;
  KernelChoice kernel;
  StepLayout layout;    ///< for the step, or for all steps that the capture serves
  BatchMeta scheduled;  ///< the step whose schedule was queued last
  bool has_schedule = false;
  Workspace workspace;
  AttentionParams params;          ///< all except a layer's tensors
  bool schedule_captured = false;  ///< the schedule was queued into a capture
  /// The stream of the last forward since the schedule was queued; `this` = no forward yet.
  mutable std::atomic<const void*> forwarded{this};
  /// Kernels that forwards have queued: a bit for each variant of the attention kernel, and one for the
  /// merge.
  mutable std::atomic<uint32_t> queued{0};
  static constexpr uint32_t kCombineBit = 1u << 31;

  std::vector<KernelName> launched() const override {
    const uint32_t bits = queued.load(std::memory_order_relaxed);
    std::vector<KernelName> names;
    for (uint8_t variant = 0; variant < 31; ++variant)
      if ((bits >> variant & 1u) != 0)
        for (KernelName& name : names_of(kernel, {true, (bits & kCombineBit) != 0, variant}))
          if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(std::move(name));
    return names;
  }

  bool empty() const { return meta.tokens == 0 || meta.num_seqs() == 0; }
  template <class T>
  T* at(size_t offset) const {
    return reinterpret_cast<T*>(workspace.data() + offset);
  }
};

Result<bool> is_capturing(const CudaStream& stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  FOVEA_CUDA_TRY(cudaStreamIsCapturing(stream.handle(), &status));
  return status == cudaStreamCaptureStatusActive;
}

Status check_arrays(const BatchMeta& meta, const MaskSpec& mask, const void* workspace, int device) {
  // An empty array may begin where its memory ends.
  const auto address = [](const auto& array, bool used = true) -> const void* {
    return used && !array.empty() ? array.data() : nullptr;
  };
  return check_on_device({{"BatchMeta::q_offsets", address(meta.q_offsets)},
                          {"BatchMeta::kv_lens", address(meta.kv_lens)},
                          {"BatchMeta::page_table", address(meta.page_table)},
                          {"BatchMeta::kv_indptr", address(meta.kv_indptr)},
                          {"BatchMeta::kv_indices", address(meta.kv_indices)},
                          {"BatchMeta::spans", address(meta.spans, mask.spans)},
                          {"BatchMeta::span_offsets", address(meta.span_offsets, mask.spans)},
                          {"BatchMeta::packed_mask", address(meta.packed_mask, mask.packed)},
                          {"BatchMeta::packed_offsets", address(meta.packed_offsets, mask.packed)},
                          {"BatchMeta::tree_bias", address(meta.tree_bias, mask.tree)},
                          {"the attention workspace", workspace}},
                         device);
}

PlanInput input_of(const BatchMeta& meta) {
  PlanInput input;
  input.q_offsets = meta.q_offsets.data();
  input.kv_lens = meta.kv_lens.data();
  input.spans = meta.spans.data();
  input.span_offsets = meta.span_offsets.data();
  input.num_seqs = meta.num_seqs();
  input.num_rows = meta.tokens;
  return input;
}

MaskParams mask_of(const AttentionSpec& spec, const BatchMeta& meta) {
  const MaskSpec& mask = spec.mask;
  MaskParams m;
  m.causal = mask.causal;
  m.window_left = mask.window_left;
  m.window_right = mask.window_right;
  m.chunk = mask.chunk;
  m.sink_tokens = mask.window_left >= 0 ? mask.sink_tokens : 0;
  m.softcap = spec.softcap;
  if (mask.spans) {
    static_assert(sizeof(Span) == 2 * sizeof(int32_t));
    if (meta.spans.data() != nullptr) m.spans = &meta.spans.data()->first;
    m.span_offsets = meta.span_offsets.data();
  }
  if (mask.packed) m.packed = meta.packed_mask.data(), m.packed_offsets = meta.packed_offsets.data();
  if (mask.tree) m.tree_bias = meta.tree_bias.data(), m.tree_size = meta.tree_size;
  return m;
}

/// The parameters shared by all layers of the plan.
AttentionParams params_of(const CudaPlan& plan) {
  const AttentionSpec& spec = plan.spec;
  AttentionParams p;
  p.num_kv_heads = spec.num_kv_heads;
  p.group = FastDivisor(static_cast<uint32_t>(spec.num_heads / spec.num_kv_heads));
  p.kv_heads = FastDivisor(static_cast<uint32_t>(spec.num_kv_heads));
  p.head_dim = spec.head_dim;
  p.v_head_dim = spec.v_head_dim;
  p.lse_includes_sink = spec.has_sink && spec.lse_includes_sink;
  p.mask = mask_of(spec, plan.meta);
  p.kv.page_size = FastDivisor(static_cast<uint32_t>(plan.page_size));
  if (!is_ragged(plan.meta))
    p.kv.pages = plan.meta.kv_indptr.empty() ? plan.meta.page_table.data() : plan.meta.kv_indices.data();
  p.partial_rows = plan.layout.partial_rows;
  p.items = plan.at<WorkItem>(spec.use_sparse ? plan.layout.list_items : plan.layout.items);
  p.num_items = plan.at<int32_t>(spec.use_sparse ? plan.layout.num_list_items : plan.layout.num_items);
  if (plan.layout.max_partials > 0) {
    p.partial_out = plan.at<float>(plan.layout.partial_out);
    p.partial_state = plan.at<PartialState>(plan.layout.partial_state);
    if (plan.kernel.kernel.fused_combine) p.arrivals = plan.at<uint32_t>(plan.layout.arrivals);
  }
  p.queue = plan.at<int32_t>(plan.layout.queue);
  return p;
}

/// The strides must have passed check_layer().
RowLayout rows_of(int64_t row_stride, int64_t head_stride, int block_rows, int64_t block_stride, int dim) {
  RowLayout rows;
  rows.row_stride = row_stride;
  rows.head_stride = head_stride == AttentionArgs::kDense ? dim : static_cast<int>(head_stride);
  if (block_rows == 0) return rows;
  rows.block = FastDivisor(static_cast<uint32_t>(block_rows));
  rows.block_gap = block_stride - block_rows * row_stride;
  return rows;
}

/// `kv.pages` must be set.
void put_cache(const KvView& view, KvType type, KvParams& kv) {
  const auto bytes = static_cast<int64_t>(size_of(view.dtype));
  kv.type = type;
  kv.k = static_cast<const char*>(view.k);
  kv.v = static_cast<const char*>(view.v);
  kv.k_page_stride = view.k_page_stride * bytes;
  kv.k_slot_stride = view.k_slot_stride * bytes;
  kv.k_head_stride = view.k_head_stride * bytes;
  kv.v_page_stride = view.v_page_stride * bytes;
  kv.v_slot_stride = view.v_slot_stride * bytes;
  kv.v_head_stride = view.v_head_stride * bytes;
  if (view.form == KvForm::x_packed) {
    kv.k_chunk_stride = view.k_chunk_stride * bytes;
    kv.v_dim_stride = view.v_dim_stride * bytes;
    kv.v_chunk_stride = view.v_chunk_stride * bytes;
  }
  kv.rows = kv.pages == nullptr ? view.num_pages : 0;
  kv.v_scale = view.v_scale;
  kv.k_scales = view.k_scales;
  kv.v_scales = view.v_scales;
  kv.scale_page_stride = view.scale_page_stride;
  kv.scale_slot_stride = view.scale_slot_stride;
  kv.scale_head_stride = view.scale_head_stride;
}

/// Queues what turns a layer's lists of keys into work items, and has `params` read keys by those: as pages
/// of one slot. Error: records too far apart.
Status queue_lists(const CudaPlan& plan, const AttentionArgs& args, AttentionParams& params,
                   CUstream_st* stream) {
  const KvView& kv = args.kv;
  constexpr int64_t kMostUnits = int64_t{1} << 31;
  const int64_t unit = std::gcd(kv.k_page_stride, kv.k_slot_stride);
  if (unit == 0 || kv.num_pages > kMostUnits / std::max<int64_t>(kv.k_page_stride / unit, 1))
    return unsupported("sparse attention over " + str(kv.num_pages) + " pages " + str(kv.k_page_stride) +
                       " and records " + str(kv.k_slot_stride) +
                       " elements apart not supported: they span more than 2^31 times what divides both");
  mla::SparseLists lists;
  lists.chosen = args.chosen;
  lists.chosen_row_stride = args.chosen_row_stride;
  lists.topk = plan.spec.sparse_topk;
  lists.tokens = plan.at<WorkItem>(plan.layout.items);
  lists.num_tokens = plan.at<int32_t>(plan.layout.num_items);
  lists.pages = params.kv.pages;
  lists.page_size = params.kv.page_size;
  lists.page_units = kv.k_page_stride / unit;
  lists.slot_units = static_cast<int>(kv.k_slot_stride / unit);
  lists.heads = plan.spec.num_heads;
  lists.tile_rows = plan.kernel.kernel.rows;
  lists.split_keys = plan.kernel.kernel.split_keys;
  lists.splits = plan.layout.list_splits;
  lists.max_split_tokens = plan.kernel.max_split_tokens;
  lists.slots = plan.at<int32_t>(plan.layout.slots);
  lists.items = plan.at<WorkItem>(plan.layout.list_items);
  lists.num_items = plan.at<int32_t>(plan.layout.num_list_items);
  params.mask = {};
  params.mask.causal = false;
  params.kv.pages = lists.slots;
  params.kv.page_size = FastDivisor(1);
  params.kv.k_page_stride = unit * static_cast<int64_t>(size_of(kv.dtype));
  params.kv.rows = 0;
  return mla::launch_lists(lists, static_cast<int>(plan.layout.max_items), stream);
}

/// Reads `to` from the workspace; waits for the stream.
template <class T>
Status read(const CudaPlan& plan, size_t offset, T& to, CudaStream& stream) {
  FOVEA_RETURN_IF_ERROR(stream.copy(&to, plan.at<T>(offset), sizeof(T)));
  return stream.synchronize();
}

Error lengths_error(const CudaPlan& plan, PlanError error) {
  Error out = plan_error(error, plan.layout.limits);
  if (error != PlanError::kv_len || plan.layout.limits.max_kv_len >= plan.limits.max_kv_len) return out;
  out.message += plan.spec.mask.packed && plan.meta.packed_mask.data() == nullptr
                     ? ", as there is no BatchMeta::packed_mask"
                     : ", the capacity of its page-table row";
  return out;
}

PageCheck page_check_of(const CudaPlan& plan, int64_t pages) {
  const BatchMeta& meta = plan.scheduled;
  PageCheck check;
  check.q_offsets = meta.q_offsets.data();
  check.kv_lens = meta.kv_lens.data();
  check.num_seqs = meta.num_seqs();
  check.table = meta.page_table.data();
  check.table_stride = meta.page_table_stride;
  check.table_columns = static_cast<int>(std::min<int64_t>(meta.page_table_stride, INT32_MAX));
  if (!meta.kv_indptr.empty()) {
    check.indptr = meta.kv_indptr.data();
    check.indices = meta.kv_indices.data();
    check.num_indices = static_cast<int64_t>(meta.kv_indices.size());
  }
  check.page_size = plan.page_size;
  check.num_pages = static_cast<int>(std::min<int64_t>(pages, INT32_MAX));
  check.mask = plan.spec.mask;
  check.spans = meta.spans.data();
  check.span_offsets = meta.span_offsets.data();
  return check;
}

/// Captured kernels keep addresses, so a replay must use the same arrays.
Status check_same_arrays(const BatchMeta& captured, const BatchMeta& meta) {
  const auto same = [](const void* a, const void* b, const char* name) -> Status {
    if (a == b) return {};
    return invalid("BatchMeta::" + std::string(name) +
                   " lies elsewhere than when the plan was captured; copy its contents to where it was");
  };
  FOVEA_RETURN_IF_ERROR(same(captured.q_offsets.data(), meta.q_offsets.data(), "q_offsets"));
  FOVEA_RETURN_IF_ERROR(same(captured.kv_lens.data(), meta.kv_lens.data(), "kv_lens"));
  FOVEA_RETURN_IF_ERROR(same(captured.page_table.data(), meta.page_table.data(), "page_table"));
  FOVEA_RETURN_IF_ERROR(same(captured.kv_indptr.data(), meta.kv_indptr.data(), "kv_indptr"));
  FOVEA_RETURN_IF_ERROR(same(captured.kv_indices.data(), meta.kv_indices.data(), "kv_indices"));
  FOVEA_RETURN_IF_ERROR(same(captured.spans.data(), meta.spans.data(), "spans"));
  FOVEA_RETURN_IF_ERROR(same(captured.span_offsets.data(), meta.span_offsets.data(), "span_offsets"));
  FOVEA_RETURN_IF_ERROR(same(captured.packed_mask.data(), meta.packed_mask.data(), "packed_mask"));
  FOVEA_RETURN_IF_ERROR(same(captured.packed_offsets.data(), meta.packed_offsets.data(), "packed_offsets"));
  FOVEA_RETURN_IF_ERROR(same(captured.tree_bias.data(), meta.tree_bias.data(), "tree_bias"));
  if (captured.page_table_stride != meta.page_table_stride || captured.tree_size != meta.tree_size)
    return invalid("BatchMeta::page_table_stride and tree_size are " + str(meta.page_table_stride) + " and " +
                   str(meta.tree_size) + "; the plan was captured with " + str(captured.page_table_stride) +
                   " and " + str(captured.tree_size));
  if (captured.past_kv_ready != meta.past_kv_ready)
    return invalid("BatchMeta::past_kv_ready is " + str(meta.past_kv_ready) +
                   "; the plan was captured with " + str(captured.past_kv_ready));
  if (captured.phase != meta.phase)
    return invalid("a step of " + std::string(to_string(meta.phase)) + " for a plan that was captured for " +
                   std::string(to_string(captured.phase)));
  return {};
}

/// AttentionParams::planned for a forward on `stream`. The first forward after a schedule waits for all
/// preceding work before it lets later kernels begin, so that the next forwards on its stream find schedule
/// and page lists complete. A capture without the schedule begins after all work before its replay is done.
Result<bool> is_planned(const CudaPlan& plan, const CudaStream& stream) {
  const void* const handle = stream.handle();
  const bool follows = plan.forwarded.exchange(handle, std::memory_order_relaxed) == handle;
  if (follows) return true;
  if (plan.schedule_captured) return false;
  return is_capturing(stream);
}

class CudaAttention : public AttentionBackend {
 public:
  CudaAttention(const BackendInfo& info, FamilyOf family) : info_(info), family_(family) {}

  const BackendInfo& info() const noexcept override { return info_; }

  std::vector<KernelName> kernels(const DeviceInfo& device) const override {
    return reachable_kernels(info_, family_, device);
  }

  Result<size_t> workspace_bytes(const AttentionSpec& spec, const AttentionLimits& limits) const override {
    return cuda_workspace_bytes(info_, family_, spec, limits);
  }

  Result<std::unique_ptr<Plan>> plan(const AttentionSpec& spec, const AttentionLimits& limits,
                                     const BatchMeta& meta, Workspace workspace, Stream& stream) override {
    FOVEA_TRY(plan, make_plan(spec, limits, meta, workspace, stream));
    FOVEA_RETURN_IF_ERROR(queue_schedule(*plan, meta, stream));
    return std::unique_ptr<Plan>(std::move(plan));
  }

  Status forward_extend(const Plan& plan, const AttentionArgs& args, Stream& stream) override {
    return forward(static_cast<const CudaPlan&>(plan), args, Phase::prefill, stream);
  }

  Status forward_decode(const Plan& plan, const AttentionArgs& args, Stream& stream) override {
    return forward(static_cast<const CudaPlan&>(plan), args, Phase::decode, stream);
  }

  Status check_plan(const Plan& base, int64_t pages, Stream& stream) override {
    const auto& plan = static_cast<const CudaPlan&>(base);
    FOVEA_RETURN_IF_ERROR(check_stream(stream, plan.device));
    if (plan.empty() || !plan.has_schedule) return {};
    const CurrentDevice current(plan.device);
    FOVEA_TRY(capturing, is_capturing(stream.cuda()));
    if (capturing)
      return invalid("check_plan() waits for the stream, which is being captured: call it after");
    PlanError error = PlanError::none;
    FOVEA_RETURN_IF_ERROR(read(plan, plan.layout.error, error, stream.cuda()));
    if (error == PlanError::pages) pages = plan.scheduled.num_pages;
    if (error != PlanError::none && error != PlanError::pages) return lengths_error(plan, error);
    if (pages < 0 || plan.scheduled.num_seqs() == 0) return {};
    const PageCheck check = page_check_of(plan, pages);
    FOVEA_RETURN_IF_ERROR(
        launch_page_check(check, plan.at<PageFault>(plan.layout.page_fault), stream.cuda().handle()));
    PageFault fault;
    FOVEA_RETURN_IF_ERROR(read(plan, plan.layout.page_fault, fault, stream.cuda()));
    FOVEA_RETURN_IF_ERROR(page_fault_status(fault, check));
    return error == PlanError::none ? Status()
                                    : plan_error(error, plan.layout.limits);  // ids have changed since
  }

  Result<size_t> init_graph_state(const AttentionSpec& spec, const AttentionLimits& limits) override {
    return workspace_bytes(spec, limits);
  }

  /// Also queues the schedule of `meta`, so that the forwards may run before the first replay. Not within a
  /// capture: each replay would recompute it and overwrite the schedule of plan_for_replay().
  Result<std::unique_ptr<Plan>> plan_for_capture(const AttentionSpec& spec, const AttentionLimits& limits,
                                                 const BatchMeta& meta, Workspace workspace,
                                                 Stream& stream) override {
    FOVEA_TRY(plan, make_plan(spec, limits, meta, workspace, stream));
    const CurrentDevice current(plan->device);
    FOVEA_TRY(capturing, is_capturing(stream.cuda()));
    if (!capturing) FOVEA_RETURN_IF_ERROR(queue_schedule(*plan, meta, stream));
    return std::unique_ptr<Plan>(std::move(plan));
  }

  Status plan_for_replay(Plan& base, const BatchMeta& meta, Stream& stream) override {
    auto& plan = static_cast<CudaPlan&>(base);
    FOVEA_RETURN_IF_ERROR(check_stream(stream, plan.device));
    AttentionLimits captured = plan.limits;
    captured.max_seqs = plan.meta.num_seqs();
    captured.max_tokens = plan.meta.tokens;
    FOVEA_RETURN_IF_ERROR(check_step(plan.spec, captured, meta, plan.page_size));
    FOVEA_RETURN_IF_ERROR(check_same_arrays(plan.meta, meta));
    return queue_schedule(plan, meta, stream);
  }

 private:
  Status check_stream(const Stream& stream, int device) const {
    if (stream.on_cpu()) return invalid(info_.label() + " needs a GPU stream; a CPU stream is given");
    if (device >= 0 && stream.cuda().device() != device)
      return invalid("the plan was made on CUDA device " + str(device) + "; the stream belongs to device " +
                     str(stream.cuda().device()));
    return {};
  }

  /// A plan that was made within a capture has no schedule before plan_for_replay(): its forwards can be
  /// captured, but not run.
  static Status check_scheduled(const CudaPlan& plan, const Stream& stream) {
    if (plan.has_schedule) return {};
    FOVEA_TRY(capturing, is_capturing(stream.cuda()));
    if (capturing) return {};
    return invalid(
        "the plan was made within a capture and has no schedule yet; call plan_for_replay() before a forward "
        "that is not captured");
  }

  Status check_workspace(const AttentionSpec& spec, const AttentionLimits& limits,
                         Workspace workspace) const {
    FOVEA_TRY(needed, workspace_bytes(spec, limits));
    if (workspace.size() < needed)
      return invalid(info_.label() + " got a workspace of " + str(static_cast<int64_t>(workspace.size())) +
                     " bytes; these limits need " + str(static_cast<int64_t>(needed)) +
                     ": allocate the size that workspace_bytes() returns");
    if (reinterpret_cast<uintptr_t>(workspace.data()) % kWorkspaceAlignment != 0)
      return invalid(info_.label() + " got a workspace that is not aligned to 64 bytes");
    return {};
  }

  Result<KernelChoice> kernel_for(const AttentionSpec& spec, KernelUse use, const AttentionLimits& limits,
                                  const DeviceInfo& device) const {
    auto kernel = kernel_on_device(info_, family_, spec, use, limits, device);
    if (kernel) return kernel;
    return Error{kernel.error().code, info_.label() + ": " + kernel.error().message +
                                          "; --attention-backend " +
                                          (spec.use_mla ? "TRITON_MLA" : "TRITON_ATTN") + " needs less"};
  }

  /// Everything but the schedule.
  Result<std::unique_ptr<CudaPlan>> make_plan(const AttentionSpec& spec, const AttentionLimits& limits,
                                              const BatchMeta& meta, Workspace workspace,
                                              Stream& stream) const {
    FOVEA_RETURN_IF_ERROR(check_stream(stream, -1));
    FOVEA_RETURN_IF_ERROR(check_workspace(spec, limits, workspace));
    if (!info_.capability.phases.has(meta.phase))
      return unsupported(info_.label() + ": " + std::string(to_string(meta.phase)) + " not supported");
    auto plan = std::make_unique<CudaPlan>();
    plan->page_size = page_size_of(info_, spec);
    FOVEA_RETURN_IF_ERROR(check_step(spec, limits, meta, plan->page_size));
    plan->spec = spec;
    plan->limits = limits;
    plan->meta = meta;
    plan->workspace = workspace;
    plan->device = stream.cuda().device();
    const CurrentDevice current(plan->device);
    FOVEA_TRY(facts, device_facts(plan->device));
    FOVEA_RETURN_IF_ERROR(check_arrays(meta, spec.mask, workspace.data(), plan->device));
    const KernelUse use = meta.phase == Phase::decode ? KernelUse::decode : KernelUse::extend;
    FOVEA_TRY(kernel, kernel_for(spec, use, limits, facts.info));
    if (plan->empty()) return plan;
    if (use == KernelUse::extend &&
        extend_use(spec, meta, kernel, facts.multiprocessors) == KernelUse::extend_small) {
      FOVEA_TRY(small, kernel_for(spec, KernelUse::extend_small, limits, facts.info));
      kernel = small;
    }
    plan->kernel = kernel;
    FOVEA_TRY(layout, step_layout(spec, kernel, step_limits(spec.mask, limits, meta, plan->page_size)));
    if (layout.bytes > workspace.size())  // only with device_limits() that match no real device
      return invalid(info_.label() + " needs a workspace of " + str(static_cast<int64_t>(layout.bytes)) +
                     " bytes for the kernel that this much shared memory leaves it");
    plan->layout = layout;
    plan->params = params_of(*plan);
    return plan;
  }

  static Status queue_schedule(CudaPlan& plan, const BatchMeta& meta, Stream& stream) {
    plan.scheduled = meta;
    plan.has_schedule = true;
    plan.forwarded = &plan;
    if (plan.empty()) return {};
    const CurrentDevice current(plan.device);
    FOVEA_TRY(capturing, is_capturing(stream.cuda()));
    plan.schedule_captured = capturing;
    PageSource pages;
    pages.first = meta.kv_indptr.empty() ? nullptr : meta.kv_indptr.data();
    pages.stride = meta.page_table_stride;
    const ScheduleView out{
        plan.at<WorkItem>(plan.layout.items), plan.at<int32_t>(plan.layout.num_items),
        plan.at<PlanError>(plan.layout.error),
        plan.kernel.kernel.fused_combine ? plan.at<uint32_t>(plan.layout.arrivals) : nullptr,
        plan.at<int32_t>(plan.layout.queue)};
    PlanInput input = input_of(meta);
    if (meta.num_pages > 0) {
      auto* const bad = plan.at<uint8_t>(plan.layout.bad_pages);
      FOVEA_RETURN_IF_ERROR(
          launch_bad_pages(page_check_of(plan, meta.num_pages), bad, stream.cuda().handle()));
      input.bad_pages = bad;
    }
    return launch_schedule(plan.layout.policy, plan.layout.limits, input, pages, out, stream.cuda().handle());
  }

  Status forward(const CudaPlan& plan, const AttentionArgs& args, Phase phase, Stream& stream) const {
    FOVEA_RETURN_IF_ERROR(check_stream(stream, plan.device));
    if (plan.meta.phase != phase)
      return invalid("the step was planned for " + std::string(to_string(plan.meta.phase)) +
                     " (BatchMeta::phase); this is the forward of " + std::string(to_string(phase)));
    if (plan.empty()) return {};
    const AttentionSpec& spec = plan.spec;
    FOVEA_RETURN_IF_ERROR(check_args(args, spec, plan.page_size));
    FOVEA_RETURN_IF_ERROR(check_layer(spec, args, plan.meta.tokens, plan.kernel.family != Family::portable));
    const CurrentDevice current(plan.device);
    FOVEA_RETURN_IF_ERROR(check_scheduled(plan, stream));
    const KvView& kv = args.kv;
    FOVEA_RETURN_IF_ERROR(
        check_on_device({{"AttentionArgs::q", args.q},
                         {"AttentionArgs::out", args.out},
                         {"AttentionArgs::lse", args.lse},
                         {"AttentionArgs::kv.k", kv.k},
                         {"AttentionArgs::kv.v", kv.v},
                         {"AttentionArgs::kv.k_scales", kv.k_scales},
                         {"AttentionArgs::kv.v_scales", kv.v_scales},
                         {"AttentionArgs::chosen", spec.use_sparse ? args.chosen : nullptr},
                         {"AttentionArgs::sinks", spec.has_sink ? args.sinks : nullptr},
                         {"AttentionArgs::alibi_slopes", spec.has_alibi ? args.alibi_slopes : nullptr}},
                        plan.device));
    FOVEA_TRY(type, kv_type(spec));
    AttentionParams params = plan.params;
    params.q = args.q;
    params.q_rows =
        rows_of(args.q_row_stride, args.q_head_stride, args.q_block_rows, args.q_block_stride, spec.head_dim);
    params.out = args.out;
    params.out_rows = rows_of(args.out_row_stride, args.out_head_stride, args.out_block_rows,
                              args.out_block_stride, spec.v_head_dim);
    params.lse = args.lse;
    params.scale = spec.scale * kv.k_scale;
    params.sinks = spec.has_sink ? args.sinks : nullptr;
    params.mask.alibi_slopes = spec.has_alibi ? args.alibi_slopes : nullptr;
    put_cache(kv, type, params.kv);
    if (plan.kernel.family == Family::sm90 && phase == Phase::decode) {
      FOVEA_TRY(planned, is_planned(plan, stream.cuda()));
      params.planned = planned;
      params.past_kv_ready = planned && plan.meta.past_kv_ready;
    }
    int64_t max_items = plan.layout.max_items;
    if (spec.use_sparse) {
      FOVEA_RETURN_IF_ERROR(queue_lists(plan, args, params, stream.cuda().handle()));
      max_items *= int64_t{plan.layout.head_tiles} * plan.layout.list_splits;
    }
    LaunchRecord record;
    const sm90::WidenSpace space{plan.layout.widen, plan.at<char>(plan.layout.widened)};
    FOVEA_RETURN_IF_ERROR(
        launch(plan.kernel, params, static_cast<int>(max_items), stream.cuda().handle(), record, &space));
    if (record.attention)
      plan.queued.fetch_or(1u << record.variant | (record.combine ? CudaPlan::kCombineBit : 0),
                           std::memory_order_relaxed);
    return {};
  }

  const BackendInfo& info_;
  FamilyOf family_;
};

}  // namespace

std::unique_ptr<AttentionBackend> make_cuda_attention(const BackendInfo& info, FamilyOf family) {
  return std::make_unique<CudaAttention>(info, family);
}

}  // namespace fovea::cuda
