// fovea_lightning_attention, fovea_gated_delta_rule, fovea_hstu_attention.
#include <climits>
#include <string>
#include <vector>

#include "c_api/device.h"
#include "c_api/errors.h"
#include "c_api/structs.h"
#include "fovea/linear_attention.h"

namespace fovea::c_api {
namespace {

static_assert(sizeof(fovea_linear_args) == kLinearSize1 && sizeof(fovea_hstu_args) == kHstuSize1);

/// Index arrays as int32: where they lie, or copied.
class Int32Arrays {
 public:
  explicit Int32Arrays(const Arguments& arguments) : arguments_(arguments) {}

  /// null if `given` is.
  Result<const int32_t*> take(const fovea_tensor* given, std::string_view name, Dim dim) {
    if (given == nullptr) return static_cast<const int32_t*>(nullptr);
    if (!arguments_.on_cpu()) {
      FOVEA_TRY(t, arguments_.take(given, {name, {Element::i32}, {dim}}));
      return t.as<const int32_t>();
    }
    FOVEA_TRY(t, arguments_.take(given, {name, kIndex, {dim}}));
    if (t.element == Element::i32) return t.as<const int32_t>();
    std::vector<int32_t>& copy = copies_[static_cast<size_t>(used_++)];
    for (int64_t i = 0; i < t.size(0); ++i) {
      const int64_t x = t.as<const int64_t>()[i];
      if (x < INT32_MIN || x > INT32_MAX)
        return invalid(std::string(name) + "[" + std::to_string(i) + "] is " + std::to_string(x) +
                       "; it must fit 32 bits");
      copy.push_back(static_cast<int32_t>(x));
    }
    copy.reserve(1);  // an empty array is not an absent one
    return static_cast<const int32_t*>(copy.data());
  }

