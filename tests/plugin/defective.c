/* A backend library with one defect, by the number in DEFECT: what the loader must refuse, and what it must
 * survive. */
#include <fovea/backend_abi.h>
#include <stdio.h>
#include <string.h>

enum {
  NONE = 0,
  OTHER_NAME,       /* taken by a built-in backend */
  ALIAS_OF_OTHER,   /* likewise */
  TRUNCATED_TABLE,  /* fewer fields than the first version */
  TRUNCATED_STRUCT, /* likewise of the functions */
  NULL_FUNCTION,
  NULL_TABLE,
  NULL_BACKEND,  /* the entry returns no backend but reports success */
  BAD_ENUM,      /* a feature that no version has */
  EMPTY_SET,     /* no dtype */
  REFUSES,       /* the entry fails with a reason */
  CUDA,          /* for a GPU */
  VERSION_2 = 20 /* exports another version only */
};

static int32_t nothing_created(void** instance, const fovea_backend_error* error) {
  snprintf(error->text, error->capacity, "this backend plans nothing");
  *instance = NULL;
  return FOVEA_BACKEND_UNSUPPORTED;
}
static void nothing_destroyed(void* instance) {
  (void)instance;
}
static int32_t no_bytes(void* instance, const fovea_backend_spec* spec, const fovea_backend_limits* limits,
                        uint64_t* bytes, const fovea_backend_error* error) {
  (void)instance, (void)spec, (void)limits, (void)error;
  *bytes = 0;
  return FOVEA_BACKEND_OK;
}
static int32_t no_plan(void* instance, const fovea_backend_spec* spec, const fovea_backend_limits* limits,
                       const fovea_backend_batch* batch, void* workspace, uint64_t bytes,
                       const fovea_backend_stream* stream, void** plan, const fovea_backend_error* error) {
  (void)instance, (void)spec, (void)limits, (void)batch, (void)workspace, (void)bytes, (void)stream,
      (void)error;
  *plan = NULL;
  return FOVEA_BACKEND_OK;
}
static void no_plan_destroyed(void* instance, void* plan) {
  (void)instance, (void)plan;
}
static int32_t no_forward(void* instance, const void* plan, const fovea_backend_args* args, int32_t phase,
                          const fovea_backend_stream* stream, const fovea_backend_error* error) {
  (void)instance, (void)plan, (void)args, (void)phase, (void)stream, (void)error;
  return FOVEA_BACKEND_OK;
}

static const fovea_backend_int_set sizes = {
    .size = sizeof(fovea_backend_int_set), .first = 16, .last = 256, .step = 16};
static const char* const aliases[] = {DEFECT == ALIAS_OF_OTHER ? "flashinfer" : "defective"};

static fovea_backend_table table = {
    .size = DEFECT == TRUNCATED_TABLE ? 64 : sizeof(fovea_backend_table),
    .name = DEFECT == OTHER_NAME ? "TORCH_NATIVE" : "DEFECTIVE",
    .description = "For tests of the loader",
    .num_aliases = 1,
    .aliases = aliases,
    .dtypes = DEFECT == EMPTY_SET ? 0 : FOVEA_BACKEND_BIT(FOVEA_BACKEND_F32),
    .kv_dtypes = FOVEA_BACKEND_BIT(FOVEA_BACKEND_KV_F32),
    .types = FOVEA_BACKEND_BIT(FOVEA_BACKEND_DECODER),
    .phases = FOVEA_BACKEND_BIT(FOVEA_BACKEND_PREFILL) | FOVEA_BACKEND_BIT(FOVEA_BACKEND_DECODE),
    .features = DEFECT == BAD_ENUM ? FOVEA_BACKEND_BIT(50) : FOVEA_BACKEND_LSE,
    .page_sizes = &sizes,
    .head_dims = &sizes,
    .v_head_dims = &sizes,
    .preferred_page_size = 16,
    .device = DEFECT == CUDA ? FOVEA_BACKEND_CUDA : FOVEA_BACKEND_CPU,
    .min_compute_capability = DEFECT == CUDA ? 80 : 0,
};

static const fovea_backend backend = {
    .size = DEFECT == TRUNCATED_STRUCT ? 32 : sizeof(fovea_backend),
    .table = DEFECT == NULL_TABLE ? NULL : &table,
    .create = nothing_created,
    .destroy = nothing_destroyed,
    .workspace_bytes = no_bytes,
    .plan = no_plan,
    .destroy_plan = no_plan_destroyed,
    .forward = DEFECT == NULL_FUNCTION ? NULL : no_forward,
};

#if DEFECT >= 20 /* VERSION_2 */
#define fovea_backend_v1 fovea_backend_v2
FOVEA_BACKEND_EXPORT int32_t fovea_backend_v2(const fovea_backend_host*, const fovea_backend**,
                                              const fovea_backend_error*);
#endif

int32_t fovea_backend_v1(const fovea_backend_host* host, const fovea_backend** out,
                         const fovea_backend_error* error) {
  (void)host;
  if (DEFECT == REFUSES) {
    snprintf(error->text, error->capacity, "this CPU has no such unit;\nuse another backend");
    return FOVEA_BACKEND_UNSUPPORTED;
  }
  *out = DEFECT == NULL_BACKEND ? NULL : &backend;
  return FOVEA_BACKEND_OK;
}
