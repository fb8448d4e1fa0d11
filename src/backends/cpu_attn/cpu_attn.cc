#include "backends/cpu_attn/cpu_attn.h"

#include <algorithm>
#include <atomic>
#include <string>

#include "attention/batch_check.h"
#include "backends/cpu_attn/schedule.h"
#include "base/cpu_features.h"
#include "base/thread_pool.h"
#include "device/stream.h"
#include "kernels/cpu/attn_params.h"

namespace fovea {
namespace {

constexpr size_t kWorkspaceAlignment = 64;

constexpr Isa kIsas[] = {Isa::generic, Isa::avx2, Isa::avx512};

/// KernelName::family. MLA's reads V from the widened key.
std::string family_of(bool mla, bool sparse) {
  return sparse ? "cpu_mla_sparse" : mla ? "cpu_mla" : "cpu";
}

struct CpuAttnPlan : Plan {
  AttentionSpec spec;
  int page_size = 0;
  AttentionSchedule schedule;
  attn::ScratchLayout layout;
  float* scratch = nullptr;   // [kMaxSlots, layout.size]
  float* partials = nullptr;  // [max_partial_records, record_floats]
  mutable std::atomic<uint32_t> launched_isas{0};
  mutable std::atomic<KvCacheDType> launched_kv{KvCacheDType::auto_};

  /// Kernels are compiled for each instruction set and each type of keys and values.
  std::vector<KernelName> launched() const override {
    std::vector<KernelName> names;
    const std::string form = spec.use_mla       ? ""
                             : spec.kv_x_packed ? " x_packed"
                             : spec.kv_shuffle  ? " shuffle"
                                                : "";
    for (const Isa isa : kIsas)
      if ((launched_isas >> static_cast<unsigned>(isa) & 1u) != 0)
        names.push_back({family_of(spec.use_mla, spec.use_sparse),
                         std::string(to_string(isa)) + " kv=" + std::string(to_string(launched_kv)) + form,
                         attn::kSplitKeys, attn::kMaxSplitTokens});
    return names;
  }
};

size_t scratch_floats(const attn::ScratchLayout& layout) {
  return static_cast<size_t>(attn::kMaxSlots) * static_cast<size_t>(layout.size);
}

size_t workspace_size(const AttentionSpec& spec, const AttentionLimits& limits) {
  const attn::ScratchLayout layout = attn::scratch_layout(spec.head_dim, spec.v_head_dim, spec.use_mla);
  const size_t partial_floats =
      static_cast<size_t>(max_partial_records(spec, limits) * attn::record_floats(layout));
  return (scratch_floats(layout) + partial_floats) * sizeof(float);
}

attn::Params make_params(const CpuAttnPlan& plan, const AttentionArgs& args) {
  const AttentionSpec& spec = plan.spec;
  attn::Params p;
  p.layout = plan.layout;
  p.num_heads = spec.num_heads;
  p.num_kv_heads = spec.num_kv_heads;
  p.group = spec.num_heads / spec.num_kv_heads;
  p.d = spec.head_dim;
  p.dv = spec.v_head_dim;
  p.latent = spec.use_mla;
  const KvView& kv = args.kv;
  p.scale = spec.scale * (kv.k_scale * attn::load_factor(kv.dtype));
  p.v_scale = kv.v_scale * attn::load_factor(kv.dtype);
  p.softcap = spec.softcap;
  p.dtype = spec.dtype;
  p.q = args.q;
  p.q_rows = {args.q_row_stride, args.q_offset(0, 1, spec.head_dim), args.q_block_rows, args.q_block_stride};
  p.out = args.out;
  p.out_rows = {args.out_row_stride, args.out_offset(0, 1, spec.v_head_dim), args.out_block_rows,
                args.out_block_stride};
  p.lse = args.lse;
  p.lse_includes_sink = spec.has_sink && spec.lse_includes_sink;
  p.sinks = spec.has_sink ? args.sinks : nullptr;
  p.alibi_slopes = spec.has_alibi ? args.alibi_slopes : nullptr;
  p.kv = {kv.k,
          kv.v,
          kv.dtype,
          kv.page_size,
          kv.k_page_stride,
          kv.k_head_stride,
          kv.k_slot_stride,
          kv.v_page_stride,
          kv.v_head_stride,
          kv.v_slot_stride,
          kv.form == KvForm::x_packed,
          kv.k_chunk_stride,
          kv.v_dim_stride,
          kv.v_chunk_stride,
          kv.k_scales,
          kv.v_scales,
          kv.scale_page_stride,
          kv.scale_head_stride,
          kv.scale_slot_stride};
  if (spec.use_sparse) {
    p.chosen = args.chosen;
    p.chosen_row = args.chosen_row_stride;
  }
  p.seqs = plan.schedule.seqs.data();
  p.row_keys = plan.schedule.row_keys.data();
  p.partials = plan.partials;
  return p;
}

/// Calls run(i, scratch) for i in [0, n), started in ascending order, with at most one running on a slot.
template <class Run>
void for_each_item(const CpuAttnPlan& plan, size_t n, double work, ThreadPool& pool, const Run& run) {
  std::atomic<size_t> next{0};
  const int slots = std::min(pool.size(), attn::kMaxSlots);
  const auto run_slot = [&](int64_t slot, int) {
    float* scratch = plan.scratch + slot * plan.layout.size;
    for (size_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < n;)
      run(i, scratch);
  };
  pool.parallel_tasks(slots, run_slot, {work});
}

/// CPU_ATTN, CPU_MLA and CPU_MLA_SPARSE, which differ in their rows only.
class CpuAttn : public AttentionBackend {
 public:
  explicit CpuAttn(const BackendInfo& info) : info_(info) {}
  const BackendInfo& info() const noexcept override { return info_; }

