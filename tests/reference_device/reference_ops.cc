#include "tests/reference_device/reference_ops.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <numeric>
#include <utility>

#include "base/float16.h"
#include "base/philox.h"
#include "ops/cpu_ops.h"

namespace fovea::test {
namespace {

constexpr int64_t kBlock = 32;  // weights that share a scale
constexpr int8_t kZero = 5;     // a zero point that is not 0

/// Row `row` of a matrix of T.
template <class T>
T* row_of(const Tensor& t, int64_t row) {
  return t.as<T>() + row * t.stride(0);
}

float stored_value(const Tensor& data, int64_t at) {
  switch (data.dtype) {
    case ElementType::f32: return data.as<float>()[at];
    case ElementType::f16: return fp16_to_float(data.as<uint16_t>()[at]);
    case ElementType::bf16: return bf16_to_float(data.as<uint16_t>()[at]);
    case ElementType::i8: return data.as<int8_t>()[at];
    default: FOVEA_CHECK(false);
  }
}

/// Row `row` of a matrix of any float type as fp32, and the reverse, rounded.
std::vector<float> load(const Tensor& t, int64_t row) {
  std::vector<float> values(static_cast<size_t>(t.size(1)));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = stored_value(t, row * t.stride(0) + static_cast<int64_t>(i));
  return values;
}
void store(const Tensor& t, int64_t row, const std::vector<float>& values) {
  FOVEA_CHECK(static_cast<int64_t>(values.size()) == t.size(1));
  if (t.dtype == ElementType::f32) {
    std::ranges::copy(values, row_of<float>(t, row));
    return;
  }
  for (size_t i = 0; i < values.size(); ++i)
    row_of<uint16_t>(t, row)[i] =
        t.dtype == ElementType::f16 ? float_to_fp16(values[i]) : float_to_bf16(values[i]);
}

float weight_at(const LinearWeight& w, int64_t row, int64_t column) {
  const float value = stored_value(w.data, row * w.k + column);
  if (!w.format.scaled) return value;
  const int64_t block = row / w.format.block_n * w.blocks_k() + column / w.format.block_k;
  const float zero = w.zeros ? stored_value(w.zeros, block) : 0.0f;
  return (value - zero) * w.scales.as<float>()[block];
}

void multiply(const LinearWeight& w, const float* x, float* y) {
  for (int64_t n = 0; n < w.n; ++n) {
    double sum = 0;
    for (int64_t k = 0; k < w.k; ++k)
      sum += double{weight_at(w, n, k)} * double{x[k]};
    y[n] = static_cast<float>(sum + (w.bias ? double{w.bias.as<float>()[n]} : 0.0));
  }
}

void norm_row(const float* weight, const float* bias, float eps, const float* x, float* y, int64_t dim) {
  const auto size = static_cast<double>(dim);
  double mean = 0, squares = 0;
  for (int64_t i = 0; bias && i < dim; ++i)
    mean += double{x[i]} / size;
  for (int64_t i = 0; i < dim; ++i)
    squares += (double{x[i]} - mean) * (double{x[i]} - mean);
  const double scale = 1 / std::sqrt(squares / size + double{eps});
  for (int64_t i = 0; i < dim; ++i)
    y[i] = static_cast<float>((double{x[i]} - mean) * scale * double{weight[i]} +
                              (bias ? double{bias[i]} : 0.0));
}

double sigmoid(double z) {
  return 1 / (1 + std::exp(-z));
}

double gate(const GatedActivation& activation, double z, double up) {
  if (activation.limit > 0) {
    const double limit = activation.limit, g = std::min(z, limit), u = std::clamp(up, -limit, limit);
    return (u + 1) * g * sigmoid(1.702 * g);
  }
  switch (activation.f) {
    case Activation::silu: return z * sigmoid(z) * up;
    case Activation::gelu: return z / 2 * (1 + std::erf(z / std::numbers::sqrt2)) * up;
    case Activation::gelu_tanh:
      return z / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (z + 0.044715 * z * z * z))) * up;
    case Activation::relu: return std::max(z, 0.0) * up;
  }
  FOVEA_CHECK(false);
}

