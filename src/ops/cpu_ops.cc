#include "ops/cpu_ops.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/float8.h"
#include "base/philox.h"
#include "kernels/cache/ds_mla.h"
#include "kernels/cache/kv_writer.h"
#include "kernels/cache/stored_value.h"
#include "kernels/cpu/for_rows.h"
#include "kernels/cpu/indexer.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/moe.h"
#include "kernels/cpu/ops.h"
#include "ops/cpu_experts.h"
#include "ops/token_sampler.h"

namespace fovea {
namespace {

DType dtype_of(ElementType type) {
  FOVEA_CHECK(type == ElementType::f32 || type == ElementType::f16 || type == ElementType::bf16);
  return type == ElementType::f32 ? DType::f32 : type == ElementType::f16 ? DType::f16 : DType::bf16;
}

template <class T>
std::span<const T> values(const Tensor& t) {
  return {t.as<const T>(), static_cast<size_t>(t.elements())};
}

float sigmoid(float x) {
  return 1.0f / (1.0f + std::exp(-x));
}

constexpr int64_t kCodeCost = 8;  // of rotating and rounding an element

/// Rotates keys by a Hadamard matrix and writes them as e4m3 with their scales.
void write_index_codes(const IndexInput& in) {
  const int dim = static_cast<int>(in.key.size(1));
  const KvView& kv = in.keys;
  for (int64_t row = 0; row < in.key.size(0); ++row) {
    const int64_t at = in.slots.as<int64_t>()[row];
    if (at < 0) continue;
    FOVEA_CHECK(at < kv.num_pages * kv.page_size);
    float* x = in.key.as<float>() + row * in.key.stride(0);
    hadamard(x, dim);
    const int64_t page = at / kv.page_size, slot = at % kv.page_size;
    const float scale = round_to_index_codes(x, dim);
    auto* codes =
        static_cast<uint8_t*>(const_cast<void*>(kv.k)) + page * kv.k_page_stride + slot * kv.k_slot_stride;
    for (int c = 0; c < dim; ++c)
      codes[c] = float_to_e4m3(x[c]);
    const_cast<float*>(kv.k_scales)[page * kv.scale_page_stride + slot * kv.scale_slot_stride] = scale;
  }
}

/// Divides by the sum if the rule says so, and applies its scale.
void finish_weights(const RouteRule& rule, float* weights, int k) {
  if (rule.renormalize) {
    float sum = 0;
    for (int j = 0; j < k; ++j)
      sum += weights[j];
    if (rule.router == MoeRouter::sigmoid_then_top) sum += 1e-20f;
    for (int j = 0; j < k; ++j)
      weights[j] /= sum;
  }
  if (rule.scale == 1.0f) return;
  for (int j = 0; j < k; ++j)
    weights[j] *= rule.scale;
}

/// Puts experts outside of the best groups out of the choice.
void mask_groups(const RouteRule& rule, std::vector<float>& choice) {
  const int size = rule.num_experts / rule.groups, best = std::min(rule.group_best, size);
  std::vector<float> worth(static_cast<size_t>(rule.groups));
  std::vector<int32_t> ids(static_cast<size_t>(std::max(best, rule.top_groups)));
  for (int64_t g = 0; g < rule.groups; ++g) {
    const float* first = choice.data() + g * size;
    largest(first, size, best, ids.data());
    float& sum = worth[static_cast<size_t>(g)];
    for (int j = 0; j < best; ++j)
      sum += first[ids[static_cast<size_t>(j)]];
  }
  largest(worth.data(), rule.groups, rule.top_groups, ids.data());
  const auto end = ids.begin() + rule.top_groups;
  for (int64_t g = 0; g < rule.groups; ++g)
    if (std::find(ids.begin(), end, g) == end) std::fill_n(choice.begin() + g * size, size, -INFINITY);
}

/// Chooses a row's experts and computes their weights by the rule; overwrites `logits`.
void route_row(const RouteRule& rule, float* logits, int32_t* ids, float* weights) {
  const int k = rule.experts_per_token;
  if (rule.router == MoeRouter::softmax_then_top) softmax(logits, rule.num_experts);
  if (rule.router == MoeRouter::sigmoid_then_top)
    std::transform(logits, logits + rule.num_experts, logits, sigmoid);
  if (rule.plain()) {
    largest(logits, rule.num_experts, k, ids);
  } else {
    thread_local std::vector<float> choice;
    choice.assign(logits, logits + rule.num_experts);
    for (size_t e = 0; rule.bias && e < choice.size(); ++e)
      choice[e] += rule.bias.as<float>()[e];
    if (rule.groups > 1) mask_groups(rule, choice);
    largest(choice.data(), rule.num_experts, k, ids);
  }
  for (int j = 0; j < k; ++j)
    weights[j] = logits[ids[j]];
  switch (rule.router) {
    case MoeRouter::softmax_then_top:
    case MoeRouter::sigmoid_then_top: return finish_weights(rule, weights, k);
    case MoeRouter::top_then_softmax: return softmax(weights, k);
    case MoeRouter::sigmoid_top: std::transform(weights, weights + k, weights, sigmoid); return;
  }
}

void norm_heads(const AttentionInput& in, ThreadPool& pool) {
  auto* q = in.qkv.as<float>();
  auto* k = q + int64_t{in.heads} * in.head_dim;
  const int64_t stride = in.qkv.stride(0), rows = in.qkv.size(0);
  const auto apply = [&](const NormWeight& norm, float* x, int heads) {
    const int64_t dim = norm.weight.size(0);
    if (dim == in.head_dim)
      rms_norm_heads(x, stride, heads, in.head_dim, norm.weight.as<float>(), norm.eps, rows, pool);
    else
      rms_norm(x, stride, norm.weight.as<float>(), norm.eps, x, stride, rows, dim, pool);
  };
  apply(in.q_norm, q, in.heads);
  apply(in.k_norm, k, in.kv_heads);
}

/// Multiplies q by each row's temperature, which sharpens the softmax of queries at far positions.
void sharpen(const AttentionInput& in, ThreadPool& pool) {
  const int64_t dim = int64_t{in.heads} * in.head_dim, stride = in.qkv.stride(0);
  const auto positions = values<int32_t>(in.positions);
  for (size_t row = 0; row < positions.size(); ++row) {
    const double steps = std::floor((positions[row] + 1) / in.temperature_floor);
    const double factor = 1 + in.temperature_scale * std::log1p(steps);
    scale_rows(in.qkv.as<float>() + static_cast<int64_t>(row) * stride, stride, static_cast<float>(factor), 1,
               dim, pool);
  }
}

int32_t draw_row(std::span<const float> logits, const SampleRows& rows, int64_t r) {
  thread_local TokenSampler sampler;
  const LogitScan found = scan_logits(logits);
  if (!found.valid) return Ops::kNoToken;
  const DrawRule rule{rows.temperature.as<float>()[r], rows.top_k.as<int32_t>()[r], rows.top_p.as<float>()[r],
                      rows.min_p.as<float>()[r]};
  const double uniform = philox_uniform(static_cast<uint64_t>(rows.seed.as<int64_t>()[r]),
                                        static_cast<uint64_t>(rows.position.as<int64_t>()[r]));
  return static_cast<int32_t>(sampler.draw(logits, found.max, rule, uniform));
}

class CpuOps final : public Ops {
 public:
  Device& device() const override { return cpu_device(); }