  std::vector<KernelName> kernels(const DeviceInfo&) const override {
    std::vector<KernelName> names;
    const bool mla = info_.capability.features.has(Feature::mla);
    const std::string family = family_of(mla, info_.capability.features.has(Feature::sparse));
    for (const Isa isa : kIsas)
      for (int kv = 0; kv < static_cast<int>(KvCacheDType::count_) && isa <= detect_isa(); ++kv) {
        const auto dtype = static_cast<KvCacheDType>(kv);
        if (dtype == KvCacheDType::auto_ || !info().capability.kv_dtypes.has(dtype)) continue;
        const std::string name = std::string(to_string(isa)) + " kv=" + std::string(to_string(dtype));
        names.push_back({family, name});
        if (mla) continue;
        for (const char* form : {" x_packed", " shuffle"})
          names.push_back({family, name + form});
      }
    return names;
  }

  Result<size_t> workspace_bytes(const AttentionSpec& spec, const AttentionLimits& limits) const override {
    FOVEA_RETURN_IF_ERROR(check_supported(info(), spec));
    FOVEA_RETURN_IF_ERROR(check_limits(limits));
    return workspace_size(spec, limits);
  }

  Result<std::unique_ptr<Plan>> plan(const AttentionSpec& spec, const AttentionLimits& limits,
                                     const BatchMeta& meta, Workspace workspace, Stream& stream) override {
    FOVEA_RETURN_IF_ERROR(check_supported(info(), spec));
    FOVEA_RETURN_IF_ERROR(check_limits(limits));
    const size_t needed = workspace_size(spec, limits);
    if (workspace.size() < needed)
      return invalid(name() + " got a workspace of " + std::to_string(workspace.size()) +
                     " bytes; these limits need " + std::to_string(needed) +
                     ": allocate the size that workspace_bytes() returns");
    if (reinterpret_cast<uintptr_t>(workspace.data()) % kWorkspaceAlignment != 0)
      return invalid(name() + " got a workspace that is not aligned to 64 bytes");
    auto plan = std::make_unique<CpuAttnPlan>();
    plan->page_size = page_size_of(info(), spec);
    FOVEA_RETURN_IF_ERROR(check_batch(spec, limits, meta, plan->page_size));
    const int64_t packed_rows = int64_t{meta.num_tokens()} * (spec.num_heads / spec.num_kv_heads);
    if (packed_rows > INT32_MAX)
      return invalid(name() + " got " + std::to_string(packed_rows) +
                     " rows x heads of a KV group in one step; at most " + std::to_string(INT32_MAX) +
                     " are possible: use smaller chunks");
    plan->spec = spec;
    plan->layout = attn::scratch_layout(spec.head_dim, spec.v_head_dim, spec.use_mla);
    plan->scratch = reinterpret_cast<float*>(workspace.data());
    plan->partials = plan->scratch + scratch_floats(plan->layout);
    const int threads = std::min(stream.pool().size(), attn::kMaxSlots);
    if (meta.num_tokens() > 0)
      plan->schedule = make_schedule(spec, meta, threads, max_partial_records(spec, limits));
    return std::unique_ptr<Plan>(std::move(plan));
  }

  Status forward_extend(const Plan& base, const AttentionArgs& args, Stream& stream) override {
    const auto& plan = static_cast<const CpuAttnPlan&>(base);
    const AttentionSchedule& schedule = plan.schedule;
    if (schedule.items.empty()) return {};
    FOVEA_RETURN_IF_ERROR(check_args(args, plan.spec, plan.page_size));
    const attn::Params params = make_params(plan, args);
    const attn::Kernels& kernels = attn::current_kernels();
    plan.launched_isas |= 1u << static_cast<unsigned>(current_isa());
    plan.launched_kv = args.kv.dtype;
    // Estimate for one core: 16 products per nanosecond for the keys, and the same for the values.
    const double width = plan.spec.head_dim + plan.spec.v_head_dim;
    const double row_ns = attn::kTileKeys * width / 16, combine_ns = plan.spec.v_head_dim / 4.0;
    for_each_item(plan, schedule.items.size(), static_cast<double>(schedule.tile_rows) * row_ns,
                  stream.pool(),
                  [&](size_t i, float* scratch) { kernels.run_item(params, schedule.items[i], scratch); });
    if (schedule.combines.empty()) return {};
    for_each_item(plan, schedule.combines.size(), static_cast<double>(schedule.partial_records) * combine_ns,
                  stream.pool(), [&](size_t i, float* scratch) {
                    kernels.run_combine(params, schedule.combines[i], scratch);
                  });
    return {};
  }

  /// Same kernels as extend: a row's bits do not depend on the number of rows in the step.
  Status forward_decode(const Plan& plan, const AttentionArgs& args, Stream& stream) override {
    return forward_extend(plan, args, stream);
  }

 private:
  std::string name() const { return std::string(info_.name); }

  const BackendInfo& info_;
};

}  // namespace

std::unique_ptr<AttentionBackend> make_cpu_attn() {
  return std::make_unique<CpuAttn>(cpu_attn_info());
}

std::unique_ptr<AttentionBackend> make_cpu_mla() {
  return std::make_unique<CpuAttn>(cpu_mla_info());
}

std::unique_ptr<AttentionBackend> make_cpu_mla_sparse() {
  return std::make_unique<CpuAttn>(cpu_mla_sparse_info());
}

}  // namespace fovea