void gated_row(const LinearWeight& gate_up, const GatedActivation& activation, const float* x, float* out) {
  std::vector<float> wide(static_cast<size_t>(gate_up.n));
  multiply(gate_up, x, wide.data());
  const int64_t width = gate_up.n / 2;
  for (int64_t i = 0; i < width; ++i)
    out[i] = static_cast<float>(
        gate(activation, double{wide[static_cast<size_t>(i)]}, double{wide[static_cast<size_t>(i + width)]}));
}

/// `values` as activations of `type` hold them.
std::vector<float> rounded(std::vector<float> values, ElementType type) {
  if (type == ElementType::f32) return values;
  for (float& v : values)
    v = type == ElementType::f16 ? fp16_to_float(float_to_fp16(v)) : bf16_to_float(float_to_bf16(v));
  return values;
}

void rotate(const RopeTable& rope, int64_t row, float* head) {
  const int64_t pairs = rope.cos.size(1);
  for (int64_t t = 0; t < pairs; ++t) {
    const double cos = row_of<float>(rope.cos, row)[t], sin = row_of<float>(rope.sin, row)[t];
    float &a = head[rope.interleaved ? 2 * t : t], &b = head[rope.interleaved ? 2 * t + 1 : t + pairs];
    const double low = a, high = b;
    a = static_cast<float>(low * cos - high * sin);
    b = static_cast<float>(high * cos + low * sin);
  }
}

/// Draws a token by the definition, with sorts instead of thresholds.
int32_t draw(const float* logits, int64_t vocab, const SampleRows& rows, int64_t r) {
  std::vector<int32_t> ids(static_cast<size_t>(vocab));
  std::iota(ids.begin(), ids.end(), 0);
  for (const int32_t id : ids)
    if (std::isnan(logits[id]) || logits[id] == INFINITY) return Ops::kNoToken;
  std::ranges::stable_sort(ids, [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  const float max = logits[ids[0]], temperature = rows.temperature.as<float>()[r];
  if (max == -INFINITY) return Ops::kNoToken;
  if (temperature < 1e-5f) return ids[0];
  const auto z = [&](int32_t id) { return (logits[id] - max) * (1.0f / temperature); };
  const auto weight = [&](int32_t id) { return std::exp(double{z(id)}); };
  std::erase_if(ids, [&](int32_t id) { return weight(id) < double{rows.min_p.as<float>()[r]}; });
  if (const auto k = static_cast<size_t>(std::max(rows.top_k.as<int32_t>()[r], 0)); k > 0 && k < ids.size()) {
    const float kth = z(ids[k - 1]);
    std::erase_if(ids, [&](int32_t id) { return z(id) < kth; });
  }
  double mass = 0, before = 0;
  for (const int32_t id : ids)
    mass += weight(id);
  const double wanted = mass * double{rows.top_p.as<float>()[r]};
  std::erase_if(
      ids, [&](int32_t id) { return std::exchange(before, before + weight(id)) >= wanted && id != ids[0]; });
  std::ranges::sort(ids);
  mass = 0;
  for (const int32_t id : ids)
    mass += weight(id);
  double left = mass * philox_uniform(static_cast<uint64_t>(rows.seed.as<int64_t>()[r]),
                                      static_cast<uint64_t>(rows.position.as<int64_t>()[r]));
  for (const int32_t id : ids)
    if ((left -= weight(id)) < 0) return id;
  return ids.back();
}

/// Norm and rotation of the q or k heads of one row.
void prepare_heads(const AttentionInput& in, const NormWeight& norm, int64_t row, float* x, int heads) {
  const int64_t dim = in.head_dim, width = norm ? norm.weight.size(0) : dim;
  const auto apply_norm = [&] {
    if (!norm) return;
    for (float* part = x; part < x + heads * dim; part += width)
      norm_row(norm.weight.as<float>(), nullptr, norm.eps, part, part, width);
  };
  if (!in.norm_after_rope) apply_norm();
  if (in.rope)
    for (int h = 0; h < heads; ++h)
      rotate(in.rope, row, x + h * dim);
  if (in.norm_after_rope) apply_norm();
}

void append(const AttentionInput& in, int64_t slot, const float* k, const float* v) {
  const KvView& kv = in.kv;
  FOVEA_CHECK(kv.dtype == KvCacheDType::float32 && kv.form == KvForm::strided);
  FOVEA_CHECK(slot < kv.num_pages * kv.page_size);
  const int64_t page = slot / kv.page_size, offset = slot % kv.page_size;
  auto* keys = static_cast<float*>(const_cast<void*>(kv.k));
  auto* values = static_cast<float*>(const_cast<void*>(kv.v));
  for (int64_t h = 0; h < in.kv_heads; ++h)
    for (int64_t d = 0; d < in.head_dim; ++d) {
      keys[page * kv.k_page_stride + h * kv.k_head_stride + offset * kv.k_slot_stride + d] =
          k[h * in.head_dim + d];
      values[page * kv.v_page_stride + h * kv.v_head_stride + offset * kv.v_slot_stride + d] =
          v[h * in.head_dim + d];
    }
}

/// The places of the values in descending order; of equal ones the lower first.
std::vector<int32_t> descending(const std::vector<double>& values) {
  std::vector<int32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](int32_t a, int32_t b) {
    return values[static_cast<size_t>(a)] > values[static_cast<size_t>(b)];
  });
  return order;
}

