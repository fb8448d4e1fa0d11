#include <string>

#include "c_api/attention.h"
#include "c_api/errors.h"
#include "c_api/registry.h"
#include "device/gpu.h"

using fovea::Status;
using fovea::c_api::Attention;
using fovea::c_api::guard;

struct fovea_attention {
  std::unique_ptr<Attention> object;
};

namespace {

/// Calls a function of the object inside guard().
template <class F>
fovea_status of_object(const char* function, fovea_attention* attention, const F& call) {
  return guard(function, [&]() -> Status {
    if (attention == nullptr) return fovea::invalid("attention is null");
    return call(*attention->object);
  });
}

}  // namespace

uint32_t fovea_abi_version(void) {
  return FOVEA_ABI_VERSION;
}

const char* fovea_version(void) {
  return FOVEA_VERSION;
}

int fovea_cuda_built(void) {
  return fovea::cuda_built() ? 1 : 0;
}

fovea_status fovea_backends_json(const char** json) {
  return guard("fovea_backends_json", [&]() -> Status {
    if (json == nullptr) return fovea::invalid("json is null");
    *json = fovea::c_api::backends_text().c_str();
    return {};
  });
}

fovea_status fovea_load_backend(const char* file) {
  return guard("fovea_load_backend", [&]() -> Status {
    if (file == nullptr) return fovea::invalid("file is null");
    return fovea::c_api::load_backend(file);
  });
}

fovea_status fovea_attention_create(const fovea_attention_spec* spec, const fovea_limits* limits,
                                    const char* backend, fovea_device device, uint32_t flags,
                                    size_t* workspace_bytes, fovea_attention** out) {
  return guard("fovea_attention_create", [&]() -> Status {
    if (out == nullptr) return fovea::invalid("out is null");
    *out = nullptr;
    FOVEA_TRY(object, Attention::create(spec, limits, backend, device, flags));
    if (workspace_bytes != nullptr) *workspace_bytes = object->workspace_bytes();
    *out = new fovea_attention{std::move(object)};
    return {};
  });
}

void fovea_attention_destroy(fovea_attention* attention) {
  delete attention;
}

const char* fovea_attention_backend(const fovea_attention* attention, int32_t phase) {
  if (attention == nullptr || (phase != FOVEA_PREFILL && phase != FOVEA_DECODE)) return "";
  return attention->object->backend_name(phase == FOVEA_DECODE ? fovea::Phase::decode : fovea::Phase::prefill)
      .c_str();
}

const char* fovea_attention_explain(const fovea_attention* attention) {
  return attention == nullptr ? "" : attention->object->explanation().c_str();
}

fovea_status fovea_attention_plan(fovea_attention* attention, const fovea_step* step,
                                  const fovea_tensor* workspace, void* stream) {
  return of_object("fovea_attention_plan", attention,
                   [&](Attention& object) { return object.plan(step, workspace, stream); });
}

fovea_status fovea_attention_check(fovea_attention* attention, int64_t num_pages, void* stream) {
  return of_object("fovea_attention_check", attention,
                   [&](Attention& object) { return object.check(num_pages, stream); });
}

fovea_status fovea_attention_prepare_capture(fovea_attention* attention, const fovea_step* step,
                                             const fovea_tensor* workspace, void* stream) {
  return of_object("fovea_attention_prepare_capture", attention,
                   [&](Attention& object) { return object.prepare_capture(step, workspace, stream); });
}

fovea_status fovea_attention_update_capture(fovea_attention* attention, const fovea_step* step,
                                            void* stream) {
  return of_object("fovea_attention_update_capture", attention,
                   [&](Attention& object) { return object.update_capture(step, stream); });
}

fovea_status fovea_attention_run(fovea_attention* attention, const fovea_layer* layer, void* stream) {
  return of_object("fovea_attention_run", attention,
                   [&](Attention& object) { return object.run(layer, stream); });
}
