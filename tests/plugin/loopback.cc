#include "loopback.h"

#include <gtest/gtest.h>

#include <deque>

#include "plugin/backend.h"
#include "plugin/enums.h"

namespace fovea::loopback {
namespace {

using namespace fovea::plugin;

const BackendRegistry::Entry* inner = nullptr;
WithStream with_stream = nullptr;

/// What a plan's C++ side refers to.
struct Planned {
  std::unique_ptr<Plan> plan;
  AttentionSpec spec;
};

AttentionBackend& backend(void* instance) {
  return *static_cast<AttentionBackend*>(instance);
}

int32_t report(const Status& status, const fovea_backend_error* error) {
  if (status) return FOVEA_BACKEND_OK;
  std::snprintf(error->text, error->capacity, "%s", status.error().message.c_str());
  switch (status.error().code) {
    case ErrorCode::unsupported: return FOVEA_BACKEND_UNSUPPORTED;
    case ErrorCode::invalid_argument: return FOVEA_BACKEND_INVALID_ARGUMENT;
    default: return FOVEA_BACKEND_INTERNAL;
  }
}

template <class E>
E enumerator(std::span<const Enumerator<E>> all, int number) {
  return *from_abi(all, number, "number");
}

AttentionSpec from_abi(const fovea_backend_spec& s) {
  AttentionSpec spec;
  spec.num_heads = s.num_heads;
  spec.num_kv_heads = s.num_kv_heads;
  spec.head_dim = s.head_dim;
  spec.v_head_dim = s.v_head_dim;
  spec.scale = s.scale;
  spec.softcap = s.softcap;
  spec.dtype = enumerator(abi_dtypes(), s.dtype);
  spec.kv_dtype = enumerator(abi_kv_dtypes(), s.kv_dtype);
  spec.kv_x_packed = s.kv_x_packed != 0;
  spec.kv_shuffle = s.kv_shuffle != 0;
  spec.type = enumerator(abi_types(), s.type);
  spec.mask = {s.causal != 0, s.window_left, s.window_right,     s.chunk,
               s.sink_tokens, s.spans != 0,  s.packed_mask != 0, s.tree != 0};
  spec.page_size = s.page_size;
  spec.has_sink = s.has_sink != 0;
  spec.lse_includes_sink = s.lse_includes_sink != 0;
  spec.has_alibi = s.has_alibi != 0;
  spec.use_mla = s.use_mla != 0;
  spec.use_sparse = s.use_sparse != 0;
  spec.fp64_accumulate = s.fp64_accumulate != 0;
  spec.needs = *set_from_abi(abi_features(), s.needs, "needs");
  return spec;
}

AttentionLimits from_abi(const fovea_backend_limits& l) {
  AttentionLimits limits;
  limits.max_seqs = l.max_seqs;
  limits.max_tokens = l.max_tokens;
  limits.max_kv_tokens = l.max_kv_tokens;
  limits.max_kv_len = l.max_kv_len;
  limits.tune_for = static_cast<TuneFor>(l.tune_for);
  return limits;
}

template <class T>
std::span<const T> array(const T* data, int64_t size) {
  return data == nullptr ? std::span<const T>() : std::span(data, static_cast<size_t>(size));
}

BatchMeta from_abi(const fovea_backend_batch& b) {
  BatchMeta meta;
  meta.phase = enumerator(abi_phases(), b.phase);
  meta.tokens = b.num_tokens;
  meta.q_offsets = array(b.q_offsets, b.num_seqs + 1);
  meta.kv_lens = array(b.kv_lens, b.num_seqs);
  meta.page_table = array(b.page_table, b.page_table_entries);
  meta.page_table_stride = b.page_table_stride;
  meta.kv_indptr = array(b.kv_indptr, b.num_seqs + 1);
  meta.kv_indices = array(b.kv_indices, b.num_kv_indices);
  meta.spans = array(reinterpret_cast<const Span*>(b.spans), b.num_spans);
  meta.span_offsets = array(b.span_offsets, b.num_seqs + 1);
  meta.packed_mask = array(b.packed_mask, b.packed_bytes);
  meta.packed_offsets = array(b.packed_offsets, b.num_seqs + 1);
  meta.tree_bias = array(b.tree_bias, int64_t{b.tree_size} * b.tree_size);
  meta.tree_size = b.tree_size;
  meta.past_kv_ready = b.past_kv_ready != 0;
  meta.num_pages = b.num_pages;
  return meta;
}

AttentionArgs from_abi(const fovea_backend_args& a, const AttentionSpec& spec) {
  AttentionArgs args;
  args.q = a.q;
  args.q_row_stride = a.q_row_stride;
  args.q_head_stride = a.q_head_stride;
  args.q_block_rows = a.q_block_rows;
  args.q_block_stride = a.q_block_stride;
  args.out = a.out;
  args.out_row_stride = a.out_row_stride;
  args.out_head_stride = a.out_head_stride;
  args.out_block_rows = a.out_block_rows;
  args.out_block_stride = a.out_block_stride;
  args.lse = a.lse;
  KvView& kv = args.kv;
  kv.k = a.k;
  kv.v = a.v;
  kv.dtype = spec.kv_dtype;
  kv.page_size = spec.page_size;
  kv.num_pages = a.num_pages;
  kv.k_page_stride = a.k_page_stride;
  kv.k_head_stride = a.k_head_stride;
  kv.k_slot_stride = a.k_slot_stride;
  kv.v_page_stride = a.v_page_stride;
  kv.v_head_stride = a.v_head_stride;
  kv.v_slot_stride = a.v_slot_stride;
  kv.form = a.kv_form == FOVEA_BACKEND_FORM_STRIDED ? KvForm::strided : KvForm::x_packed;
  kv.k_chunk_stride = a.k_chunk_stride;
  kv.v_dim_stride = a.v_dim_stride;
  kv.v_chunk_stride = a.v_chunk_stride;
  kv.k_scale = a.k_scale;
  kv.v_scale = a.v_scale;
  kv.k_scales = a.k_scales;
  kv.v_scales = a.v_scales;
  kv.scale_page_stride = a.scale_page_stride;
  kv.scale_head_stride = a.scale_head_stride;
  kv.scale_slot_stride = a.scale_slot_stride;
  args.sinks = a.sinks;
  args.alibi_slopes = a.alibi_slopes;
  return args;
}

DeviceInfo from_abi(const fovea_backend_device& device) {
  DeviceInfo d;
  d.kind = enumerator(abi_devices(), device.kind);
  d.compute_capability = device.compute_capability;
  d.shared_bytes = device.shared_bytes;
  return d;
}

int32_t create(void** instance, const fovea_backend_error*) {
  *instance = inner->create().release();
  return FOVEA_BACKEND_OK;
}
void destroy(void* instance) {
  delete static_cast<AttentionBackend*>(instance);
}

int32_t put_bytes(const Result<size_t>& result, uint64_t* bytes, const fovea_backend_error* error) {
  if (!result) return report(result.error(), error);
  *bytes = *result;
  return FOVEA_BACKEND_OK;
}
int32_t workspace_bytes(void* instance, const fovea_backend_spec* spec, const fovea_backend_limits* limits,
                        uint64_t* bytes, const fovea_backend_error* error) {
  return put_bytes(backend(instance).workspace_bytes(from_abi(*spec), from_abi(*limits)), bytes, error);
}
int32_t graph_workspace_bytes(void* instance, const fovea_backend_spec* spec,
                              const fovea_backend_limits* limits, uint64_t* bytes,
                              const fovea_backend_error* error) {
  return put_bytes(backend(instance).init_graph_state(from_abi(*spec), from_abi(*limits)), bytes, error);
}

/// plan() and plan_for_capture().
template <auto kMember>
int32_t plan(void* instance, const fovea_backend_spec* spec, const fovea_backend_limits* limits,
             const fovea_backend_batch* batch, void* workspace, uint64_t bytes,
             const fovea_backend_stream* stream, void** out, const fovea_backend_error* error) {
  auto planned = std::make_unique<Planned>();
  planned->spec = from_abi(*spec);
  const Status status = with_stream(*stream, [&](Stream& s) -> Status {
    FOVEA_TRY(made, (backend(instance).*kMember)(planned->spec, from_abi(*limits), from_abi(*batch),
                                                 {static_cast<std::byte*>(workspace), bytes}, s));
    planned->plan = std::move(made);
    return {};
  });
  if (status) *out = planned.release();
  return report(status, error);
}
void destroy_plan(void*, void* plan) {
  delete static_cast<Planned*>(plan);
}
int32_t plan_for_replay(void* instance, void* plan, const fovea_backend_batch* batch,
                        const fovea_backend_stream* stream, const fovea_backend_error* error) {
  Plan& planned = *static_cast<Planned*>(plan)->plan;
  const auto body = [&](Stream& s) {
    return backend(instance).plan_for_replay(planned, from_abi(*batch), s);
  };
  return report(with_stream(*stream, body), error);
}

int32_t forward(void* instance, const void* plan, const fovea_backend_args* args, int32_t phase,
                const fovea_backend_stream* stream, const fovea_backend_error* error) {
  const auto& planned = *static_cast<const Planned*>(plan);
  const AttentionArgs a = from_abi(*args, planned.spec);
  const auto body = [&](Stream& s) {
    return phase == FOVEA_BACKEND_DECODE ? backend(instance).forward_decode(*planned.plan, a, s)
                                         : backend(instance).forward_extend(*planned.plan, a, s);
  };
  return report(with_stream(*stream, body), error);
}
int32_t check_plan(void* instance, const void* plan, int64_t num_pages, const fovea_backend_stream* stream,
                   const fovea_backend_error* error) {
  const auto& planned = *static_cast<const Planned*>(plan);
  const auto body = [&](Stream& s) { return backend(instance).check_plan(*planned.plan, num_pages, s); };
  return report(with_stream(*stream, body), error);
}
using Emit = void(void* data, const fovea_backend_kernel* kernel);
void emit_all(const std::vector<KernelName>& names, Emit* emit, void* data) {
  for (const KernelName& name : names) {
    const fovea_backend_kernel kernel{sizeof kernel, name.split_keys, name.split_rows, name.family.c_str(),
                                      name.instance.c_str()};
    emit(data, &kernel);
  }
}
void launched(void*, const void* plan, Emit* emit, void* data) {
  emit_all(static_cast<const Planned*>(plan)->plan->launched(), emit, data);
}
void kernels(void* instance, const fovea_backend_device* device, Emit* emit, void* data) {
  emit_all(backend(instance).kernels(from_abi(*device)), emit, data);
}

int32_t supports(const fovea_backend_spec* spec, const fovea_backend_device* device,
                 const fovea_backend_error* reason, const fovea_backend_error* fix) {
  const BackendInfo& info = *inner->info;
  if (!info.supports_combination) return FOVEA_BACKEND_OK;
  const auto refusal = info.supports_combination(from_abi(*spec), from_abi(*device));
  if (!refusal) return FOVEA_BACKEND_OK;
  std::snprintf(reason->text, reason->capacity, "%s", refusal->text.c_str());
  std::snprintf(fix->text, fix->capacity, "%s", refusal->fix.c_str());
  return FOVEA_BACKEND_UNSUPPORTED;
}

fovea_backend_int_set to_abi(const IntSet& set) {
  fovea_backend_int_set out{sizeof out, set.first(), set.last(), set.step(), 0, {}};
  for (const int v : set.listed())
    out.listed[out.num_listed++] = v;
  return out;
}

struct Table {
  fovea_backend_table table{};
  fovea_backend_int_set page_sizes, head_dims, v_head_dims, gqa_ratios;
};

void fill(Table& t, const Capability& c) {
  t.page_sizes = to_abi(c.page_sizes);
  t.head_dims = to_abi(c.head_dims);
  t.v_head_dims = to_abi(c.v_head_dims);
  t.gqa_ratios = to_abi(c.gqa_ratios);
  fovea_backend_table& table = t.table;
  table.size = sizeof table;
  table.name = "LOOPBACK";
  table.description = "A backend of Fovea behind the ABI";
  table.dtypes = set_to_abi(abi_dtypes(), c.dtypes);
  table.kv_dtypes = set_to_abi(abi_kv_dtypes(), c.kv_dtypes);
  table.types = set_to_abi(abi_types(), c.types);
  table.phases = set_to_abi(abi_phases(), c.phases);
  table.features = set_to_abi(abi_features(), c.features);
  table.invariance = set_to_abi(abi_invariance(), c.invariance);
  table.page_sizes = &t.page_sizes;
  table.head_dims = &t.head_dims;
  table.v_head_dims = &t.v_head_dims;
  table.gqa_ratios = &t.gqa_ratios;
  table.preferred_page_size = c.preferred_page_size;
  table.device = plugin::to_abi(abi_devices(), c.device);
  table.graph = plugin::to_abi(abi_graphs(), c.graph);
  table.min_compute_capability = c.min_compute_capability;
  table.max_compute_capability = c.max_compute_capability;
}

}  // namespace

Status with_cpu_stream(const fovea_backend_stream& stream, FunctionRef<Status(Stream&)> body) {
  Stream s(*static_cast<ThreadPool*>(stream.team));
  return body(s);
}

const fovea_backend* make(const BackendRegistry::Entry& entry, WithStream streams) {
  static Table table;
  inner = &entry;
  with_stream = streams;
  fill(table, entry.info->capability);
  static const fovea_backend functions = {
      sizeof functions,
      &table.table,
      create,
      destroy,
      workspace_bytes,
      plan<&AttentionBackend::plan>,
      destroy_plan,
      forward,
      supports,
      check_plan,
      graph_workspace_bytes,
      plan<&AttentionBackend::plan_for_capture>,
      plan_for_replay,
      launched,
      kernels,
  };
  return &functions;
}

void expect_proof(std::string_view name, WithStream streams, conformance::ProveOptions options) {
  const auto* entry = builtin_backends().find(name);
  ASSERT_NE(entry, nullptr);
  const auto library = Library::create(make(*entry, streams), "loopback");
  ASSERT_TRUE(library.ok()) << library.error().message;
  EXPECT_EQ((*library)->info().capability, entry->info->capability);
  options.quick = true;
  const auto report =
      conformance::prove((*library)->info(), [&] { return make_backend(**library); }, options);
  ASSERT_TRUE(report.ok()) << report.error().message;
  for (const auto& failure : report->failures)
    ADD_FAILURE() << failure.what;
  EXPECT_EQ(report->count(conformance::CellStatus::failed), 0);
  EXPECT_GT(report->count(conformance::CellStatus::proven), 80);
}

}  // namespace fovea::loopback