/// What experts are chosen by, from their scores.
std::vector<double> choices(const RouteRule& rule, std::vector<double> values) {
  for (size_t e = 0; rule.bias && e < values.size(); ++e)
    values[e] = double{static_cast<float>(values[e]) + rule.bias.as<float>()[e]};
  if (rule.groups == 1) return values;
  const auto size = values.size() / static_cast<size_t>(rule.groups);
  std::vector<double> worth;
  for (size_t g = 0; g < static_cast<size_t>(rule.groups); ++g) {
    std::vector<double> own(values.begin() + static_cast<std::ptrdiff_t>(g * size),
                            values.begin() + static_cast<std::ptrdiff_t>((g + 1) * size));
    std::ranges::sort(own, std::greater<>());
    worth.push_back(own[0] + (rule.group_best == 2 && size > 1 ? own[1] : 0.0));
  }
  const auto order = descending(worth);
  for (size_t i = static_cast<size_t>(rule.top_groups); i < order.size(); ++i)
    std::fill_n(values.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(order[i]) * size), size,
                -INFINITY);
  return values;
}

/// By the definitions, in fp64.
void route_row(const RouteRule& rule, const float* logits, int32_t* experts, float* weights) {
  const auto count = static_cast<size_t>(rule.num_experts), k = static_cast<size_t>(rule.experts_per_token);
  std::vector<double> scores(logits, logits + count);
  const double top = *std::ranges::max_element(scores);
  double all = 0, taken = 0;
  for (double& s : scores) {
    const bool by_sigmoid =
        rule.router == MoeRouter::sigmoid_top || rule.router == MoeRouter::sigmoid_then_top;
    s = by_sigmoid ? sigmoid(s) : std::exp(s - top);
    all += s;
  }
  if (rule.router == MoeRouter::softmax_then_top)
    for (double& s : scores)
      s /= all;
  // The order of the logits is that of the scores, which round.
  auto order = rule.plain() ? descending({logits, logits + count}) : descending(choices(rule, scores));
  order.resize(k);
  for (const int32_t e : order)
    taken += scores[static_cast<size_t>(e)];
  const bool divides = rule.router == MoeRouter::top_then_softmax ||
                       (rule.router != MoeRouter::sigmoid_top && rule.renormalize);
  for (size_t j = 0; j < k; ++j) {
    experts[j] = order[j];
    weights[j] = static_cast<float>(scores[static_cast<size_t>(order[j])] / (divides ? taken : 1.0) *
                                    double{rule.scale});
  }
}

