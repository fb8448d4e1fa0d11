#include "plugin/convert.h"

#include "base/thread_pool.h"
#include "device/stream.h"
#include "plugin/enums.h"

namespace fovea::plugin {
namespace {

static_assert(sizeof(fovea_backend_span) == sizeof(Span) &&
              offsetof(fovea_backend_span, last) == offsetof(Span, last));

template <class T>
T sized() {
  T out{};
  out.size = sizeof(T);
  return out;
}

int32_t flag(bool value) {
  return value ? 1 : 0;
}

/// Whether this thread is running a task of parallel_for: the team is not reentrant.
thread_local bool in_task = false;
thread_local int32_t task_thread = 0;

void parallel_for(void* team, int64_t tasks, void (*task)(void* data, int64_t index, int32_t thread),
                  void* data) {
  if (tasks <= 0 || task == nullptr) return;
  if (in_task) {
    for (int64_t i = 0; i < tasks; ++i)
      task(data, i, task_thread);
    return;
  }
  static_cast<ThreadPool*>(team)->parallel_tasks(tasks, [&](int64_t index, int thread) {
    in_task = true;
    task_thread = thread;
    task(data, index, thread);
    in_task = false;
  });
}

}  // namespace

fovea_backend_spec to_abi(const AttentionSpec& spec, int page_size) {
  auto out = sized<fovea_backend_spec>();
  const MaskSpec& mask = spec.mask;
  out.num_heads = spec.num_heads;
  out.num_kv_heads = spec.num_kv_heads;
  out.head_dim = spec.head_dim;
  out.v_head_dim = spec.v_head_dim;
  out.scale = spec.scale;
  out.softcap = spec.softcap;
  out.dtype = to_abi(abi_dtypes(), spec.dtype);
  out.kv_dtype = to_abi(abi_kv_dtypes(), resolve(spec.kv_dtype, spec.dtype));
  out.type = to_abi(abi_types(), spec.type);
  out.page_size = page_size;
  out.causal = flag(mask.causal);
  out.window_left = mask.window_left;
  out.window_right = mask.window_right;
  out.chunk = mask.chunk;
  out.sink_tokens = mask.sink_tokens;
  out.spans = flag(mask.spans);
  out.packed_mask = flag(mask.packed);
  out.tree = flag(mask.tree);
  out.has_sink = flag(spec.has_sink);
  out.lse_includes_sink = flag(spec.lse_includes_sink);
  out.has_alibi = flag(spec.has_alibi);
  out.kv_x_packed = flag(spec.kv_x_packed);
  out.kv_shuffle = flag(spec.kv_shuffle);
  out.use_mla = flag(spec.use_mla);
  out.use_sparse = flag(spec.use_sparse);
  out.fp64_accumulate = flag(spec.fp64_accumulate);
  out.mla_nope_head_dim = spec.mla_nope_head_dim;
  out.mla_rope_head_dim = spec.mla_rope_head_dim;
  out.mla_v_head_dim = spec.mla_v_head_dim;
  out.needs = set_to_abi(abi_features(), spec.needs);
  return out;
}

fovea_backend_limits to_abi(const AttentionLimits& limits) {
  auto out = sized<fovea_backend_limits>();
  out.max_seqs = limits.max_seqs;
  out.max_tokens = limits.max_tokens;
  out.max_kv_len = limits.max_kv_len;
  out.max_kv_tokens = limits.max_kv_tokens;
  static_assert(static_cast<int>(TuneFor::limits) == FOVEA_BACKEND_TUNE_FOR_LIMITS &&
                static_cast<int>(TuneFor::many_sequences) == FOVEA_BACKEND_TUNE_FOR_MANY_SEQUENCES &&
                static_cast<int>(TuneFor::few_sequences) == FOVEA_BACKEND_TUNE_FOR_FEW_SEQUENCES);
  out.tune_for = static_cast<int32_t>(limits.tune_for);
  return out;
}

fovea_backend_batch to_abi(const BatchMeta& meta) {
  auto out = sized<fovea_backend_batch>();
  const auto address = [](const auto& array) { return array.empty() ? nullptr : array.data(); };
  out.phase = to_abi(abi_phases(), meta.phase);
  out.num_seqs = meta.num_seqs();
  out.num_tokens = meta.num_tokens();
  out.q_offsets = address(meta.q_offsets);
  out.kv_lens = address(meta.kv_lens);
  out.page_table = address(meta.page_table);
  out.page_table_stride = meta.page_table_stride;
  out.kv_indptr = address(meta.kv_indptr);
  out.kv_indices = address(meta.kv_indices);
  out.spans = reinterpret_cast<const fovea_backend_span*>(address(meta.spans));
  out.span_offsets = address(meta.span_offsets);
  out.packed_mask = address(meta.packed_mask);
  out.packed_offsets = address(meta.packed_offsets);
  out.page_table_entries = static_cast<int64_t>(meta.page_table.size());
  out.num_kv_indices = static_cast<int64_t>(meta.kv_indices.size());
  out.num_spans = static_cast<int64_t>(meta.spans.size());
  out.packed_bytes = static_cast<int64_t>(meta.packed_mask.size());
  out.tree_bias = address(meta.tree_bias);
  out.tree_size = meta.tree_size;
  out.past_kv_ready = flag(meta.past_kv_ready);
  out.num_pages = meta.num_pages;
  return out;
}

fovea_backend_args to_abi(const AttentionArgs& args, const AttentionSpec& spec) {
  auto out = sized<fovea_backend_args>();
  const KvView& kv = args.kv;
  out.kv_form = kv.form != KvForm::x_packed ? FOVEA_BACKEND_FORM_STRIDED
                : kv.v_chunk_stride != 0    ? FOVEA_BACKEND_FORM_SHUFFLE
                                            : FOVEA_BACKEND_FORM_X_PACKED;
  out.q = args.q;
  out.q_row_stride = args.q_row_stride;
  out.q_head_stride = args.q_head_stride == AttentionArgs::kDense ? spec.head_dim : args.q_head_stride;
  out.q_block_rows = args.q_block_rows;
  out.q_block_stride = args.q_block_stride;
  out.out = args.out;
  out.out_row_stride = args.out_row_stride;
  out.out_head_stride =
      args.out_head_stride == AttentionArgs::kDense ? spec.v_head_dim : args.out_head_stride;
  out.out_block_rows = args.out_block_rows;
  out.out_block_stride = args.out_block_stride;
  out.lse = args.lse;
  out.k = kv.k;
  out.v = kv.v;
  out.num_pages = kv.num_pages;
  out.k_page_stride = kv.k_page_stride;
  out.k_head_stride = kv.k_head_stride;
  out.k_slot_stride = kv.k_slot_stride;
  out.k_chunk_stride = kv.k_chunk_stride;
  out.v_page_stride = kv.v_page_stride;
  out.v_head_stride = kv.v_head_stride;
  out.v_slot_stride = kv.v_slot_stride;
  out.v_dim_stride = kv.v_dim_stride;
  out.v_chunk_stride = kv.v_chunk_stride;
  out.k_scale = kv.k_scale;
  out.v_scale = kv.v_scale;
  out.k_scales = kv.k_scales;
  out.v_scales = kv.v_scales;
  out.scale_page_stride = kv.scale_page_stride;
  out.scale_head_stride = kv.scale_head_stride;
  out.scale_slot_stride = kv.scale_slot_stride;
  out.sinks = spec.has_sink ? args.sinks : nullptr;
  out.alibi_slopes = spec.has_alibi ? args.alibi_slopes : nullptr;
  return out;
}

fovea_backend_device to_abi(const DeviceInfo& device) {
  auto out = sized<fovea_backend_device>();
  out.kind = to_abi(abi_devices(), device.kind);
  out.compute_capability = device.compute_capability;
  out.shared_bytes =
      device.shared_bytes != 0 ? device.shared_bytes : shared_bytes_of(device.compute_capability);
  return out;
}

fovea_backend_stream to_abi(Stream& stream) {
  auto out = sized<fovea_backend_stream>();
  if (stream.on_cpu()) {
    out.device = FOVEA_BACKEND_CPU;
    out.num_threads = stream.pool().size();
    out.team = &stream.pool();
    out.parallel_for = parallel_for;
  } else {
    out.device = FOVEA_BACKEND_CUDA;
    put_cuda_stream(stream, out);
  }
  return out;
}

}  // namespace fovea::plugin