  std::vector<std::string> supports(const WeightFormat& format) const override {
    std::vector<std::string> reasons;
    if (format.stored != ElementType::f32 && format.stored != ElementType::f16 &&
        format.stored != ElementType::bf16)
      reasons.push_back(std::string(to_string(format.stored)) +
                        " weights not supported; float32, float16 and bfloat16 are");
    if (format.layout != WeightLayout::panels) reasons.push_back("weights in rows not supported; panels are");
    if (format.scaled) reasons.push_back("scaled weights not supported; decode them when they are loaded");
    return reasons;
  }

  Result<Placed> place(const LinearWeight& host, WeightUse, Stream& stream) override {
    FOVEA_RETURN_IF_ERROR(check(host));
    const auto bytes = [](const Tensor& t) { return static_cast<size_t>(t.elements()) * size_of(t.dtype); };
    const size_t bias = (bytes(host.data) + Device::kAlignment - 1) / Device::kAlignment * Device::kAlignment;
    Placed placed{host, Buffer(cpu_device(), bias + bytes(host.bias))};
    placed.weight.data = placed.memory.tensor(host.format.stored, {host.data.size(0)});
    FOVEA_RETURN_IF_ERROR(copy(host.data, placed.weight.data, stream));
    if (!host.bias) return placed;
    placed.weight.bias = placed.memory.tensor(ElementType::f32, {host.n}, bias);
    FOVEA_RETURN_IF_ERROR(copy(host.bias, placed.weight.bias, stream));
    return placed;
  }

