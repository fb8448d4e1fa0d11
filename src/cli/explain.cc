// fovea explain: the backend selection for a model, a device and flags, from config.json alone.
#include "cli/explain.h"

#include <cstdio>

#include "attention/kv_view.h"
#include "attention/mla_prefill.h"
#include "device/gpu.h"
#include "fovea/attention_backend.h"

namespace fovea::cli {
namespace {

DeviceInfo this_machine() {
  DeviceInfo device;
  if (!cuda_built()) return device;
  const std::vector<GpuInfo> gpus = list_gpus();
  if (gpus.empty()) return device;
  device.kind = DeviceKind::cuda;
  device.compute_capability = gpus.front().compute_capability;
  device.name = gpus.front().name;
  device.shared_bytes = shared_bytes_of(device.compute_capability);
  return device;
}

/// Applies the flags to the model's attention shapes. On a CPU they become the shapes that the engine runs:
/// fp32 activations, a cache of the resolved type, and the encoder's own keys in their computed type.
Status take_flags(const ModelFlags& flags, const DeviceInfo& device, AttentionShapes& shapes) {
  FOVEA_TRY(dtype, read_dtype(flags.dtype));
  FOVEA_TRY(kv_dtype, read_kv_cache_dtype(flags.kv_cache_dtype));
  FOVEA_TRY(layout, read_kv_layout(flags.kv_layout));
  if (dtype) shapes.dtype = *dtype;
  const bool cpu = device.kind == DeviceKind::cpu;
  for (AttentionSpec& spec : shapes.specs) {
    const bool cached = has_kv_pages(kind_of(spec));
    spec = with_settings(spec, flags.attention);
    spec.dtype = activation_dtype(device, shapes.dtype);
    if (cached) spec.kv_dtype = cpu ? resolve(kv_dtype, shapes.dtype) : kv_dtype;
    set_layout(spec, cached ? layout : KvLayout::hnd);
    for (const FlagNote& note : flags.notes)
      if (note.need && cached) spec.needs.insert(*note.need);
  }
  return {};
}

/// The first error of the selection; ok if every phase has a backend.
Status phase_errors(const Selection& selection) {
  for (const KindSelection& kind : selection.kinds)
    for (const PhaseSelection* phase : {&kind.prefill, &kind.decode})
      if (phase->backend == nullptr) return phase->error;
  if (!selection.kinds.empty() && selection.page_size == 0)
    return unsupported("no page size suits all of the backends");
  return {};
}

}  // namespace

Status Explanation::status() const {
  const Status refused = check_refused(notes);
  const Status phases = phase_errors(selection);
  if (refused && phases) return {};
  std::string all = refused ? "" : refused.error().message;
  if (!phases) all += (all.empty() ? "" : "; ") + phases.error().message;
  return unsupported(all);
}

Result<Explanation> make_explanation(const ExplainFlags& flags) {
  if (flags.device.empty()) return make_explanation(flags.model, this_machine(), "this machine");
  FOVEA_TRY(device, parse_device(flags.device));
  return make_explanation(flags.model, device, "--device " + flags.device);
}

Result<Explanation> make_explanation(const ModelFlags& flags, const DeviceInfo& device,
                                     std::string device_from, int gpu) {
  Explanation out;
  out.model = flags.model;
  if (out.model.empty()) {
    FOVEA_TRY(demo, demo_model_dir());
    out.model = demo;
  }
  out.device = device;
  out.device_from = std::move(device_from);
  FOVEA_TRY(shapes, read_attention_shapes(out.model));
  out.shapes = std::move(shapes);
  out.notes = flags.notes;
  out.environment = flags.environment;
  FOVEA_RETURN_IF_ERROR(take_flags(flags, out.device, out.shapes));
  if (out.device.kind == DeviceKind::cuda) out.tuning = find_tuning(flags, gpu);
  FOVEA_TRY(speculative, read_speculative(flags));
  out.speculative = speculative;
  if (out.shapes.specs.empty()) return out;
  AttentionConfig config = flags.attention;
  if (out.device.kind == DeviceKind::cpu) config.sources["dtype"] = "activations on a CPU";
  FOVEA_TRY(selection, consider(config, out.shapes.specs, out.device, backends_or_builtin(flags.registry)));
  out.selection = std::move(selection);
  for (const KindSelection& kind : out.selection.kinds)
    if (const BackendInfo* prefill = kind.prefill.backend;
        out.device.kind == DeviceKind::cuda && prefill && kind.decode.backend &&
        is_mla_prefill(*prefill, backends_or_builtin(flags.registry)))
      out.shapes.notes.push_back("latent attention: on a GPU the engine's prefill is absorbed, by " +
                                 kind.decode.backend->label() + "; " + prefill->label() +
                                 " serves callers of the attention API");
  return out;
}

Status run_explain(const ExplainFlags& flags) {
  FOVEA_TRY(explanation, make_explanation(flags));
  const std::string text = flags.model.json ? explanation_json(explanation) : explanation_text(explanation);
  std::fputs(text.c_str(), stdout);
  return explanation.status();
}

}  // namespace fovea::cli