/// Collects on the host the parts of one device allocation.
class Staging {
 public:
  size_t add(const void* data, size_t bytes) {
    const size_t begin = bytes_.size();
    bytes_.resize(begin + (bytes + Device::kAlignment - 1) / Device::kAlignment * Device::kAlignment);
    if (bytes > 0) std::memcpy(bytes_.data() + begin, data, bytes);
    return begin;
  }
  template <class T>
  size_t add(const std::vector<T>& values) {
    return add(values.data(), values.size() * sizeof(T));
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

/// Blocks of 32 weights: int8 values around kZero, and a scale for each block.
struct Quantised {
  std::vector<int8_t> values, zeros;
  std::vector<float> scales;

  Quantised(const std::vector<float>& weights, int64_t n, int64_t k) : values(weights.size()) {
    for (int64_t row = 0; row < n; ++row)
      for (int64_t first = 0; first < k; first += kBlock) {
        const int64_t begin = row * k + first, end = row * k + std::min(first + kBlock, k);
        float most = 1e-30f;
        for (int64_t i = begin; i < end; ++i)
          most = std::max(most, std::fabs(weights[static_cast<size_t>(i)]));
        const float scale = most / 120;
        for (int64_t i = begin; i < end; ++i)
          values[static_cast<size_t>(i)] =
              static_cast<int8_t>(std::lround(weights[static_cast<size_t>(i)] / scale) + kZero);
        scales.push_back(scale);
        zeros.push_back(kZero);
      }
  }
};

}  // namespace

std::vector<std::string> ReferenceOps::supports(const WeightFormat& format) const {
  std::vector<std::string> reasons;
  if (format.layout != WeightLayout::rows) reasons.push_back("weights in panels not supported; rows are");
  return reasons;
}

Result<Ops::Placed> ReferenceOps::place(const LinearWeight& host, WeightUse, Stream&) {
  FOVEA_RETURN_IF_ERROR(check(host));
  const int64_t n = host.n, k = host.k;
  std::vector<float> weights(static_cast<size_t>(n * k));
  for (int64_t row = 0; row < n; ++row)
    packed_view(host).unpack_row(row, weights.data() + row * k);
  Placed placed;
  LinearWeight& w = placed.weight;
  w.n = n;
  w.k = k;
  w.format.stored = stored_ == Stored::as_given ? host.format.stored : ElementType::f32;
  Staging staging;
  size_t data = 0, scales = 0, zeros = 0;
  if (stored_ != Stored::as_given) {
    const Quantised q(weights, n, k);
    w.format.block_n = 1;
    w.format.block_k = kBlock;
    if (stored_ == Stored::int8) {
      w.format = {ElementType::i8, WeightLayout::rows, true, true, 1, kBlock};
      data = staging.add(q.values);
      scales = staging.add(q.scales);
      zeros = staging.add(q.zeros);
    } else {
      for (int64_t i = 0; i < n * k; ++i)
        weights[static_cast<size_t>(i)] =
            (static_cast<float>(q.values[static_cast<size_t>(i)]) - static_cast<float>(kZero)) *
            q.scales[static_cast<size_t>(i / k * w.blocks_k() + i % k / kBlock)];
      w.format.block_n = w.format.block_k = 0;
      data = staging.add(weights);
    }
  } else if (w.format.stored == ElementType::f32) {
    data = staging.add(weights);
  } else {
    std::vector<uint16_t> narrow(weights.size());
    for (size_t i = 0; i < narrow.size(); ++i)
      narrow[i] = w.format.stored == ElementType::f16 ? float_to_fp16(weights[i]) : float_to_bf16(weights[i]);
    data = staging.add(narrow);
  }
  const size_t bias =
      host.bias ? staging.add(host.bias.as<float>(), static_cast<size_t>(n) * sizeof(float)) : 0;
  placed.memory = Buffer(device_, staging.bytes().size());
  device_.queue(
      [bytes = staging.bytes(), to = placed.memory.data()] { std::memcpy(to, bytes.data(), bytes.size()); });
  w.data = placed.memory.tensor(w.format.stored, {n, k}, data);
  if (w.format.scaled) {
    w.scales = placed.memory.tensor(ElementType::f32, {w.blocks_n(), w.blocks_k()}, scales);
    w.zeros = placed.memory.tensor(ElementType::i8, {w.blocks_n(), w.blocks_k()}, zeros);
  }
  if (host.bias) w.bias = placed.memory.tensor(ElementType::f32, {n}, bias);
  FOVEA_RETURN_IF_ERROR(check(w));
  return placed;
}

Status ReferenceOps::embed(const LinearWeight& table, const Tensor& ids, float scale, const Tensor& y,
                           Stream&) {
  device_.queue([=] {
    for (int64_t r = 0; r < y.size(0); ++r)
      for (int64_t i = 0; i < table.k; ++i)
        row_of<float>(y, r)[i] = scale * weight_at(table, ids.as<int32_t>()[r], i);
  });
  return {};
}

Status ReferenceOps::rope_table(const Tensor& frequencies, double factor, const Tensor& positions,
                                const RopeTable& table, Stream&) {
  device_.queue([=] {
    for (int64_t r = 0; r < positions.size(0); ++r)
      for (int64_t i = 0; i < frequencies.size(0); ++i) {
        const double angle = positions.as<int32_t>()[r] * frequencies.as<double>()[i];
        row_of<float>(table.cos, r)[i] = static_cast<float>(factor * std::cos(angle));
        row_of<float>(table.sin, r)[i] = static_cast<float>(factor * std::sin(angle));
      }
  });
  return {};
}

Status ReferenceOps::cast(const Tensor& x, const Tensor& y, Stream&) {
  device_.queue([=] {
    for (int64_t r = 0; r < x.size(0); ++r)
      store(y, r, load(x, r));
  });
  return {};
}

Status ReferenceOps::norm(const NormWeight& weight, const Tensor& x, const Tensor& y, Stream&) {
  device_.queue([=] {
    for (int64_t r = 0; r < x.size(0); ++r) {
      std::vector<float> row = load(x, r);
      norm_row(weight.weight.as<float>(), weight.bias.as<float>(), weight.eps, row.data(), row.data(),
               x.size(1));
      store(y, r, row);
    }
  });
  return {};
}

Status ReferenceOps::add(const Tensor& x, const Tensor& y, float scale, Stream&) {
  device_.queue([=] {
    for (int64_t r = 0; r < x.size(0); ++r)
      for (int64_t i = 0; i < x.size(1); ++i)
        row_of<float>(x, r)[i] += scale * stored_value(y, r * y.stride(0) + i);
  });
  return {};
}

Status ReferenceOps::linear(const LinearWeight& weight, const Tensor& x, const Tensor& y, Stream&) {
  written.push_back(y.data);
  device_.queue([=] {
    for (int64_t r = 0; r < x.size(0); ++r) {
      std::vector<float> out(static_cast<size_t>(weight.n));
      multiply(weight, load(x, r).data(), out.data());
      store(y, r, out);
    }
  });
  return {};
}

Status ReferenceOps::gated_linear(const LinearWeight& gate_up, const GatedActivation& activation,
                                  const Tensor& x, const Tensor&, const Tensor& out, Stream&) {
  device_.queue([=] {
    for (int64_t r = 0; r < x.size(0); ++r) {
      std::vector<float> row(static_cast<size_t>(gate_up.n / 2));
      gated_row(gate_up, activation, load(x, r).data(), row.data());
      store(out, r, row);
    }
  });
  return {};
}

namespace {

/// y += the share of the adapter of `slot`.
void add_share(const LoraStep& step, const LoraPlace& place, int64_t slot, const std::vector<float>& x,
               std::vector<float>& y) {
  const LoraLayout& layout = *step.layout;
  FOVEA_CHECK(slot < step.slots.size(0));
  const std::byte* const memory =
      static_cast<const std::byte*>(step.slots.data) + slot * step.slots.stride(0);
  LoraLine line;
  std::memcpy(&line, memory + place.line * static_cast<int64_t>(sizeof line), sizeof line);
  const int64_t rank = line.rank, elements = layout.elements * rank;
  FOVEA_CHECK(rank > 0 && rank <= layout.max_rank && rank % LoraLayout::kRanks == 0);
  const Tensor all = Tensor::dense(const_cast<std::byte*>(memory) + layout.table_bytes(), *step.slots.device,
                                   element_of(layout.dtype), {elements});
  for (int m = 0; m < place.modules; ++m) {
    const auto index = static_cast<size_t>(m);
    if (line.scale[index] == 0.0f) continue;
    for (int64_t r = 0; r < rank; ++r) {
      double sum = 0;
      for (int64_t k = 0; k < place.k; ++k)
        sum += double{x[static_cast<size_t>(k)]} *
               double{stored_value(all, place.a * rank + (m * rank + r) * place.a_stride() + k)};
      for (int64_t n = place.first_output[index]; n < place.first_output[index + 1]; ++n)
        y[static_cast<size_t>(n)] += static_cast<float>(double{line.scale[index]} * sum *
                                                        double{stored_value(all, (place.b + n) * rank + r)});
    }
  }
}

/// f(row, slot) of each row of the tiles [first, end).
template <class F>
void each_row(const LoraTiles& tiles, int64_t first, int64_t end, const F& f) {
  for (int64_t t = first; t < end; ++t) {
    LoraTile tile;
    std::memcpy(&tile, static_cast<const LoraTile*>(tiles.tiles.data) + t, sizeof tile);
    for (int32_t i = 0; i < tile.rows; ++i)
      f(tiles.order.as<int32_t>()[tile.first + i], tile.slot);
  }
}

}  // namespace

namespace {

/// The adapters of experts in a step.
struct ExpertAdapters {
  explicit ExpertAdapters(const ExpertLora* lora) {
    if (lora == nullptr || lora->step == nullptr || !lora->layout->has_experts(lora->layer)) return;
    step = *lora->step;
    places = lora->layout->experts[static_cast<size_t>(lora->layer)];
    tiles = lora->logit_rows ? step.logit_rows : step.rows;
  }
  std::vector<int64_t> slots(int64_t rows) const {
    std::vector<int64_t> out(static_cast<size_t>(rows), -1);
    if (!places.empty())
      each_row(tiles, 0, tiles.tiles.size(0),
               [&](int64_t row, int64_t slot) { out[static_cast<size_t>(row)] = slot; });
    return out;
  }
  void add(const std::vector<int64_t>& slots, int64_t row, size_t expert, size_t site,
           const std::vector<float>& x, std::vector<float>& y) const {
    if (const int64_t slot = slots[static_cast<size_t>(row)]; slot >= 0 && !places.empty())
      add_share(step, places[expert][site], slot, x, y);
  }