  Status embed(const LinearWeight& table, const Tensor& ids, float scale, const Tensor& y,
               Stream& stream) override {
    const PackedView rows = packed_view(table);
    const int64_t count = ids.size(0), stride = y.stride(0);
    const auto id = values<int32_t>(ids);
    auto* out = y.as<float>();
    for (const int32_t i : id)
      FOVEA_CHECK(i >= 0 && i < rows.n);
    for_rows(count, count * rows.k * PackedView::kUnpackCost, stream.pool(),
             [&](int64_t row) { rows.unpack_row(id[static_cast<size_t>(row)], out + row * stride); });
    if (scale != 1.0f) scale_rows(out, stride, scale, count, rows.k, stream.pool());
    return {};
  }

  Status rope_table(const Tensor& frequencies, double factor, const Tensor& positions, const RopeTable& table,
                    Stream& stream) override {
    rope_rows(values<double>(frequencies), factor, values<int32_t>(positions), table.cos.as<float>(),
              table.sin.as<float>(), stream.pool());
    return {};
  }

  Status norm(const NormWeight& w, const Tensor& x, const Tensor& y, Stream& stream) override {
    const int64_t rows = x.size(0), dim = x.size(1);
    if (w.bias)
      layer_norm(x.as<float>(), x.stride(0), w.weight.as<float>(), w.bias.as<float>(), w.eps, y.as<float>(),
                 y.stride(0), rows, dim, stream.pool());
    else
      rms_norm(x.as<float>(), x.stride(0), w.weight.as<float>(), w.eps, y.as<float>(), y.stride(0), rows, dim,
               stream.pool());
    return {};
  }

  Status add(const Tensor& x, const Tensor& y, float scale, Stream& stream) override {
    add_rows(x.as<float>(), x.stride(0), y.as<float>(), y.stride(0), scale, x.size(0), x.size(1),
             stream.pool());
    return {};
  }

  Status linear(const LinearWeight& w, const Tensor& x, const Tensor& y, Stream& stream) override {
    fovea::linear(packed_view(w), x.as<float>(), x.stride(0), x.size(0), y.as<float>(), y.stride(0),
                  w.bias.as<float>(), stream.pool());
    return {};
  }

  Status gated_linear(const LinearWeight& gate_up, const GatedActivation& activation, const Tensor& x,
                      const Tensor& wide, const Tensor& out, Stream& stream) override {
    gated_linear_on_cpu(gate_up, activation, x.as<float>(), x.stride(0), x.size(0), wide.as<float>(),
                        wide.stride(0), out.as<float>(), out.stride(0), stream.pool());
    return {};
  }

  Status gated_activate(const GatedActivation& activation, const Tensor& wide, const Tensor& out,
                        Stream& stream) override {
    gated_activate_on_cpu(activation, wide.as<float>(), wide.stride(0), wide.size(0), out.size(1),
                          out.as<float>(), out.stride(0), stream.pool());
    return {};
  }

