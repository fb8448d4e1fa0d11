#include "ops/op_queue.h"

#include <algorithm>

#include "base/check.h"
#include "ops/op_work.h"

namespace fovea {

bool OpQueue::is(const Tensor& t, ElementType type, std::initializer_list<int64_t> shape) const {
  return t.device == &ops_.device() && t.dtype == type && t.has_shape(shape) && t.contiguous();
}

bool OpQueue::rows_of(const Tensor& t, ElementType type, int64_t rows, int64_t width) const {
  return t.device == &ops_.device() && t.dtype == type && t.has_shape({rows, width}) &&
         (t.stride(1) == 1 || width <= 1);
}

bool OpQueue::fits(const LinearWeight& weight, const Tensor& x, const Tensor& y, ElementType type) const {
  return weight.data.device == &ops_.device() && x.rank == 2 && act_rows(x, x.size(0), weight.k) &&
         rows_of(y, type, x.size(0), weight.n);
}

bool OpQueue::fits(const NormWeight& weight, int64_t dim) const {
  return is(weight.weight, ElementType::f32, {dim}) &&
         (!weight.bias || is(weight.bias, ElementType::f32, {dim}));
}

void OpQueue::cast(const Tensor& x, const Tensor& y) {
  FOVEA_CHECK(act_or_f32_rows(x, x.size(0), x.size(1)) && act_or_f32_rows(y, x.size(0), x.size(1)));
  run("cast", [&] { return rows_work({&x, &y}); }, [&](Stream& stream) { return ops_.cast(x, y, stream); });
}

void OpQueue::embed(const LinearWeight& table, const Tensor& ids, float scale, const Tensor& y) {
  FOVEA_CHECK(ids.rank == 1 && is(ids, ElementType::i32, {ids.size(0)}) && f32_rows(y, ids.size(0), table.k));
  FOVEA_CHECK(table.data.device == &ops_.device());
  run(
      "embed", [&] { return embed_work(table, y); },
      [&](Stream& stream) { return ops_.embed(table, ids, scale, y, stream); });
}

void OpQueue::rope_table(const Tensor& frequencies, double factor, const Tensor& positions,
                         const RopeTable& table) {
  const int64_t pairs = frequencies.size(0), rows = positions.size(0);
  FOVEA_CHECK(is(frequencies, ElementType::f64, {pairs}) && is(positions, ElementType::i32, {rows}));
  FOVEA_CHECK(is(table.cos, ElementType::f32, {rows, pairs}) &&
              is(table.sin, ElementType::f32, {rows, pairs}));
  run(
      "rope_table", [&] { return rows_work({&positions, &table.cos, &table.sin}); },
      [&](Stream& stream) { return ops_.rope_table(frequencies, factor, positions, table, stream); });
}

void OpQueue::norm(const NormWeight& weight, const Tensor& x, const Tensor& y) {
  const int64_t rows = x.size(0), dim = weight.weight.size(0);
  FOVEA_CHECK(fits(weight, dim) && act_or_f32_rows(x, rows, dim) && act_or_f32_rows(y, rows, dim));
  run(
      "norm", [&] { return rows_work({&x, &y}); },
      [&](Stream& stream) { return ops_.norm(weight, x, y, stream); });
}

void OpQueue::add(const Tensor& x, const Tensor& y, float scale) {
  FOVEA_CHECK(f32_rows(x, x.size(0), x.size(1)) && act_or_f32_rows(y, x.size(0), x.size(1)));
  run(
      "add", [&] { return rows_work({&x, &x, &y}); },
      [&](Stream& stream) { return ops_.add(x, y, scale, stream); });
}

void OpQueue::add_norm(const Tensor& x, const Tensor& y, float scale, const NormWeight& weight,
                       const Tensor& out) {
  const int64_t rows = x.size(0), dim = x.size(1);
  FOVEA_CHECK(fits(weight, dim) && f32_rows(x, rows, dim) && act_rows(y, rows, dim) &&
              act_rows(out, rows, dim));
  run(
      "add_norm", [&] { return rows_work({&x, &x, &y, &out}); },
      [&](Stream& stream) { return ops_.add_norm(x, y, scale, weight, out, stream); });
}

void OpQueue::linear(const LinearWeight& weight, const Tensor& x, const Tensor& y, const char* name) {
  FOVEA_CHECK(fits(weight, x, y, act_) || fits(weight, x, y, ElementType::f32));
  run(
      name, [&] { return linear_work(weight, x, y); },
      [&](Stream& stream) { return ops_.linear(weight, x, y, stream); });
}

void OpQueue::gated_linear(const LinearWeight& gate_up, const GatedActivation& activation, const Tensor& x,
                           const Tensor& wide, const Tensor& out, const char* name) {
  FOVEA_CHECK(gate_up.data.device == &ops_.device() && gate_up.n % 2 == 0);
  FOVEA_CHECK(act_rows(x, x.size(0), gate_up.k) && act_rows(out, x.size(0), gate_up.n / 2));
  FOVEA_CHECK(needs_wide() ? act_rows(wide, x.size(0), gate_up.n) : wide.empty());
  run(
      name, [&] { return linear_work(gate_up, x, out); },
      [&](Stream& stream) { return ops_.gated_linear(gate_up, activation, x, wide, out, stream); });
}

void OpQueue::gated_activate(const GatedActivation& activation, const Tensor& wide, const Tensor& out) {
  const int64_t rows = wide.size(0), width = out.size(1);
  FOVEA_CHECK(act_rows(wide, rows, 2 * width) && act_rows(out, rows, width));
  run(
      "gated_activate", [&] { return rows_work({&wide, &out}); },
      [&](Stream& stream) { return ops_.gated_activate(activation, wide, out, stream); });
}

void OpQueue::add_lora(const LoraWeights& weights, std::span<const int32_t> rows, const Tensor& x,
                       const Tensor& y, const Tensor& scratch) {
  FOVEA_CHECK(ops_.supports_lora() && act_rows(x, x.size(0), weights.a.k()));
  FOVEA_CHECK(act_rows(y, x.size(0), y.size(1)) && (rows.empty() || rows.back() < x.size(0)));
  for (const LoraWeights::Module& module : weights.modules)
    FOVEA_CHECK(module.first_output + module.b.n() <= y.size(1) &&
                scratch.elements() >= lora_scratch(weights.a.n(), weights.a.k(), module.b.n()));
  run(
      "lora", [&] { return lora_work(weights, static_cast<int64_t>(rows.size())); },
      [&](Stream& stream) { return ops_.add_lora(weights, rows, x, y, scratch, stream); });
}

bool OpQueue::fits(const Ops::LoraInput& in) const {
  const int64_t rows = in.x.size(0), tiles = in.tiles.tiles.size(0);
  return ops_.supports_lora() && !in.place.empty() && act_rows(in.x, rows, in.place.k) &&
         is(in.tiles.order, ElementType::i32, {rows}) && is(in.tiles.tiles, ElementType::i32, {tiles, 4}) &&
         !in.tiles.of_block.empty() && in.tiles.of_block.back() == tiles &&
         in.step.slots.device == &ops_.device() &&
         is(in.step.counters, ElementType::i32, {in.step.counters.size(0), 2}) &&
         in.step.counters.size(0) >= tiles && in.low.dtype == ElementType::f32 &&
         in.low.elements() >=
             rows * ops_.lora_parts(in.place.k) * in.place.modules * in.step.layout->max_rank;
}

void OpQueue::linear_lora(const LinearWeight& w, const Ops::LoraInput& in, const Tensor& y,
                          const char* name) {
  FOVEA_CHECK(fits(in) && in.place.k == w.k && in.place.n == w.n && act_rows(y, in.x.size(0), w.n));
  run(
      name,
      [&] {
        profile::OpWork work = linear_work(w, in.x, y);
        work += lora_work(in, y);
        return work;
      },
      [&](Stream& stream) { return ops_.linear_lora(w, in, y, stream); });
}

void OpQueue::gated_linear_lora(const LinearWeight& gate_up, const GatedActivation& activation,
                                const Ops::LoraInput& in, const Tensor& wide, const Tensor& out,
                                const char* name) {
  const int64_t rows = in.x.size(0);
  FOVEA_CHECK(fits(in) && in.place.k == gate_up.k && in.place.n == gate_up.n && gate_up.n % 2 == 0);
  FOVEA_CHECK(act_rows(out, rows, gate_up.n / 2) &&
              f32_rows(wide, wide.size(0), ops_.lora_columns(gate_up)) &&
              wide.size(0) >= std::min(rows, in.step.block_rows));
  run(
      name,
      [&] {
        profile::OpWork work = linear_work(gate_up, in.x, out);
        work += lora_work(in, out);
        return work;
      },
      [&](Stream& stream) { return ops_.gated_linear_lora(gate_up, activation, in, wide, out, stream); });
}

void OpQueue::activate(Activation f, const Tensor& x) {
  FOVEA_CHECK(act_rows(x, x.size(0), x.size(1)));
  run(
      "activate", [&] { return rows_work({&x, &x}); },
      [&](Stream& stream) { return ops_.activate(f, x, stream); });
}

void OpQueue::norm_rope_append(const AttentionInput& in) {
  const int64_t rows = in.qkv.size(0), dim = in.head_dim;
  FOVEA_CHECK(act_rows(in.qkv, rows, (in.heads + 2 * int64_t{in.kv_heads}) * dim));
  FOVEA_CHECK(is(in.positions, ElementType::i32, {rows}) && is(in.slots, ElementType::i64, {rows}));
  FOVEA_CHECK(static_cast<bool>(in.q_norm) == static_cast<bool>(in.k_norm));
  if (in.q_norm) {
    const bool each = in.q_norm.weight.size(0) == dim && in.k_norm.weight.size(0) == dim;
    FOVEA_CHECK(!in.q_norm.bias && !in.k_norm.bias);
    FOVEA_CHECK(fits(in.q_norm, each ? dim : in.heads * dim) &&
                fits(in.k_norm, each ? dim : in.kv_heads * dim));
  }
  if (in.rope) {
    const int64_t pairs = in.rope.cos.size(1);
    FOVEA_CHECK(2 * pairs <= dim && is(in.rope.cos, ElementType::f32, {rows, pairs}) &&
                is(in.rope.sin, ElementType::f32, {rows, pairs}));
  }
  run(
      "norm_rope_append", [&] { return append_work(in); },
      [&](Stream& stream) { return ops_.norm_rope_append(in, stream); });
}

bool OpQueue::act_heads(const Tensor& t, int64_t rows, int64_t heads, int64_t dim) const {
  return t.device == &ops_.device() && t.dtype == act_ && t.has_shape({rows, heads, dim}) &&
         (t.stride(2) == 1 || dim <= 1);
}

void OpQueue::head_linear(std::span<const LinearWeight> weights, const Tensor& x, const Tensor& y,
                          const char* name) {
  FOVEA_CHECK(!weights.empty() && x.rank == 3);
  const LinearWeight& first = weights.front();
  const auto heads = static_cast<int64_t>(weights.size());
  FOVEA_CHECK(act_heads(x, x.size(0), heads, first.k) && act_heads(y, x.size(0), heads, first.n));
  FOVEA_CHECK(first.data.device == &ops_.device() && !first.bias);
  run(
      name, [&] { return head_linear_work(weights, x, y); },
      [&](Stream& stream) { return ops_.head_linear(weights, x, y, stream); });
}

void OpQueue::latent_append(const LatentInput& in) {
  FOVEA_CHECK(in.q.rank == 3 && in.norm && in.rope && !in.norm.bias);
  const int64_t rows = in.q.size(0), heads = in.q.size(1), rank = in.norm.weight.size(0);
  const int64_t pairs = in.rope.cos.size(1), rope = 2 * pairs;
  FOVEA_CHECK(rope <= in.q.size(2) && act_heads(in.q, rows, heads, in.q.size(2)) &&
              act_heads(in.absorbed, rows, heads, rank + rope));
  FOVEA_CHECK(act_rows(in.record, rows, rank + rope) && is(in.slots, ElementType::i64, {rows}));
  FOVEA_CHECK(fits(in.norm, rank) && is(in.rope.cos, ElementType::f32, {rows, pairs}) &&
              is(in.rope.sin, ElementType::f32, {rows, pairs}));
  run(
      "latent_append", [&] { return latent_append_work(in); },
      [&](Stream& stream) { return ops_.latent_append(in, stream); });
}

void OpQueue::read_records(const KvView& kv, const Tensor& slots, const Tensor& latent, const Tensor& keys) {
  FOVEA_CHECK(latent.rank == 2 && keys.rank == 3);
  const int64_t rows = latent.size(0);
  FOVEA_CHECK(is(slots, ElementType::i64, {rows}) && act_rows(latent, rows, latent.size(1)) &&
              act_heads(keys, rows, keys.size(1), keys.size(2)));
  run(
      "read_records", [&] { return rows_work({&latent, &latent}); },
      [&](Stream& stream) { return ops_.read_records(kv, slots, latent, keys, stream); });
}

void OpQueue::choose_keys(const IndexInput& in, const Tensor& chosen) {
  FOVEA_CHECK(in.q.rank == 3 && in.norm && in.norm.bias && in.rope && chosen.rank == 2);
  const int64_t rows = in.q.size(0), heads = in.q.size(1), dim = in.q.size(2), pairs = in.rope.cos.size(1);
  FOVEA_CHECK(act_heads(in.q, rows, heads, dim) && act_rows(in.key, rows, dim) &&
              act_rows(in.weights, rows, heads) && 2 * pairs <= dim && fits(in.norm, dim));
  FOVEA_CHECK(is(in.slots, ElementType::i64, {rows}) && is(in.rope.cos, ElementType::f32, {rows, pairs}) &&
              is(in.rope.sin, ElementType::f32, {rows, pairs}));
  FOVEA_CHECK(is(chosen, ElementType::i32, {rows, chosen.size(1)}) && (dry() || in.batch != nullptr));
  const int64_t scratch = ops_.index_scratch(heads, dim, rows, in.max_keys);
  FOVEA_CHECK(scratch == 0 ||
              (is(in.scratch, ElementType::u8, {in.scratch.size(0)}) && in.scratch.size(0) >= scratch));
  run(
      "choose_keys", [&] { return rows_work({&in.q, &in.key, &chosen}); },
      [&](Stream& stream) { return ops_.choose_keys(in, chosen, stream); });
}

void OpQueue::gather_rows(const Tensor& x, const Tensor& ids, const Tensor& y) {
  FOVEA_CHECK(act_or_f32_rows(x, x.size(0), x.size(1)) && is(ids, ElementType::i32, {ids.size(0)}) &&
              rows_of(y, x.dtype, ids.size(0), x.size(1)));
  run(
      "gather_rows", [&] { return rows_work({&y, &y}); },
      [&](Stream& stream) { return ops_.gather_rows(x, ids, y, stream); });
}

void OpQueue::logits(const LinearWeight& head, const Tensor& x, const LogitRule& rule, const Tensor& logits) {
  FOVEA_CHECK(fits(head, x, logits, ElementType::f32));
  run(
      "logits", [&] { return linear_work(head, x, logits); },
      [&](Stream& stream) { return ops_.logits(head, x, rule, logits, stream); });
}

void OpQueue::sample(const Tensor& logits, int64_t vocab, const SampleRows& rows, const Tensor& tokens) {
  const int64_t count = logits.size(0);
  FOVEA_CHECK(f32_rows(logits, count, logits.size(1)) && 0 < vocab && vocab <= logits.size(1));
  for (const Tensor& t : {rows.slot, rows.top_k})
    FOVEA_CHECK(is(t, ElementType::i32, {count}));
  for (const Tensor& t : {rows.temperature, rows.top_p, rows.min_p})
    FOVEA_CHECK(is(t, ElementType::f32, {count}));
  for (const Tensor& t : {rows.seed, rows.position})
    FOVEA_CHECK(is(t, ElementType::i64, {count}));
  FOVEA_CHECK(is(tokens, ElementType::i32, {tokens.size(0)}));
  run(
      "sample", [&] { return rows_work({&logits}); },
      [&](Stream& stream) { return ops_.sample(logits, vocab, rows, tokens, stream); });
}

void OpQueue::take_tokens(const Tensor& tokens, const Tensor& slot, const Tensor& ids) {
  FOVEA_CHECK(is(tokens, ElementType::i32, {tokens.size(0)}) && is(ids, ElementType::i32, {ids.size(0)}) &&
              is(slot, ElementType::i32, {ids.size(0)}));
  run(
      "take_tokens", [&] { return rows_work({&ids, &slot}); },
      [&](Stream& stream) { return ops_.take_tokens(tokens, slot, ids, stream); });
}

void OpQueue::route(const RouteRule& rule, const Tensor& logits, const Routing& routing) {
  const int64_t rows = logits.size(0), chosen = rule.experts_per_token;
  FOVEA_CHECK(!rule.bias || is(rule.bias, ElementType::f32, {rule.num_experts}));
  FOVEA_CHECK(rule.groups > 0 && rule.num_experts % rule.groups == 0 && rule.top_groups > 0 &&
              chosen <= int64_t{rule.num_experts} / rule.groups * rule.top_groups);
  FOVEA_CHECK(chosen > 0 && chosen <= rule.num_experts &&
              is(logits, ElementType::f32, {rows, rule.num_experts}));
  FOVEA_CHECK(is(routing.experts, ElementType::i32, {rows, chosen}) &&
              is(routing.weights, ElementType::f32, {rows, chosen}));
  run(
      "route", [&] { return rows_work({&logits, &routing.experts, &routing.weights}); },
      [&](Stream& stream) { return ops_.route(rule, logits, routing, stream); });
}

void OpQueue::experts(const ExpertWeights& weights, const Tensor& x, const Routing& routing,
                      const Tensor& scratch, const Tensor& out) {
  const int64_t rows = x.size(0), hidden = x.size(1), chosen = routing.experts.size(1);
  FOVEA_CHECK(act_rows(x, rows, hidden) && act_rows(out, rows, hidden));
  FOVEA_CHECK(act_ != ElementType::f32 || (x.contiguous() && out.contiguous()));
  FOVEA_CHECK(is(routing.experts, ElementType::i32, {rows, chosen}) &&
              is(routing.weights, ElementType::f32, {rows, chosen}));
  FOVEA_CHECK(scratch.rank == 1 && is(scratch, ElementType::u8, {scratch.size(0)}) &&
              scratch.size(0) >= ops_.expert_scratch(weights, static_cast<int>(chosen), rows));
  run(
      "experts", [&] { return experts_work(weights, x, chosen, out); },
      [&](Stream& stream) { return ops_.experts(weights, x, routing, scratch, out, stream); });
}

}  // namespace fovea