  LoraStep step;
  LoraTiles tiles;
  std::vector<std::array<LoraPlace, 2>> places;
};

}  // namespace

Status ReferenceOps::linear_lora(const LinearWeight& weight, const LoraInput& in, const Tensor& y,
                                 Stream& stream) {
  FOVEA_RETURN_IF_ERROR(linear(weight, in.x, y, stream));
  device_.queue([step = in.step, place = in.place, tiles = in.tiles, x = in.x, y] {
    each_row(tiles, 0, tiles.tiles.size(0), [&](int64_t row, int64_t slot) {
      if (slot < 0) return;
      std::vector<float> values = load(y, row);
      add_share(step, place, slot, load(x, row), values);
      store(y, row, values);
    });
  });
  return {};
}

Status ReferenceOps::gated_linear_lora(const LinearWeight& gate_up, const GatedActivation& activation,
                                       const LoraInput& in, const Tensor& wide, const Tensor& out, Stream&) {
  device_.queue([=, step = in.step, place = in.place, tiles = in.tiles, x = in.x] {
    int64_t done = 0;
    for (size_t block = 0; block + 1 < tiles.of_block.size(); ++block) {
      const int64_t first = static_cast<int64_t>(block) * step.block_rows;
      each_row(tiles, tiles.of_block[block], tiles.of_block[block + 1], [&](int64_t row, int64_t slot) {
        FOVEA_CHECK(row >= first && row < first + wide.size(0));
        const std::vector<float> input = load(x, row);
        std::vector<float> sums(static_cast<size_t>(gate_up.n)), values(static_cast<size_t>(gate_up.n / 2));
        multiply(gate_up, input.data(), sums.data());
        if (slot >= 0) add_share(step, place, slot, input, sums);
        store(wide, row - first, sums);
        for (size_t i = 0; i < values.size(); ++i)
          values[i] = static_cast<float>(gate(activation, double{sums[i]}, double{sums[i + values.size()]}));
        store(out, row, values);
        ++done;
      });
    }
    FOVEA_CHECK(done == x.size(0));
  });
  return {};
}

Status ReferenceOps::activate(Activation f, const Tensor& x, Stream&) {
  device_.queue([=] {
    for (int64_t r = 0; r < x.size(0); ++r) {
      std::vector<float> row = load(x, r);
      for (float& v : row)
        v = static_cast<float>(gate({f}, double{v}, 1.0));
      store(x, r, row);
    }
  });
  return {};
}

Status ReferenceOps::norm_rope_append(const AttentionInput& in, Stream&) {
  device_.queue([=] {
    for (int64_t r = 0; r < in.qkv.size(0); ++r) {
      std::vector<float> qkv = load(in.qkv, r);
      float* q = qkv.data();
      float* k = q + in.heads * in.head_dim;
      prepare_heads(in, in.q_norm, r, q, in.heads);
      prepare_heads(in, in.k_norm, r, k, in.kv_heads);
      if (in.temperature_scale != 0) {
        const double steps = std::floor((in.positions.as<int32_t>()[r] + 1) / in.temperature_floor);
        for (float* x = q; x < k; ++x)
          *x = static_cast<float>(*x * (1 + in.temperature_scale * std::log(1 + steps)));
      }
      store(in.qkv, r, qkv);
      qkv = rounded(std::move(qkv), in.qkv.dtype);
      k = qkv.data() + in.heads * in.head_dim;
      const int64_t slot = in.slots.as<int64_t>()[r];
      if (slot >= 0) append(in, slot, k, k + in.kv_heads * in.head_dim);
    }
  });
  return {};
}

Status ReferenceOps::latent_append(const LatentInput& in, Stream&) {
  device_.queue([=] {
    const int64_t rank = in.norm.weight.size(0), rope = 2 * in.rope.cos.size(1);
    const KvView& kv = in.kv;
    FOVEA_CHECK(kv.dtype == KvCacheDType::float32);
    for (int64_t r = 0; r < in.record.size(0); ++r) {
      std::vector<float> record = load(in.record, r);
      norm_row(in.norm.weight.as<float>(), nullptr, in.norm.eps, record.data(), record.data(), rank);
      rotate(in.rope, r, record.data() + rank);
      const int64_t slot = in.slots.as<int64_t>()[r];
      FOVEA_CHECK(slot < kv.num_pages * kv.page_size);
      if (slot >= 0)
        std::ranges::copy(record, static_cast<float*>(const_cast<void*>(kv.k)) +
                                      slot / kv.page_size * kv.k_page_stride +
                                      slot % kv.page_size * kv.k_slot_stride);
      for (int64_t h = 0; h < in.q.size(1); ++h) {
        // The last `rope` elements of both, as one row each.
        const auto part = [&](const Tensor& t) {
          Tensor row = t.slice(0, r, 1).slice(1, h, 1).slice(2, t.size(2) - rope, rope);
          row.rank = 2;
          row.shape = {1, rope};
          row.strides = {rope, 1};
          return row;
        };
        std::vector<float> head = load(part(in.q), 0);
        rotate(in.rope, r, head.data());
        store(part(in.absorbed), 0, head);
      }
    }
  });
  return {};
}

Status ReferenceOps::gather_rows(const Tensor& x, const Tensor& ids, const Tensor& y, Stream&) {
  device_.queue([=] {
    for (int64_t r = 0; r < y.size(0); ++r)
      store(y, r, load(x, ids.as<int32_t>()[r]));
  });
  return {};
}

Status ReferenceOps::logits(const LinearWeight& head, const Tensor& x, const LogitRule& rule,
                            const Tensor& logits, Stream& stream) {
  FOVEA_RETURN_IF_ERROR(linear(head, x, logits, stream));
  device_.queue([=] {
    for (int64_t r = 0; r < logits.size(0); ++r)
      for (int64_t i = 0; i < head.n; ++i) {
        float& y = row_of<float>(logits, r)[i];
        y *= rule.scale;
        if (rule.softcap > 0) y = rule.softcap * std::tanh(y / rule.softcap);
      }
  });
  return {};
}

Status ReferenceOps::sample(const Tensor& logits, int64_t vocab, const SampleRows& rows, const Tensor& tokens,
                            Stream&) {
  device_.queue([=] {
    for (int64_t r = 0; r < logits.size(0); ++r) {
      const int32_t slot = rows.slot.as<int32_t>()[r];
      if (slot >= 0) tokens.as<int32_t>()[slot] = draw(row_of<float>(logits, r), vocab, rows, r);
    }
  });
  return {};
}

Status ReferenceOps::take_tokens(const Tensor& tokens, const Tensor& slot, const Tensor& ids, Stream&) {
  device_.queue([=] {
    for (int64_t t = 0; t < ids.size(0); ++t)
      if (const int32_t from = slot.as<int32_t>()[t]; from >= 0)
        ids.as<int32_t>()[t] = tokens.as<int32_t>()[from];
  });
  return {};
}

Status ReferenceOps::route(const RouteRule& rule, const Tensor& logits, const Routing& routing, Stream&) {
  device_.queue([=] {
    for (int64_t r = 0; r < logits.size(0); ++r)
      route_row(rule, row_of<float>(logits, r), row_of<int32_t>(routing.experts, r),
                row_of<float>(routing.weights, r));
  });
  return {};
}

Status ReferenceOps::experts(const ExpertWeights& weights, const Tensor& x, const Routing& routing,
                             const Tensor&, const Tensor& out, Stream&) {
  device_.queue([=, adapters = ExpertAdapters(weights.lora)] {
    const auto hidden = static_cast<size_t>(x.size(1));
    const int64_t chosen = routing.experts.size(1);
    const std::vector<int64_t> slots = adapters.slots(x.size(0));
    const auto mlp = [&](int64_t r, size_t expert, const std::vector<float>& in) {
      const GatedMlpWeights& w = expert < weights.experts.size() ? weights.experts[expert] : weights.shared;
      std::vector<float> wide(static_cast<size_t>(w.gate_up.n)), act(wide.size() / 2), y(hidden);
      multiply(w.gate_up, in.data(), wide.data());
      adapters.add(slots, r, expert, 0, in, wide);
      for (size_t i = 0; i < act.size(); ++i)
        act[i] = static_cast<float>(gate(weights.activation, double{wide[i]}, double{wide[i + act.size()]}));
      act = rounded(std::move(act), x.dtype);
      multiply(w.down, act.data(), y.data());
      adapters.add(slots, r, expert, 1, act, y);
      return y;
    };
    for (int64_t r = 0; r < x.size(0); ++r) {
      const std::vector<float> row = load(x, r);
      std::vector<float> sum(hidden);
      if (!weights.shared.empty()) sum = mlp(r, weights.experts.size(), row);
      std::vector<std::pair<int32_t, float>> of_row;
      for (int64_t j = 0; j < chosen; ++j)
        of_row.emplace_back(row_of<int32_t>(routing.experts, r)[j], row_of<float>(routing.weights, r)[j]);
      std::ranges::sort(of_row);
      for (const auto& [expert, weight] : of_row) {
        std::vector<float> in = row;
        if (weights.scales_input)
          for (float& v : in)
            v *= weight;
        const std::vector<float> y = mlp(r, static_cast<size_t>(expert), in);
        for (size_t i = 0; i < hidden; ++i)
          sum[i] += weights.scales_input ? y[i] : weight * y[i];
      }
      store(out, r, sum);
    }
  });
  return {};
}

int64_t ReferenceOps::expert_scratch(const ExpertWeights&, int, int64_t) const {
  return 0;
}

}  // namespace fovea::test
