#include "c_api/attention.h"

#include <algorithm>
#include <climits>

#include "attention/absorbed_prefill.h"
#include "attention/kv_view.h"
#include "builtin/create_backend.h"
#include "c_api/registry.h"
#include "c_api/settings.h"
#include "c_api/spec.h"
#include "c_api/structs.h"
#include "device/stream.h"
#include "fovea/attention.h"

namespace fovea::c_api {
namespace {

constexpr size_t kWorkspaceAlignment = 64;  // guaranteed by Workspace

std::string str(int64_t v) {
  return std::to_string(v);
}

/// Row and head strides as in AttentionArgs.
struct Rows {
  int64_t row_stride, head_stride;
  int block_rows = 0;
  int64_t block_stride = 0;
};

/// Strides of [rows, heads, dim] or [blocks, rows, heads, dim].
Rows rows_of(const Tensor& t) {
  if (t.ndim == 3) return {t.step(0), t.step(1)};
  if (t.size(1) <= 1) return {t.step(0), t.step(2)};
  const Rows rows{t.step(1), t.step(2)};
  if (t.size(0) <= 1 || t.step(0) == t.size(1) * t.step(1)) return rows;
  return {t.step(1), t.step(2), static_cast<int>(t.size(1)), t.step(0)};
}

}  // namespace

Result<std::unique_ptr<Attention>> Attention::create(const fovea_attention_spec* given_spec,
                                                     const fovea_limits* given_limits, const char* backend,
                                                     fovea_device device, uint32_t flags) {
  FOVEA_TRY(spec, read_spec(given_spec));
  FOVEA_TRY(limits, read_limits(given_limits));
  if ((flags & ~static_cast<uint32_t>(FOVEA_CHECK_PAGES)) != 0)
    return invalid("flags is " + str(flags) + "; known are 0 and FOVEA_CHECK_PAGES, " +
                   str(FOVEA_CHECK_PAGES));
  std::unique_ptr<Attention> attention(new Attention(spec, limits, device, flags));
  FOVEA_RETURN_IF_ERROR(attention->choose_backends(backend));
  return attention;
}

Status Attention::choose_backends(const char* name) {
  FOVEA_TRY(device, open_device(arguments_.device()));
  AttentionConfig config;
  if (name != nullptr) config.backend = BackendName(name);
  config.sources["backend"] = "backend";
  FOVEA_RETURN_IF_ERROR(apply_environment(config));
  BackendRegistry registry = loaded_backends();
  if (spec_.use_mla) registry = without_mla_prefill(registry);
  FOVEA_TRY(selection, select(config, spec_, device, registry));
  const KindSelection& kind = selection.kinds.front();
  const auto make = [&](const PhaseSelection& phase) -> Result<std::shared_ptr<AttentionBackend>> {
    FOVEA_TRY(made, create_backend(*phase.backend, config, registry));
    return std::shared_ptr<AttentionBackend>(std::move(made));
  };
  FOVEA_TRY(prefill, make(kind.prefill));
  prefill_ = std::move(prefill);
  decode_ = prefill_;
  if (kind.decode.backend != kind.prefill.backend) {
    FOVEA_TRY(decode, make(kind.decode));
    decode_ = std::move(decode);
  }
  names_[static_cast<size_t>(Phase::prefill)] = kind.prefill.backend->label();
  names_[static_cast<size_t>(Phase::decode)] = kind.decode.backend->label();
  explanation_ = explain(selection);
  for (const Phase phase : {Phase::prefill, Phase::decode}) {
    FOVEA_TRY(bytes, backend(phase).workspace_bytes(spec_, limits_));
    workspace_bytes_ = std::max(workspace_bytes_, bytes);
  }
  return {};
}

Result<Workspace> Attention::workspace(const fovea_tensor* given, size_t needed) {
  if (given != nullptr) {
    FOVEA_TRY(
        t, arguments_.take(
               given, {"workspace", {Element::u8}, {{"bytes"}}, Packing::contiguous, kWorkspaceAlignment}));
    if (static_cast<uint64_t>(t.size(0)) < needed)
      return invalid("workspace has " + str(t.size(0)) + " bytes; the limits need " + std::to_string(needed) +
                     ": allocate the size that fovea_attention_create() returns");
    return Workspace(t.data, static_cast<size_t>(t.size(0)));
  }
  if (own_workspace_ == nullptr || own_bytes_ < needed) {
    FOVEA_TRY(memory, allocate(arguments_.device(), needed));
    own_workspace_ = std::move(memory);
    own_bytes_ = needed;
  }
  return Workspace(own_workspace_.get(), own_bytes_);
}

void Attention::keep(const BatchMeta& meta, bool for_capture, std::unique_ptr<Plan> plan) {
  meta_ = meta;
  for_capture_ = for_capture;
  pages_checked_ = -1;
  if (arguments_.on_cpu()) pages_ = page_range(meta, spec_.page_size);
  plan_ = std::move(plan);
}

Status Attention::plan(const fovea_step* step, const fovea_tensor* given, void* handle) {
  plan_.reset();
  return on_stream(arguments_.device(), handle, [&](Stream& stream) -> Status {
    AttentionLimits limits = limits_;
    FOVEA_TRY(meta, read_step(step, spec_, limits, arguments_, indices_, stream));
    FOVEA_TRY(space, workspace(given, workspace_bytes_));
    ragged_ = step->kv_indptr != nullptr && step->kv_indices == nullptr;
    FOVEA_TRY(plan, backend(meta.phase).plan(spec_, limits, meta, space, stream));
    keep(meta, false, std::move(plan));
    return {};
  });
}

Status Attention::prepare_capture(const fovea_step* step, const fovea_tensor* given, void* handle) {
  plan_.reset();
  return on_stream(arguments_.device(), handle, [&](Stream& stream) -> Status {
    AttentionLimits limits = limits_;
    FOVEA_TRY(meta, read_step(step, spec_, limits, arguments_, indices_, stream));
    FOVEA_TRY(needed, backend(meta.phase).init_graph_state(spec_, limits_));
    FOVEA_TRY(space, workspace(given, needed));
    ragged_ = step->kv_indptr != nullptr && step->kv_indices == nullptr;
    FOVEA_TRY(plan, backend(meta.phase).plan_for_capture(spec_, limits, meta, space, stream));
    keep(meta, true, std::move(plan));
    return {};
  });
}

Status Attention::planned() const {
  if (plan_ != nullptr) return {};
  return invalid("no step is planned; call fovea_attention_plan() first, and look at what it returns");
}

Status Attention::update_capture(const fovea_step* step, void* handle) {
  FOVEA_RETURN_IF_ERROR(planned());
  if (!for_capture_)
    return invalid("the step was not prepared for capture; call fovea_attention_prepare_capture() first");
  return on_stream(arguments_.device(), handle, [&](Stream& stream) -> Status {
    AttentionLimits limits = limits_;
    FOVEA_TRY(meta, read_step(step, spec_, limits, arguments_, indices_, stream));
    if (meta.phase != meta_.phase)
      return invalid("phase is " + std::string(to_string(meta.phase)) + "; the capture was prepared for " +
                     std::string(to_string(meta_.phase)));
    pages_checked_ = -1;
    return backend(meta_.phase).plan_for_replay(*plan_, meta, stream);
  });
}

Status Attention::check_pages(int64_t num_pages, Stream& stream) {
  if (arguments_.on_cpu()) {
    if (num_pages < 0 || (pages_.least >= 0 && pages_.most < num_pages)) return {};
    return page_error(meta_, spec_.page_size, num_pages, ragged_);
  }
  FOVEA_RETURN_IF_ERROR(indices_.check(stream));
  return backend(meta_.phase).check_plan(*plan_, num_pages, stream);
}

Status Attention::check(int64_t num_pages, void* handle) {
  FOVEA_RETURN_IF_ERROR(planned());
  if (num_pages < -1)
    return invalid("num_pages is " + str(num_pages) + "; it must be the cache's, or -1 to look at no page");
  return on_stream(arguments_.device(), handle,
                   [&](Stream& stream) { return check_pages(num_pages, stream); });
}

/// Q or O: [Tq, Hq, D], or [B, S, Hq, D] with B S = Tq.
Result<Tensor> Attention::take_rows(const fovea_tensor* given, std::string_view name, const Dim& dim) const {
  const Element element = element_of(spec_.dtype);
  const Dim rows{"Tq", meta_.tokens}, heads{"Hq", spec_.num_heads};
  if (given == nullptr || given->ndim != 4)
    return arguments_.take(given, {name, {element}, {rows, heads, dim}, Packing::last});
  FOVEA_TRY(t, arguments_.take(given, {name, {element}, {{"B"}, {"S"}, heads, dim}, Packing::last}));
  if (t.size(0) * t.size(1) != meta_.tokens)
    return invalid(std::string(name) + " has shape " + shape_text(t.shape.data(), t.ndim) + " with " +
                   str(t.size(0) * t.size(1)) + " rows; the step has " + str(meta_.tokens));
  return t;
}

/// On a CPU: every listed key is one of the row's sequence, or -1.
Status Attention::check_chosen(const AttentionArgs& args) const {
  for (int b = 0; b < meta_.num_seqs(); ++b) {
    const int64_t keys = meta_.kv_lens[static_cast<size_t>(b)];
    for (int64_t row = meta_.q_offsets[static_cast<size_t>(b)];
         row < meta_.q_offsets[static_cast<size_t>(b) + 1]; ++row)
      for (int64_t i = 0; i < spec_.sparse_topk; ++i) {
        const int64_t key = args.chosen[row * args.chosen_row_stride + i];
        if (key < -1 || key >= keys)
          return invalid("chosen[" + str(row) + "][" + str(i) + "] is " + str(key) + "; sequence " + str(b) +
                         " has keys 0 to " + str(keys - 1) + ", and -1 is none");
      }
  }
  return {};
}

Result<AttentionArgs> Attention::read_layer(const fovea_layer* given, int64_t& num_pages) const {
  FOVEA_TRY(layer, read_struct(given, fovea_layer{}, kLayerSize1, "fovea_layer"));
  const Dim rows{"Tq", meta_.tokens}, heads{"Hq", spec_.num_heads};
  FOVEA_TRY(q, take_rows(layer.q, "q", {"D", spec_.head_dim}));
  FOVEA_TRY(out, take_rows(layer.out, "out", {"Dv", spec_.v_head_dim}));
  FOVEA_RETURN_IF_ERROR(check_written(out, "out"));
  AttentionArgs args;
  args.q = q.data;
  const Rows q_rows = rows_of(q);
  args.q_row_stride = q_rows.row_stride;
  args.q_head_stride = q_rows.head_stride;
  args.q_block_rows = q_rows.block_rows;
  args.q_block_stride = q_rows.block_stride;
  args.out = out.data;
  const Rows out_rows = rows_of(out);
  args.out_row_stride = out_rows.row_stride;
  args.out_head_stride = out_rows.head_stride;
  args.out_block_rows = out_rows.block_rows;
  args.out_block_stride = out_rows.block_stride;
  if (layer.lse != nullptr) {
    FOVEA_TRY(lse, arguments_.take(layer.lse, {"lse", {Element::f32}, {rows, heads}}));
    args.lse = lse.as<float>();
  }
  const auto of_heads = [&](const fovea_tensor* tensor, bool needed, const char* name,
                            const char* field) -> Result<const float*> {
    if (needed != (tensor != nullptr))
      return invalid(std::string(name) +
                     (needed ? " is null; the spec has " : " is given; the spec does not have ") + field);
    if (!needed) return static_cast<const float*>(nullptr);
    FOVEA_TRY(t, arguments_.take(tensor, {name, {Element::f32}, {heads}}));
    return static_cast<const float*>(t.as<float>());
  };
  FOVEA_TRY(sinks, of_heads(layer.sinks, spec_.has_sink, "sinks", "has_sink"));
  FOVEA_TRY(slopes, of_heads(layer.alibi_slopes, spec_.has_alibi, "alibi_slopes", "has_alibi"));
  args.sinks = sinks;
  args.alibi_slopes = slopes;
  CacheShape shape;
  shape.known = true;
  shape.dtype = resolve(spec_.kv_dtype, spec_.dtype);
  shape.page_size = spec_.page_size;
  shape.num_kv_heads = spec_.num_kv_heads;
  shape.head_dim = spec_.head_dim;
  shape.v_head_dim = spec_.v_head_dim;
  shape.layout = layout_of(spec_);
  shape.per_head_scales = spec_.needs.has(Feature::per_head_scales);
  const CacheTensors tensors{"k",           "v",           layer.k,        layer.v,
                             layer.k_scale, layer.v_scale, layer.k_scales, layer.v_scales};
  FOVEA_TRY(cache, spec_.use_mla ? read_records(arguments_, tensors, shape)
                                 : read_cache(arguments_, tensors, shape));
  args.kv = cache.view;
  if (spec_.use_sparse) {
    FOVEA_TRY(chosen,
              arguments_.take(
                  layer.chosen,
                  {"chosen", {Element::i32}, {rows, {"sparse_topk", spec_.sparse_topk}}, Packing::rows}));
    args.chosen = chosen.as<int32_t>();
    args.chosen_row_stride = std::max<int64_t>(chosen.step(0), spec_.sparse_topk);
    if (arguments_.on_cpu()) FOVEA_RETURN_IF_ERROR(check_chosen(args));
  } else if (layer.chosen != nullptr) {
    return invalid("chosen is given; the spec does not have sparse_topk");
  }
  num_pages = cache.num_pages;
  return args;
}

Status Attention::run(const fovea_layer* layer, void* handle) {
  FOVEA_RETURN_IF_ERROR(planned());
  int64_t num_pages = 0;
  FOVEA_TRY(args, read_layer(layer, num_pages));
  return on_stream(arguments_.device(), handle, [&](Stream& stream) -> Status {
    const bool look = arguments_.on_cpu() || ((flags_ & FOVEA_CHECK_PAGES) != 0 &&
                                              (pages_checked_ < 0 || num_pages < pages_checked_));
    if (look) {
      FOVEA_RETURN_IF_ERROR(check_pages(num_pages, stream));
      pages_checked_ = num_pages;
    }
    return meta_.phase == Phase::decode ? decode_->forward_decode(*plan_, args, stream)
                                        : prefill_->forward_extend(*plan_, args, stream);
  });
}

}  // namespace fovea::c_api
