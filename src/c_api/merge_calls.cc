// fovea_merge_states, fovea_merge_state.
#include <algorithm>
#include <climits>
#include <string>
#include <vector>

#include "attention/merge.h"
#include "base/float16.h"
#include "c_api/device.h"
#include "c_api/errors.h"
#include "kernels/cpu/for_rows.h"

namespace fovea::c_api {
namespace {

float load(const void* data, DType dtype, int64_t at) {
  switch (dtype) {
    case DType::f32: return static_cast<const float*>(data)[at];
    case DType::f16: return fp16_to_float(static_cast<const uint16_t*>(data)[at]);
    case DType::bf16: return bf16_to_float(static_cast<const uint16_t*>(data)[at]);
  }
  return 0.0f;
}

void store(void* data, DType dtype, int64_t at, float x) {
  switch (dtype) {
    case DType::f32: static_cast<float*>(data)[at] = x; return;
    case DType::f16: static_cast<uint16_t*>(data)[at] = float_to_fp16(x); return;
    case DType::bf16: static_cast<uint16_t*>(data)[at] = float_to_bf16(x); return;
  }
}

/// Merges row by row in fp32. No row reads what another row writes, so `out` may be one of the parts.
void merge_on_cpu(const MergeCall& c, ThreadPool& pool) {
  const int64_t width = int64_t{c.heads} * c.dv;
  for_rows(c.rows, int64_t{c.rows} * width * c.parts, pool, [&](int64_t row) {
    std::vector<float> o(static_cast<size_t>(c.parts * width)), merged(static_cast<size_t>(width)),
        merged_lse(static_cast<size_t>(c.heads));
    std::vector<PartialState> parts(static_cast<size_t>(c.parts));
    for (int p = 0; p < c.parts; ++p) {
      const void* from = p == 0 ? c.o : c.rest_o;
      const int64_t first = (p == 0 ? 0 : (p - 1) * c.o_stride) + row * width;
      float* to = o.data() + p * width;
      for (int64_t i = 0; i < width; ++i)
        to[i] = load(from, c.dtype, first + i);
      const float* lse = p == 0 ? c.lse : c.rest_lse + (p - 1) * c.lse_stride;
      parts[static_cast<size_t>(p)] = {to, lse + row * c.heads};
    }
    merge_states(parts, c.heads, c.dv, merged.data(), merged_lse.data());
    for (int64_t i = 0; i < width; ++i)
      store(c.out, c.dtype, row * c.out_row_stride + i, merged[static_cast<size_t>(i)]);
    if (c.out_lse != nullptr) std::copy(merged_lse.begin(), merged_lse.end(), c.out_lse + row * c.heads);
  });
}

/// Reads the output tensors for parts of shape [rows, heads, dv], and merges.
Status merge(MergeCall& call, const Arguments& arguments, Element element, const fovea_tensor* out,
             const fovea_tensor* out_lse, int64_t rows, int64_t heads, int64_t dv, void* handle) {
  if (rows > INT32_MAX || heads < 1 || dv < 1 || heads > INT32_MAX || dv > INT32_MAX)
    return invalid("parts are [" + std::to_string(rows) + ", " + std::to_string(heads) + ", " +
                   std::to_string(dv) + "]; heads and head size must be 1 or more, and all below 2^31");
  FOVEA_TRY(o,
            arguments.take(out, {"out", {element}, {{"T", rows}, {"Hq", heads}, {"Dv", dv}}, Packing::rows}));
  if (rows > 1 && o.step(0) < heads * dv)
    return invalid("out has rows " + std::to_string(o.step(0)) +
                   " elements apart; they must not overlap: " + std::to_string(heads * dv) + " or more");
  call.out = o.data;
  call.out_row_stride = o.step(0);
  if (out_lse != nullptr) {
    FOVEA_TRY(lse, arguments.take(out_lse, {"out_lse", {Element::f32}, {{"T", rows}, {"Hq", heads}}}));
    call.out_lse = lse.as<float>();
  }
  call.dtype = dtype_of(element);
  call.rows = static_cast<int>(rows);
  call.heads = static_cast<int>(heads);
  call.dv = static_cast<int>(dv);
  if (rows == 0) return {};
  return on_stream(arguments.device(), handle, [&](Stream& stream) -> Status {
    if (!stream.on_cpu()) return merge_cuda(call, stream);
    merge_on_cpu(call, stream.pool());
    return {};
  });
}

Status merge_all(const fovea_tensor* o, const fovea_tensor* lse, const fovea_tensor* out,
                 const fovea_tensor* out_lse, void* handle) {
  FOVEA_TRY(arguments, arguments_of(o, "o"));
  FOVEA_TRY(parts, arguments.take(o, {"o", kFloat, {{"parts"}, {"T"}, {"Hq"}, {"Dv"}}}));
  FOVEA_TRY(lses,
            arguments.take(lse, {"lse",
                                 {Element::f32},
                                 {{"parts", parts.size(0)}, {"T", parts.size(1)}, {"Hq", parts.size(2)}}}));
  if (parts.size(0) < 1 || parts.size(0) > INT32_MAX)
    return invalid("o has " + std::to_string(parts.size(0)) + " parts; it must have 1 or more, below 2^31");
  MergeCall call;
  call.o_stride = parts.size(1) * parts.size(2) * parts.size(3);
  call.lse_stride = parts.size(1) * parts.size(2);
  call.parts = static_cast<int>(parts.size(0));
  call.o = parts.data;
  call.lse = lses.as<float>();
  if (parts.count() > 0) {  // otherwise nothing is read
    call.rest_o = parts.data + call.o_stride * static_cast<int64_t>(size_of(parts.element));
    call.rest_lse = call.lse + call.lse_stride;
  }
  return merge(call, arguments, parts.element, out, out_lse, parts.size(1), parts.size(2), parts.size(3),
               handle);
}

Status merge_two(const fovea_tensor* o_a, const fovea_tensor* lse_a, const fovea_tensor* o_b,
                 const fovea_tensor* lse_b, const fovea_tensor* out, const fovea_tensor* out_lse,
                 void* handle) {
  FOVEA_TRY(arguments, arguments_of(o_a, "o_a"));
  FOVEA_TRY(a, arguments.take(o_a, {"o_a", kFloat, {{"T"}, {"Hq"}, {"Dv"}}}));
  const Dim rows{"T", a.size(0)}, heads{"Hq", a.size(1)};
  FOVEA_TRY(b, arguments.take(o_b, {"o_b", {a.element}, {rows, heads, {"Dv", a.size(2)}}}));
  FOVEA_TRY(a_lse, arguments.take(lse_a, {"lse_a", {Element::f32}, {rows, heads}}));
  FOVEA_TRY(b_lse, arguments.take(lse_b, {"lse_b", {Element::f32}, {rows, heads}}));
  MergeCall call;
  call.parts = 2;
  call.o = a.data;
  call.lse = a_lse.as<float>();
  call.rest_o = b.data;
  call.rest_lse = b_lse.as<float>();
  return merge(call, arguments, a.element, out, out_lse, a.size(0), a.size(1), a.size(2), handle);
}

}  // namespace
}  // namespace fovea::c_api

fovea_status fovea_merge_states(const fovea_tensor* o, const fovea_tensor* lse, const fovea_tensor* out,
                                const fovea_tensor* out_lse, void* stream) {
  return fovea::c_api::guard("fovea_merge_states",
                             [&] { return fovea::c_api::merge_all(o, lse, out, out_lse, stream); });
}

fovea_status fovea_merge_state(const fovea_tensor* o_a, const fovea_tensor* lse_a, const fovea_tensor* o_b,
                               const fovea_tensor* lse_b, const fovea_tensor* out,
                               const fovea_tensor* out_lse, void* stream) {
  return fovea::c_api::guard("fovea_merge_state", [&] {
    return fovea::c_api::merge_two(o_a, lse_a, o_b, lse_b, out, out_lse, stream);
  });
}
