// What a call must satisfy before any of its arrays is read.
#include <string>

#include "fovea/result.h"
#include "kernels/cpu/linear_attention.h"

namespace fovea {
namespace {

std::string decimal_of(int64_t n) {
  return std::to_string(n);
}

Status check_at_least(const char* name, int64_t value, int64_t low) {
  if (value >= low) return {};
  return invalid(std::string(name) + " is " + decimal_of(value) + "; it must be " + decimal_of(low) +
                 " or more");
}

Status check_needed(const char* name, const void* pointer) {
  if (pointer != nullptr) return {};
  return invalid(std::string(name) + " is null; it is needed");
}

Status check_rows(const char* name, const void* data, int64_t token_stride, int64_t head_stride,
                  int64_t tokens) {
  if (tokens > 0) FOVEA_RETURN_IF_ERROR(check_needed(name, data));
  if (token_stride < 0 || head_stride < 0)
    return invalid(std::string(name) + " has strides " + decimal_of(token_stride) + ", " +
                   decimal_of(head_stride) + "; they must not be negative");
  return {};
}

/// Elements that are written must be apart: rows of heads within rows of tokens, or the reverse.
Status check_written(const WrittenHeadRows& out, int64_t tokens, int64_t heads, int64_t dim) {
  FOVEA_RETURN_IF_ERROR(check_rows("out", out.data, out.token_stride, out.head_stride, tokens));
  const bool heads_inside = out.head_stride >= dim && out.token_stride >= (heads - 1) * out.head_stride + dim;
  const bool tokens_inside =
      out.token_stride >= dim && out.head_stride >= (tokens - 1) * out.token_stride + dim;
  if (tokens == 0 || heads_inside || tokens_inside || (heads == 1 && out.token_stride >= dim) ||
      (tokens == 1 && out.head_stride >= dim))
    return {};
  return invalid("out has strides " + decimal_of(out.token_stride) + ", " + decimal_of(out.head_stride) +
                 " for [" + decimal_of(tokens) + ", " + decimal_of(heads) + ", " + decimal_of(dim) +
                 "]; its elements overlap: pass memory of its own");
}

Status check_sequences(const Sequences& s) {
  FOVEA_RETURN_IF_ERROR(check_at_least("sequences.count", s.count, 0));
  FOVEA_RETURN_IF_ERROR(check_at_least("sequences.tokens", s.tokens, 0));
  FOVEA_RETURN_IF_ERROR(check_at_least("sequences.max_len", s.max_len, 0));
  if (s.count > 0) return check_needed("sequences.offsets", s.offsets);
  if (s.tokens > 0)
    return invalid("sequences.tokens is " + decimal_of(s.tokens) + " for no sequences; it must be 0");
  return {};
}

Status check_heads(int heads, int dk, int dv) {
  FOVEA_RETURN_IF_ERROR(check_at_least("heads", heads, 1));
  FOVEA_RETURN_IF_ERROR(check_at_least("dk", dk, 1));
  FOVEA_RETURN_IF_ERROR(check_at_least("dv", dv, 1));
  if (dk <= kLinearMaxHeadDim && dv <= kLinearMaxHeadDim) return {};
  return unsupported("head sizes are " + decimal_of(dk) + " and " + decimal_of(dv) + "; 1 to " +
                     decimal_of(kLinearMaxHeadDim) + " have kernels");
}

Status check_recurrence(const GatedDeltaRule& c) {
  FOVEA_RETURN_IF_ERROR(check_sequences(c.sequences));
  FOVEA_RETURN_IF_ERROR(check_heads(c.heads, c.dk, c.dv));
  if (c.k_heads < 1 || c.heads % c.k_heads != 0)
    return invalid("heads is " + decimal_of(c.heads) + " and k_heads " + decimal_of(c.k_heads) +
                   "; heads must be a multiple of k_heads");
  const int64_t tokens = c.sequences.tokens;
  FOVEA_RETURN_IF_ERROR(check_rows("q", c.q.data, c.q.token_stride, c.q.head_stride, tokens));
  FOVEA_RETURN_IF_ERROR(check_rows("k", c.k.data, c.k.token_stride, c.k.head_stride, tokens));
  FOVEA_RETURN_IF_ERROR(check_rows("v", c.v.data, c.v.token_stride, c.v.head_stride, tokens));
  FOVEA_RETURN_IF_ERROR(check_written(c.out, tokens, c.heads, c.dv));
  FOVEA_RETURN_IF_ERROR(check_at_least("g_stride", c.g_stride, 0));
  FOVEA_RETURN_IF_ERROR(check_at_least("beta_stride", c.beta_stride, 0));
  FOVEA_RETURN_IF_ERROR(check_at_least("states.slots", c.states.slots, 0));
  return {};
}

}  // namespace

GatedDeltaRule recurrence_of(const LightningAttention& call) {
  GatedDeltaRule c;
  c.dtype = call.dtype;
  c.heads = c.k_heads = call.heads;
  c.dk = call.dk;
  c.dv = call.dv;
  c.q = call.q;
  c.k = call.k;
  c.v = call.v;
  c.out = call.out;
  c.sequences = call.sequences;
  c.scale = call.scale;
  c.states = call.states;
  c.form = call.form;
  return c;
}

Status check_call(const LightningAttention& call) {
  FOVEA_RETURN_IF_ERROR(check_recurrence(recurrence_of(call)));
  return check_needed("log_decay", call.log_decay);
}

Status check_call(const GatedDeltaRule& call) {
  return check_recurrence(call);
}

Status check_call(const HstuAttention& c) {
  FOVEA_RETURN_IF_ERROR(check_sequences(c.sequences));
  FOVEA_RETURN_IF_ERROR(check_heads(c.heads, c.dk, c.dv));
  const int64_t keys = c.sequences.tokens, rows = c.q_offsets == nullptr ? keys : c.q_tokens;
  FOVEA_RETURN_IF_ERROR(check_at_least("q_tokens", rows, 0));
  FOVEA_RETURN_IF_ERROR(check_rows("q", c.q.data, c.q.token_stride, c.q.head_stride, rows));
  FOVEA_RETURN_IF_ERROR(check_rows("k", c.k.data, c.k.token_stride, c.k.head_stride, keys));
  FOVEA_RETURN_IF_ERROR(check_rows("v", c.v.data, c.v.token_stride, c.v.head_stride, keys));
  FOVEA_RETURN_IF_ERROR(check_written(c.out, rows, c.heads, c.dv));
  FOVEA_RETURN_IF_ERROR(check_at_least("max_seq_len", c.max_seq_len, 1));
  if (c.sequences.max_len > c.max_seq_len)
    return invalid("sequences.max_len is " + decimal_of(c.sequences.max_len) + " and max_seq_len " +
                   decimal_of(c.max_seq_len) + "; max_seq_len must not be below it");
  FOVEA_RETURN_IF_ERROR(check_at_least("contextual", c.contextual, 0));
  FOVEA_RETURN_IF_ERROR(check_at_least("max_attn_len", c.max_attn_len, 0));
  FOVEA_RETURN_IF_ERROR(check_at_least("min_full", c.min_full, 0));
  if (c.time_bias == nullptr) return {};
  if (c.time_buckets < 0 || c.time_buckets > 1024)
    return invalid("time_buckets is " + decimal_of(c.time_buckets) + "; 0 to 1024 are possible");
  if (c.time_buckets > 0) FOVEA_RETURN_IF_ERROR(check_needed("time_bounds, with time_bias", c.time_bounds));
  return keys == 0 ? Status() : check_needed("times, with time_bias", c.times);
}

}  // namespace fovea
