#include "ops/op_work.h"

#include <cmath>

namespace fovea {
namespace {

double operand_bytes(const Tensor& t) {
  return static_cast<double>(t.elements()) * static_cast<double>(size_of(t.dtype));
}

double products(const LinearWeight& w, double rows) {
  return 2.0 * rows * static_cast<double>(w.n) * static_cast<double>(w.k);
}

}  // namespace

profile::OpWork linear_work(const LinearWeight& weight, const Tensor& x, const Tensor& y) {
  return {static_cast<double>(weight.bytes()) + operand_bytes(x) + operand_bytes(y),
          products(weight, static_cast<double>(x.size(0)))};
}

profile::OpWork rows_work(std::initializer_list<const Tensor*> tensors) {
  profile::OpWork work;
  for (const Tensor* tensor : tensors)
    work.bytes += operand_bytes(*tensor);
  return work;
}

profile::OpWork embed_work(const LinearWeight& table, const Tensor& y) {
  const double row = static_cast<double>(table.bytes()) / static_cast<double>(table.n);
  return {row * static_cast<double>(y.size(0)) + operand_bytes(y), 0};
}

profile::OpWork append_work(const AttentionInput& in) {
  const auto rows = static_cast<double>(in.qkv.size(0));
  const double head = rows * in.head_dim;
  const auto act = static_cast<double>(size_of(in.qkv.dtype));
  const double written = in.q_norm || in.rope || in.temperature_scale != 0 ? head * in.heads * act : 0;
  return {
      operand_bytes(in.qkv) + written + 2 * head * in.kv_heads * static_cast<double>(size_of(in.kv.dtype)),
      0};
}

profile::OpWork head_linear_work(std::span<const LinearWeight> weights, const Tensor& x, const Tensor& y) {
  profile::OpWork work{operand_bytes(x) + operand_bytes(y), 0};
  for (const LinearWeight& weight : weights) {
    work.bytes += static_cast<double>(weight.bytes());
    work.flops += products(weight, static_cast<double>(x.size(0)));
  }
  return work;
}

profile::OpWork lora_work(const LoraWeights& weights, int64_t rows) {
  const auto count = static_cast<double>(rows), k = static_cast<double>(weights.a.k());
  profile::OpWork work{static_cast<double>(weights.bytes()) + 4 * count * k,
                       2 * count * k * static_cast<double>(weights.a.n())};
  for (const LoraWeights::Module& module : weights.modules) {
    const auto n = static_cast<double>(module.b.n());
    work.bytes += 8 * count * n;
    work.flops += 2 * count * n * static_cast<double>(module.b.k());
  }
  return work;
}

profile::OpWork lora_work(const Ops::LoraInput& in, const Tensor& y) {
  const auto rank = static_cast<double>(in.step.layout->max_rank);
  const double weights = rank * static_cast<double>(in.place.modules * in.place.k + in.place.n);
  return {weights * static_cast<double>(size_of(in.x.dtype)) + operand_bytes(in.x) + 2 * operand_bytes(y),
          2 * weights * static_cast<double>(in.x.size(0))};
}

profile::OpWork latent_append_work(const LatentInput& in) {
  const double rotated = static_cast<double>(in.q.size(0) * in.q.size(1)) * 2 *
                         static_cast<double>(in.rope.cos.size(1)) * static_cast<double>(size_of(in.q.dtype));
  const auto records = static_cast<double>(in.record.elements());
  return {2 * rotated + operand_bytes(in.record) + records * static_cast<double>(size_of(in.kv.dtype)), 0};
}

profile::OpWork experts_work(const ExpertWeights& weights, const Tensor& x, int64_t experts_per_token,
                             const Tensor& out) {
  profile::OpWork work{operand_bytes(x) + operand_bytes(out), 0};
  const auto rows = static_cast<double>(x.size(0)), count = static_cast<double>(weights.experts.size());
  // As if rows were spread evenly over all choices.
  const double chosen = static_cast<double>(experts_per_token) * count / (count + weights.identity_experts);
  if (!weights.experts.empty()) {
    const double touched = count * (1 - std::pow(1 - chosen / count, rows));
    const GatedMlpWeights& expert = weights.experts.front();
    work.bytes += touched * static_cast<double>(expert.gate_up.bytes() + expert.down.bytes());
    work.flops += products(expert.gate_up, rows * chosen) + products(expert.down, rows * chosen);
  }
  if (!weights.shared.empty()) {
    work.bytes += static_cast<double>(weights.shared.gate_up.bytes() + weights.shared.down.bytes());
    work.flops += products(weights.shared.gate_up, rows) + products(weights.shared.down, rows);
  }
  return work;
}

}  // namespace fovea