 private:
  const Arguments& arguments_;
  std::vector<int32_t> copies_[3];
  int used_ = 0;
};

HeadRows rows_of(const Tensor& t) {
  return {t.data, t.step(0), t.step(1)};
}
WrittenHeadRows written_rows_of(const Tensor& t) {
  return {t.data, t.step(0), t.step(1)};
}

Status check_sizes(std::initializer_list<int64_t> sizes) {
  for (const int64_t size : sizes)
    if (size > INT32_MAX - 1)
      return invalid("a tensor has " + std::to_string(size) +
                     " elements in one dimension; below 2^31 are possible");
  return {};
}

/// The fields that both rules have.
Result<GatedDeltaRule> read_linear(const fovea_linear_args& a, const Arguments& arguments,
                                   Int32Arrays& ints) {
  const std::string_view heads = a.log_decay != nullptr ? "H" : "Hk";
  FOVEA_TRY(q, arguments.take(a.q, {"q", kFloat, {{"T"}, {heads}, {"Dk"}}, Packing::last}));
  const Dim tokens{"T", q.size(0)}, k_heads{heads, q.size(1)}, dk{"Dk", q.size(2)};
  FOVEA_TRY(k, arguments.take(a.k, {"k", {q.element}, {tokens, k_heads, dk}, Packing::last}));
  FOVEA_TRY(v, arguments.take(a.v, {"v", {q.element}, {tokens, {"H"}, {"Dv"}}, Packing::last}));
  const Dim v_heads{"H", v.size(1)}, dv{"Dv", v.size(2)};
  FOVEA_TRY(out, arguments.take(a.out, {"out", {q.element}, {tokens, v_heads, dv}, Packing::last}));
  FOVEA_RETURN_IF_ERROR(check_written(out, "out"));
  if (a.offsets == nullptr) return invalid("offsets is null; it is needed");
  FOVEA_TRY(offsets, ints.take(a.offsets, "offsets", {"B + 1"}));
  const int64_t seqs = a.offsets->shape[0] - 1;
  if (seqs < 0) return invalid("offsets has shape [0]; it must be [B + 1], of one element or more");
  FOVEA_RETURN_IF_ERROR(check_sizes({q.size(0), q.size(1), q.size(2), v.size(1), v.size(2), seqs}));
  GatedDeltaRule c;
  c.dtype = dtype_of(q.element);
  c.heads = static_cast<int>(v.size(1));
  c.k_heads = static_cast<int>(q.size(1));
  c.dk = static_cast<int>(q.size(2));
  c.dv = static_cast<int>(v.size(2));
  c.q = rows_of(q);
  c.k = rows_of(k);
  c.v = rows_of(v);
  c.out = written_rows_of(out);
  c.sequences = {static_cast<int>(seqs), static_cast<int>(q.size(0)), a.max_len, offsets};
  c.scale = a.scale;
  Dim slots{"slots"};
  for (const auto& [tensor, name] :
       {std::pair(a.initial_state, "initial_state"), std::pair(a.final_state, "final_state")}) {
    if (tensor == nullptr) continue;
    FOVEA_TRY(state, arguments.take(tensor, {name, {Element::f32}, {slots, v_heads, dk, dv}}));
    FOVEA_RETURN_IF_ERROR(check_sizes({state.size(0)}));
    slots.size = state.size(0);
    if (tensor == a.initial_state) c.states.in = state.as<const float>();
    if (tensor == a.final_state) {
      FOVEA_RETURN_IF_ERROR(check_written(state, name));
      c.states.out = state.as<float>();
    }
  }
  if (slots.size != Dim::kAny) c.states.slots = static_cast<int>(slots.size);
  const Dim batch{"B", seqs};
  FOVEA_TRY(in_slots, ints.take(a.initial_slots, "initial_slots", batch));
  FOVEA_TRY(out_slots, ints.take(a.final_slots, "final_slots", batch));
  c.states.in_slots = in_slots;
  c.states.out_slots = out_slots;
  if (a.form != FOVEA_CHUNKED && a.form != FOVEA_RECURRENT)
    return invalid("form is " + std::to_string(a.form) +
                   "; it must be FOVEA_CHUNKED (0) or FOVEA_RECURRENT (1)");
  c.form = a.form == FOVEA_CHUNKED ? LinearForm::chunked : LinearForm::recurrent;
  return c;
}

Status lightning(const fovea_linear_args* given, void* handle) {
  FOVEA_TRY(a, read_struct(given, fovea_linear_args{}, kLinearSize1, "fovea_linear_args"));
  FOVEA_TRY(arguments, arguments_of(a.q, "q"));
  if (a.g != nullptr || a.beta != nullptr || a.normalize_qk != 0)
    return invalid("g, beta or normalize_qk is given; lightning attention has none of them");
  if (a.log_decay == nullptr) return invalid("log_decay is null; it is needed");
  Int32Arrays ints(arguments);
  FOVEA_TRY(c, read_linear(a, arguments, ints));
  if (c.k_heads != c.heads)
    return invalid("q has " + std::to_string(c.k_heads) + " heads and v " + std::to_string(c.heads) +
                   "; lightning attention has as many of each");
  FOVEA_TRY(decay, arguments.take(a.log_decay, {"log_decay", {Element::f32}, {{"H", c.heads}}}));
  LightningAttention call;
  call.dtype = c.dtype;
  call.heads = c.heads;
  call.dk = c.dk;
  call.dv = c.dv;
  call.q = c.q;
  call.k = c.k;
  call.v = c.v;
  call.out = c.out;
  call.sequences = c.sequences;
  call.log_decay = decay.as<const float>();
  call.scale = a.scale != 0.0f ? a.scale : 1.0f;
  call.states = c.states;
  call.form = c.form;
  return on_stream(arguments.device(), handle,
                   [&](Stream& stream) { return lightning_attention(call, stream); });
}

Status delta_rule(const fovea_linear_args* given, void* handle) {
  FOVEA_TRY(a, read_struct(given, fovea_linear_args{}, kLinearSize1, "fovea_linear_args"));
  FOVEA_TRY(arguments, arguments_of(a.q, "q"));
  if (a.log_decay != nullptr)
    return invalid(
        "log_decay is given; the gated delta rule has g, the log of the decay of each row and head");
  Int32Arrays ints(arguments);
  FOVEA_TRY(c, read_linear(a, arguments, ints));
  const Dim tokens{"T", c.sequences.tokens}, heads{"H", c.heads};
  if (a.g != nullptr) {
    FOVEA_TRY(g, arguments.take(a.g, {"g", {Element::f32}, {tokens, heads}, Packing::rows}));
    c.g = g.as<const float>();
    c.g_stride = g.step(0);
  }
  if (a.beta != nullptr) {
    FOVEA_TRY(beta, arguments.take(a.beta, {"beta", {Element::f32}, {tokens, heads}, Packing::rows}));
    c.beta = beta.as<const float>();
    c.beta_stride = beta.step(0);
  }
  c.normalize_qk = a.normalize_qk != 0;
  return on_stream(arguments.device(), handle, [&](Stream& stream) { return gated_delta_rule(c, stream); });
}

Status read_biases(const fovea_hstu_args& a, const Arguments& arguments, HstuAttention& c) {
  if (a.position_bias != nullptr) {
    const Dim places{"2 N - 1", 2 * int64_t{c.max_seq_len} - 1};
    FOVEA_TRY(bias, arguments.take(a.position_bias, {"position_bias", {Element::f32}, {places}}));
    c.position_bias = bias.as<const float>();
  }
  if (a.time_bias == nullptr) {
    if (a.times != nullptr || a.time_bounds != nullptr)
      return invalid("times or time_bounds is given without time_bias; give all three, or none");
    return {};
  }
  FOVEA_TRY(bounds, arguments.take(a.time_bounds, {"time_bounds", {Element::i64}, {{"buckets"}}}));
  FOVEA_RETURN_IF_ERROR(check_sizes({bounds.size(0)}));
  FOVEA_TRY(bias, arguments.take(a.time_bias,
                                 {"time_bias", {Element::f32}, {{"buckets + 1", bounds.size(0) + 1}}}));
  FOVEA_TRY(times, arguments.take(a.times, {"times", {Element::i64}, {{"T", c.sequences.tokens}}}));
  c.time_bias = bias.as<const float>();
  c.time_bounds = bounds.as<const int64_t>();
  c.time_buckets = static_cast<int>(bounds.size(0));
  c.times = times.as<const int64_t>();
  return {};
}

Status hstu(const fovea_hstu_args* given, void* handle) {
  FOVEA_TRY(a, read_struct(given, fovea_hstu_args{}, kHstuSize1, "fovea_hstu_args"));
  FOVEA_TRY(arguments, arguments_of(a.q, "q"));
  FOVEA_TRY(q, arguments.take(a.q, {"q", kFloat, {{"Tq"}, {"H"}, {"Dk"}}, Packing::last}));
  const Dim heads{"H", q.size(1)};
  FOVEA_TRY(k, arguments.take(a.k, {"k", {q.element}, {{"T"}, heads, {"Dk", q.size(2)}}, Packing::last}));
  FOVEA_TRY(v, arguments.take(a.v, {"v", {q.element}, {{"T", k.size(0)}, heads, {"Dv"}}, Packing::last}));
  FOVEA_TRY(out,
            arguments.take(
                a.out, {"out", {q.element}, {{"Tq", q.size(0)}, heads, {"Dv", v.size(2)}}, Packing::last}));
  FOVEA_RETURN_IF_ERROR(check_written(out, "out"));
  Int32Arrays ints(arguments);
  if (a.offsets == nullptr) return invalid("offsets is null; it is needed");
  FOVEA_TRY(offsets, ints.take(a.offsets, "offsets", {"B + 1"}));
  const int64_t seqs = a.offsets->shape[0] - 1;
  if (seqs < 0) return invalid("offsets has shape [0]; it must be [B + 1], of one element or more");
  FOVEA_TRY(queries, ints.take(a.q_offsets, "q_offsets", {"B + 1", seqs + 1}));
  FOVEA_TRY(targets, ints.take(a.num_targets, "num_targets", {"B", seqs}));
  if (queries == nullptr && q.size(0) != k.size(0))
    return invalid("q has " + std::to_string(q.size(0)) + " rows and k " + std::to_string(k.size(0)) +
                   "; without q_offsets they must have as many");
  FOVEA_RETURN_IF_ERROR(check_sizes({q.size(0), q.size(1), q.size(2), k.size(0), v.size(2), seqs}));
  HstuAttention c;
  c.dtype = dtype_of(q.element);
  c.heads = static_cast<int>(q.size(1));
  c.dk = static_cast<int>(q.size(2));
  c.dv = static_cast<int>(v.size(2));
  c.q = rows_of(q);
  c.k = rows_of(k);
  c.v = rows_of(v);
  c.out = written_rows_of(out);
  c.sequences = {static_cast<int>(seqs), static_cast<int>(k.size(0)), 0, offsets};
  c.q_offsets = queries;
  c.q_tokens = static_cast<int>(q.size(0));
  c.max_seq_len = a.max_seq_len;
  c.sequences.max_len = a.max_seq_len;
  c.alpha = a.alpha;
  c.num_targets = targets;
  c.contextual = a.contextual;
  c.max_attn_len = a.max_attn_len;
  c.min_full = a.min_full;
  FOVEA_RETURN_IF_ERROR(read_biases(a, arguments, c));
  return on_stream(arguments.device(), handle, [&](Stream& stream) { return hstu_attention(c, stream); });
}

Status time_bounds(int32_t buckets, int64_t* bounds) {
  if (buckets < 0 || (buckets > 0 && bounds == nullptr))
    return invalid("buckets is " + std::to_string(buckets) +
                   (buckets < 0 ? "; it must be 0 or more" : " and bounds null; it is needed"));
  hstu_time_bounds(buckets, bounds);
  return {};
}

}  // namespace
}  // namespace fovea::c_api

fovea_status fovea_lightning_attention(const fovea_linear_args* args, void* stream) {
  return fovea::c_api::guard("fovea_lightning_attention",
                             [&] { return fovea::c_api::lightning(args, stream); });
}

fovea_status fovea_gated_delta_rule(const fovea_linear_args* args, void* stream) {
  return fovea::c_api::guard("fovea_gated_delta_rule",
                             [&] { return fovea::c_api::delta_rule(args, stream); });
}

fovea_status fovea_hstu_attention(const fovea_hstu_args* args, void* stream) {
  return fovea::c_api::guard("fovea_hstu_attention", [&] { return fovea::c_api::hstu(args, stream); });
}

fovea_status fovea_hstu_time_bounds(int32_t buckets, int64_t* bounds) {
  return fovea::c_api::guard("fovea_hstu_time_bounds",
                             [&] { return fovea::c_api::time_bounds(buckets, bounds); });
}