  bool supports_lora() const override { return true; }
  Status add_lora(const LoraWeights& weights, std::span<const int32_t> rows, const Tensor& x, const Tensor& y,
                  const Tensor& scratch, Stream& stream) override {
    apply_lora(weights, rows, x.as<float>(), x.stride(0), y.as<float>(), y.stride(0), scratch.as<float>(),
               stream.pool());
    return {};
  }

  Status activate(Activation f, const Tensor& x, Stream& stream) override {
    auto* rows = x.as<float>();
    fovea::activate(f, rows, x.stride(0), rows, x.stride(0), x.size(0), x.size(1), stream.pool());
    return {};
  }

  Status norm_rope_append(const AttentionInput& in, Stream& stream) override {
    ThreadPool& pool = stream.pool();
    auto* q = in.qkv.as<float>();
    const int64_t stride = in.qkv.stride(0);
    if (in.q_norm && !in.norm_after_rope) norm_heads(in, pool);
    if (in.rope)  // q and k heads are adjacent and rotate in one call
      rotate_rows(in.rope.interleaved, q, stride, in.heads + in.kv_heads, in.head_dim,
                  static_cast<int>(2 * in.rope.cos.size(1)), in.qkv.size(0), in.rope.cos.as<float>(),
                  in.rope.sin.as<float>(), pool);
    if (in.q_norm && in.norm_after_rope) norm_heads(in, pool);
    if (in.temperature_scale != 0) sharpen(in, pool);
    const float* k = q + int64_t{in.heads} * in.head_dim;
    write_kv(in.kv, in.kv_heads, in.head_dim, in.head_dim, values<int64_t>(in.slots), k, stride,
             k + int64_t{in.kv_heads} * in.head_dim, stride, pool);
    return {};
  }

  Status latent_append(const LatentInput& in, Stream& stream) override {
    ThreadPool& pool = stream.pool();
    const int64_t rows = in.q.size(0), stride = in.record.stride(0), rank = in.norm.weight.size(0);
    const int heads = static_cast<int>(in.q.size(1)), rope = static_cast<int>(2 * in.rope.cos.size(1));
    auto* record = in.record.as<float>();
    rms_norm(record, stride, in.norm.weight.as<float>(), in.norm.eps, record, stride, rows, rank, pool);
    const auto rotate = [&](float* x, int64_t row_stride, int count, int64_t distance) {
      rotate_rows(in.rope.interleaved, x, row_stride, count, static_cast<int>(distance), rope, rows,
                  in.rope.cos.as<float>(), in.rope.sin.as<float>(), pool);
    };
    rotate(record + rank, stride, 1, rope);
    const float* from = in.q.as<float>() + in.q.size(2) - rope;
    float* to = in.absorbed.as<float>() + rank;
    for_rows(rows, rows * heads * rope, pool, [&](int64_t row) {
      for (int64_t h = 0; h < heads; ++h)
        std::memcpy(to + row * in.absorbed.stride(0) + h * in.absorbed.stride(1),
                    from + row * in.q.stride(0) + h * in.q.stride(1),
                    static_cast<size_t>(rope) * sizeof(float));
    });
    rotate(to, in.absorbed.stride(0), heads, in.absorbed.stride(1));
    if (in.kv.dtype == KvCacheDType::fp8_ds_mla) {
      write_ds_mla(in.kv, static_cast<int>(rank), rope, values<int64_t>(in.slots), record, stride, pool);
      return {};
    }
    KvView view = in.kv;  // V is part of K's record: nothing of V is written
    view.v_scales = nullptr;
    write_kv(view, 1, static_cast<int>(in.record.size(1)), 0, values<int64_t>(in.slots), record, stride,
             nullptr, 0, pool);
    return {};
  }

