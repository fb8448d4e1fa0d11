#pragma once
// For tests: a library within the test program that counts live objects and behaves as configured.
#include <cstdio>

#include "fovea/backend_abi.h"

namespace fovea::plugin {

/// Behaviour and counters of the fake; reset by each test.
struct Fake {
  int instances = 0, plans = 0, forwards = 0;
  int32_t create_status = 0, bytes_status = 0, plan_status = 0, forward_status = 0;
  const char* message = "";
  uint64_t bytes = 0;
  bool no_plan = false;
  fovea_backend_spec spec{};
  fovea_backend_batch batch{};
  fovea_backend_args args{};
  int32_t phase = -1;
};
inline Fake fake;

inline const fovea_backend_int_set kFakeSizes = {sizeof(fovea_backend_int_set), 8, 256, 8, 2, {1, 3}};

/// A valid table.
inline fovea_backend_table fake_table() {
  fovea_backend_table t{};
  t.size = sizeof t;
  t.name = "FAKE_ATTN";
  t.description = "Of a test";
  t.dtypes = FOVEA_BACKEND_BIT(FOVEA_BACKEND_F32);
  t.kv_dtypes = FOVEA_BACKEND_BIT(FOVEA_BACKEND_KV_F32) | FOVEA_BACKEND_BIT(FOVEA_BACKEND_KV_F16);
  t.types = FOVEA_BACKEND_BIT(FOVEA_BACKEND_DECODER);
  t.phases = FOVEA_BACKEND_BIT(FOVEA_BACKEND_PREFILL) | FOVEA_BACKEND_BIT(FOVEA_BACKEND_DECODE);
  t.features = FOVEA_BACKEND_WINDOW | FOVEA_BACKEND_LSE;
  t.invariance = FOVEA_BACKEND_INVARIANT_RUN;
  t.page_sizes = t.head_dims = t.v_head_dims = &kFakeSizes;
  t.preferred_page_size = 16;
  return t;
}

namespace fake_functions {

inline int32_t result(int32_t status, const fovea_backend_error* error) {
  if (status != 0) std::snprintf(error->text, error->capacity, "%s", fake.message);
  return status;
}
inline int32_t create(void** instance, const fovea_backend_error* error) {
  *instance = &fake;
  fake.instances += fake.create_status == 0;
  return result(fake.create_status, error);
}
inline void destroy(void*) {
  --fake.instances;
}
inline int32_t workspace_bytes(void*, const fovea_backend_spec* spec, const fovea_backend_limits*,
                               uint64_t* bytes, const fovea_backend_error* error) {
  fake.spec = *spec;
  *bytes = fake.bytes;
  return result(fake.bytes_status, error);
}
inline int32_t plan(void*, const fovea_backend_spec* spec, const fovea_backend_limits*,
                    const fovea_backend_batch* batch, void*, uint64_t, const fovea_backend_stream*,
                    void** out, const fovea_backend_error* error) {
  fake.spec = *spec;
  fake.batch = *batch;
  *out = fake.no_plan ? nullptr : &fake;  // ignored after a failed call
  fake.plans += fake.plan_status == 0 && !fake.no_plan;
  return result(fake.plan_status, error);
}
inline void destroy_plan(void*, void*) {
  --fake.plans;
}
inline int32_t forward(void*, const void*, const fovea_backend_args* args, int32_t phase,
                       const fovea_backend_stream*, const fovea_backend_error* error) {
  fake.args = *args;
  fake.phase = phase;
  ++fake.forwards;
  return result(fake.forward_status, error);
}

}  // namespace fake_functions

/// The required functions, with `table`.
inline fovea_backend fake_backend(const fovea_backend_table& table) {
  fovea_backend b{};
  b.size = sizeof b;
  b.table = &table;
  b.create = fake_functions::create;
  b.destroy = fake_functions::destroy;
  b.workspace_bytes = fake_functions::workspace_bytes;
  b.plan = fake_functions::plan;
  b.destroy_plan = fake_functions::destroy_plan;
  b.forward = fake_functions::forward;
  return b;
}

}  // namespace fovea::plugin