  Status read_records(const KvView& kv, const Tensor& slots, const Tensor& latent, const Tensor& keys,
                      Stream& stream) override {
    FOVEA_CHECK(kv.dtype != KvCacheDType::fp8_ds_mla);
    const int64_t rank = latent.size(1), heads = keys.size(1), rope = keys.size(2), rows = latent.size(0);
    const auto slot_of = values<int64_t>(slots);
    for_rows(rows, rows * (rank + heads * rope), stream.pool(), [&](int64_t row) {
      const int64_t id = slot_of[static_cast<size_t>(row)], page = id / kv.page_size,
                    slot = id % kv.page_size;
      FOVEA_CHECK(id >= 0 && page < kv.num_pages);
      const int64_t at = page * kv.k_page_stride + slot * kv.k_slot_stride;
      float scale = kv.k_scale;
      if (kv.k_scales != nullptr)
        scale *= kv.k_scales[page * kv.scale_page_stride + slot * kv.scale_slot_stride];
      const auto read = [&](int64_t first, int64_t count, float* out) {
        for (int64_t d = 0; d < count; ++d)
          out[d] = stored_value(kv.k, at + first + d, kv.dtype) * scale;
      };
      read(0, rank, latent.as<float>() + row * latent.stride(0));
      float* key = keys.as<float>() + row * keys.stride(0);
      read(rank, rope, key);
      for (int64_t h = 1; h < heads; ++h)
        std::copy_n(key, rope, key + h * keys.stride(1));
    });
    return {};
  }

  Status choose_keys(const IndexInput& in, const Tensor& chosen, Stream& stream) override {
    ThreadPool& pool = stream.pool();
    const int64_t rows = in.q.size(0), q_stride = in.q.stride(0), w_stride = in.weights.stride(0);
    const int heads = static_cast<int>(in.q.size(1)), dim = static_cast<int>(in.q.size(2));
    const int rotary = static_cast<int>(2 * in.rope.cos.size(1));
    auto *q = in.q.as<float>(), *key = in.key.as<float>(), *weights = in.weights.as<float>();
    FOVEA_CHECK(in.q.stride(1) == dim);
    FOVEA_RETURN_IF_ERROR(norm(in.norm, in.key, in.key, stream));
    const auto rotate = [&](float* x, int64_t stride, int count) {
      rotate_rows(in.rope.interleaved, x, stride, count, dim, rotary, rows, in.rope.cos.as<float>(),
                  in.rope.sin.as<float>(), pool);
    };
    rotate(q, q_stride, heads);
    rotate(key, in.key.stride(0), 1);
    if (in.keys.dtype == KvCacheDType::fp8_e4m3) {
      for_rows(rows, rows * (heads + 1) * dim * kCodeCost, pool, [&](int64_t row) {
        for (int h = 0; h < heads; ++h) {
          float* x = q + row * q_stride + int64_t{h} * dim;
          hadamard(x, dim);
          weights[row * w_stride + h] *= in.scale * round_to_index_codes(x, dim);
        }
      });
      write_index_codes(in);
    } else {
      scale_rows(weights, w_stride, in.scale, rows, heads, pool);
      write_kv(in.keys, 1, dim, 0, values<int64_t>(in.slots), key, in.key.stride(0), nullptr, 0, pool);
    }
    IndexStep step;
    step.q = q;
    step.q_stride = q_stride;
    step.weights = weights;
    step.weight_stride = w_stride;
    step.heads = heads;
    step.dim = dim;
    step.topk = static_cast<int>(chosen.size(1));
    step.keys = in.keys;
    step.batch = *in.batch;
    step.chosen = chosen.as<int32_t>();
    FOVEA_CHECK(chosen.contiguous() && in.batch->num_tokens() == rows);
    fovea::choose_keys(step, pool);
    return {};
  }

  Status cast(const Tensor& x, const Tensor& y, Stream&) override {
    for (int64_t row = 0; row < x.size(0); ++row)
      std::copy_n(x.as<float>() + row * x.stride(0), x.size(1), y.as<float>() + row * y.stride(0));
    return {};
  }

  Status gather_rows(const Tensor& x, const Tensor& ids, const Tensor& y, Stream& stream) override {
    FOVEA_CHECK(y.contiguous());
    for (const int32_t row : values<int32_t>(ids))
      FOVEA_CHECK(row >= 0 && row < x.size(0));
    fovea::gather_rows(x.as<float>(), x.stride(0), values<int32_t>(ids), nullptr, y.as<float>(), x.size(1),
                       stream.pool());
    return {};
  }

  Status logits(const LinearWeight& head, const Tensor& x, const LogitRule& rule, const Tensor& logits,
                Stream& stream) override {
    FOVEA_RETURN_IF_ERROR(linear(head, x, logits, stream));
    auto* out = logits.as<float>();
    const int64_t stride = logits.stride(0), rows = logits.size(0);
    if (rule.scale != 1.0f) scale_rows(out, stride, rule.scale, rows, head.n, stream.pool());
    if (rule.softcap > 0.0f) softcap_rows(out, stride, rule.softcap, rows, head.n, stream.pool());
    return {};
  }

  Status sample(const Tensor& logits, int64_t vocab, const SampleRows& rows, const Tensor& tokens,
                Stream& stream) override {
    for_rows(logits.size(0), logits.elements(), stream.pool(), [&](int64_t r) {
      const int32_t slot = rows.slot.as<int32_t>()[r];
      if (slot < 0) return;
      FOVEA_CHECK(slot < tokens.size(0));
      tokens.as<int32_t>()[slot] =
          draw_row({logits.as<float>() + r * logits.stride(0), static_cast<size_t>(vocab)}, rows, r);
    });
    return {};
  }

  Status take_tokens(const Tensor& tokens, const Tensor& slot, const Tensor& ids, Stream&) override {
    const auto slots = values<int32_t>(slot);
    for (size_t t = 0; t < slots.size(); ++t) {
      FOVEA_CHECK(slots[t] < tokens.size(0));
      if (slots[t] >= 0) ids.as<int32_t>()[t] = tokens.as<int32_t>()[slots[t]];
    }
    return {};
  }

  Status route(const RouteRule& rule, const Tensor& logits, const Routing& routing, Stream& stream) override {
    // Per logit: an exp, and a few places in the list of the largest, in elements.
    constexpr int64_t kCost = 64;
    const int64_t rows = logits.size(0), count = rule.num_experts, k = rule.experts_per_token;
    for_rows(rows, rows * count * kCost, stream.pool(), [&](int64_t r) {
      route_row(rule, logits.as<float>() + r * count, routing.experts.as<int32_t>() + r * k,
                routing.weights.as<float>() + r * k);
    });
    return {};
  }

  Status experts(const ExpertWeights& weights, const Tensor& x, const Routing& routing, const Tensor& scratch,
                 const Tensor& out, Stream& stream) override {
    run_experts_on_cpu(weights, x, routing, scratch, out, stream.pool());
    return {};
  }
  int64_t expert_scratch(const ExpertWeights& weights, int experts_per_token,
                         int64_t max_rows) const override {
    return cpu_expert_scratch(weights, experts_per_token, max_rows);
  }
};

}  // namespace

Ops& cpu_ops() {
  static CpuOps ops;
  return ops;
}

LinearWeight packed_weight(const PackedView& weight, std::span<const float> bias) {
  LinearWeight out;
  out.n = weight.n;
  out.k = weight.k;
  out.format.stored = element_of(weight.storage);
  out.format.layout = WeightLayout::panels;
  constexpr int64_t kPanel = 32;
  out.data = Tensor::dense(const_cast<std::byte*>(weight.data), cpu_device(), out.format.stored,
                           {(weight.n + kPanel - 1) / kPanel * kPanel * weight.k});
  if (!bias.empty()) out.bias = host_tensor(bias);
  return out;
}

PackedView packed_view(const LinearWeight& weight) {
  FOVEA_CHECK(weight.format.layout == WeightLayout::panels && !weight.format.scaled);
  return {weight.n, weight.k, dtype_of(weight.format.stored), weight.data.as<std::byte>()};
}

}  // namespace fovea
