#include "model/placed_weights.h"

#include <utility>

#include "base/check.h"
#include "ops/cpu_ops.h"

namespace fovea {

namespace {

constexpr int64_t kBlockAlignment = 256;  // what a GPU's copies of whole lines and its matrix kernels like

int64_t bytes_of(const Tensor& t) {
  return t.elements() * static_cast<int64_t>(size_of(t.dtype));
}

}  // namespace

WeightPlacement::WeightPlacement(Ops& ops, Stream& stream, int64_t bytes) : WeightPlacement(ops, &stream) {
  if (in_block()) memory_.emplace_back(ops.device(), static_cast<size_t>(bytes));
}

WeightPlacement WeightPlacement::measure(Ops& ops) {
  WeightPlacement placement(ops, nullptr);
  FOVEA_CHECK(placement.in_block());
  return placement;
}

Tensor WeightPlacement::take(ElementType type, std::initializer_list<int64_t> shape) {
  const int64_t begin = used_;
  used_ += static_cast<int64_t>(dense_bytes(type, shape)) + kBlockAlignment - 1;
  used_ = used_ / kBlockAlignment * kBlockAlignment;
  return stream_ ? memory_.front().tensor(type, shape, static_cast<size_t>(begin))
                 : Tensor::dense(nullptr, ops_->device(), type, shape);
}

/// Quantised weights stay so where the operations can read them.
WeightFormat WeightPlacement::format_of(const WeightMatrix& weight, WeightUse use) const {
  if (weight.source())
    if (const auto coded = ops_->coded_format(use, weight.source()->coding())) return *coded;
  return *format_of(use);
}

namespace {

/// Scales [n, blocks of k] as a format has them: [panels, blocks of k, 2], for the halves of panels.
Result<std::vector<float>> scales_of_halves(const LinearWeight& w, const std::vector<float>& rows) {
  constexpr int64_t kHalf = 8;
  const int64_t blocks = w.blocks_k(), panels = panels_of(w.format.layout, w.n);
  std::vector<float> out(static_cast<size_t>(panels * blocks * 2));
  for (int64_t half = 0; half < 2 * panels; ++half) {
    const int64_t first = !is_gated(w.format.layout) ? half * kHalf : half / 2 * kHalf + half % 2 * (w.n / 2);
    const int64_t end = is_gated(w.format.layout) && half % 2 == 0 ? w.n / 2 : w.n;
    for (int64_t r = first; r < std::min(first + kHalf, end); ++r)
      for (int64_t b = 0; b < blocks; ++b) {
        float& to = out[static_cast<size_t>((half / 2 * blocks + b) * 2 + half % 2)];
        const float scale = rows[static_cast<size_t>(r * blocks + b)];
        if (r > first && scale != to)
          return unsupported(
              "layers of " + std::to_string(w.n) +
              " outputs that are quantised in blocks of 128 x 128 but not stacked at multiples of 8 "
              "are not supported; use the bfloat16 checkpoint");
        to = scale;
      }
  }
  return out;
}

/// Elements of the scales of codes.
int64_t scale_count(const WeightFormat& format, int64_t n, int64_t k) {
  return format.block_k == 0 ? n
                             : panels_of(format.layout, n) * ((k + format.block_k - 1) / format.block_k) * 2;
}

}  // namespace

/// Scales of layer `index` of a tensor with those of several layers.
Tensor WeightPlacement::scales_of(const Tensor& all, int64_t index, const LinearWeight& w) const {
  float* first = all.as<float>();
  if (first != nullptr) first += index * scale_count(w.format, w.n, w.k);
  return w.format.block_k == 0 ? Tensor::dense(first, ops_->device(), ElementType::f32, {w.n, 1})
                               : Tensor::dense(first, ops_->device(), ElementType::f32,
                                               {panels_of(w.format.layout, w.n), w.blocks_k(), 2});
}

void WeightPlacement::send_scales(const LinearWeight& w, const WeightSource& source) {
  if (!stream_ || !status_) return;
  std::vector<float> scales(static_cast<size_t>(w.n * w.blocks_k()));
  status_ = source.read_scales(0, w.n, scales.data());
  if (status_ && w.format.block_k != 0) {
    auto halves = scales_of_halves(w, scales);
    if (!halves) {
      status_ = halves.error();
      return;
    }
    scales = *std::move(halves);
  }
  const std::vector<float>& kept = sent_.emplace_back(std::move(scales));
  copy_to(Tensor::dense(w.scales.data, ops_->device(), ElementType::f32, {w.scales.elements()}),
          host_tensor(std::span<const float>(kept)));
}

LinearWeight WeightPlacement::packed(const WeightMatrix& weight, WeightUse use, const Tensor& scales,
                                     int64_t index) {
  LinearWeight out;
  out.n = weight.n();
  out.k = weight.k();
  out.format = format_of(weight, use);
  out.data = out.format.layout == WeightLayout::rows
                 ? take(out.format.stored, {out.n, out.k})
                 : take(out.format.stored, {stored_elements(out.format.layout, out.n, out.k)});
  if (out.format.scaled) {
    const Tensor& all = scales ? scales : take(ElementType::f32, {scale_count(out.format, out.n, out.k)});
    out.scales = scales_of(all, index, out);
    send_scales(out, *weight.source());
  }
  if (stream_) matrices_.push_back({out, weight.source() ? weight.source() : packed_source(weight)});
  check_format(out.format);
  return out;
}

LinearWeight WeightPlacement::shape_only(int64_t n, int64_t k) const {
  LinearWeight out;
  out.n = n;
  out.k = k;
  out.format = *format_of(WeightUse::plain);
  out.data = Tensor::dense(nullptr, ops_->device(), out.format.stored, {0});
  return out;
}

void WeightPlacement::check_format(const WeightFormat& format) {
  std::string reasons;
  for (const std::string& reason : ops_->supports(format))
    reasons += (reasons.empty() ? "" : "; ") + reason;
  if (!reasons.empty() && status_)
    status_ = unsupported(std::string(ops_->device().name()) + " can't run the model: " + reasons);
}

LinearWeight WeightPlacement::linear(const WeightMatrix& weight, std::span<const float> bias, WeightUse use) {
  if (weight.n() == 0 || !status_) return {};
  if (in_block()) {
    LinearWeight out = packed(weight, use);
    if (!bias.empty()) out.bias = vector<float>(bias);
    return out;
  }
  const LinearWeight host = packed_weight(weight, bias);
  if (!ops_) return host;
  auto placed = ops_->place(host, use, *stream_);
  if (!placed) {
    status_ = placed.error();
    return {};
  }
  check_format(placed->weight.format);
  memory_.push_back(std::move(placed->memory));
  return placed->weight;
}

std::vector<LinearWeight> WeightPlacement::linears(std::span<const Linear* const> layers, WeightUse use) {
  std::vector<LinearWeight> out;
  if (!in_block()) {
    for (const Linear* layer : layers)
      out.push_back(linear(*layer, use));
    return out;
  }
  if (layers.empty()) return out;
  const WeightMatrix& first = layers.front()->weight;
  const WeightFormat format = format_of(first, use);
  Tensor scales;
  if (format.scaled)
    scales = take(ElementType::f32,
                  {static_cast<int64_t>(layers.size()) * scale_count(format, first.n(), first.k())});
  for (const Linear* layer : layers)
    if (format_of(layer->weight, use) != format && status_)
      status_ = unsupported("experts of one layer are quantised differently: " + to_string(format) + " and " +
                            to_string(format_of(layer->weight, use)) + "; use the bfloat16 checkpoint");
  if (!status_) return {};
  for (const Linear* layer : layers)
    out.push_back(packed(layer->weight, use, scales, static_cast<int64_t>(out.size())));
  if (layers.empty() || layers.front()->bias.size() == 0) return out;
  const auto count = static_cast<int64_t>(layers.size());
  const Tensor biases = take(ElementType::f32, {count, out.front().n});
  for (size_t i = 0; i < out.size(); ++i) {
    FOVEA_CHECK(out[i].n == out.front().n && out[i].k == out.front().k);
    out[i].bias = biases.slice(0, static_cast<int64_t>(i), 1);
    out[i].bias = Tensor::dense(out[i].bias.data, ops_->device(), ElementType::f32, {out[i].n});
    copy_to(out[i].bias, host_tensor(std::span<const float>(layers[i]->bias)));
  }
  return out;
}

NormWeight WeightPlacement::norm(const Norm& norm) {
  return {vector<float>(norm.weight), vector<float>(norm.bias), norm.eps};
}

Tensor WeightPlacement::copied(const Tensor& host) {
  if (!ops_ || !status_) return host;
  const Tensor there = in_block() ? take(host.dtype, {host.size(0)})
                                  : memory_.emplace_back(ops_->device(), static_cast<size_t>(bytes_of(host)))
                                        .tensor(host.dtype, {host.size(0)});
  copy_to(there, host);
  return there;
}

void WeightPlacement::copy_to(const Tensor& there, const Tensor& host) {
  if (stream_ && status_) status_ = copy(host, there, *stream_);
}

Status WeightPlacement::finish(const PlaceOptions& options) {
  const std::vector<WeightTransfer> matrices = std::exchange(matrices_, {});
  const Status read = status_ && in_block() ? read_weights(*ops_, *stream_, matrices, options) : Status();
  Status copied = ops_->device().synchronize(*stream_);
  FOVEA_RETURN_IF_ERROR(status_);
  FOVEA_RETURN_IF_ERROR(read);
  return copied;
}

int64_t bytes_of(const std::vector<Buffer>& memory) {
  int64_t bytes = 0;
  for (const Buffer& buffer : memory)
    bytes += static_cast<int64_t>(buffer.size());
  return bytes;
}

Error needs_host_weights(const Ops& ops) {
  return invalid(std::string(ops.device().name()) +
                 " takes only weights that the host has read; load the model without `deferred`");
}

namespace {

GatedMlpWeights place(const Linear& gate_up, const Linear& down, WeightPlacement& placement) {
  return {placement.linear(gate_up, WeightUse::gated), placement.linear(down)};
}

PlacedAttention place(const AttentionBlock& block, WeightPlacement& placement) {
  return {placement.linear(block.qkv),  placement.linear(block.out),          placement.norm(block.q_norm),
          placement.norm(block.k_norm), placement.vector<float>(block.sinks), block.temperature};
}

PlacedLatent place(const LatentBlock& block, WeightPlacement& placement) {
  const auto heads = [&](const std::vector<Linear>& matrices) {
    std::vector<const Linear*> all;
    for (const Linear& matrix : matrices)
      all.push_back(&matrix);
    return placement.linears(all, WeightUse::plain);
  };
  PlacedLatent out;
  out.down = placement.linear(block.down);
  out.q_norm = placement.norm(block.q_norm);
  if (block.q_norm) out.q_up = placement.linear(block.q_up);
  out.kv_norm = placement.norm(block.kv_norm);
  out.key_up = heads(block.key_up);
  out.value_up = heads(block.value_up);
  if (!block.key_down.empty()) out.key_down = heads(block.key_down);
  out.out = placement.linear(block.out);
  if (block.indexer)
    out.indexer = {placement.linear(block.indexer->queries), placement.linear(block.indexer->key),
                   placement.linear(block.indexer->weights), placement.norm(block.indexer->key_norm)};
  return out;
}

PlacedDraftInput place(const DraftInput& draft, WeightPlacement& placement) {
  PlacedDraftInput out;
  out.joins_in_attention = draft.joins_in_attention;
  out.norm_before_residual = draft.norm_before_residual;
  out.embedding_norm = placement.norm(draft.embedding_norm);
  out.state_norm = placement.norm(draft.state_norm);
  out.fc_norm = placement.norm(draft.fc_norm);
  out.fc = placement.linear(draft.fc);
  for (const Norm& norm : draft.part_norms)
    out.part_norms.push_back(placement.norm(norm));
  return out;
}

}  // namespace

PlacedMoe place(const MoeBlock& block, WeightPlacement& placement) {
  PlacedMoe moe;
  moe.router = placement.linear(block.router);
  const MoeConfig& c = block.config;
  moe.rule = {.router = c.router,
              .num_experts = c.choices(),
              .experts_per_token = c.experts_per_token,
              .renormalize = c.renormalize,
              .bias = placement.vector<float>(block.choice_bias),
              .scale = c.routed_scale,
              .groups = c.groups,
              .top_groups = c.top_groups,
              .group_best = c.group_best};
  std::vector<const Linear*> gate_up, down;
  for (const Expert& expert : block.experts) {
    gate_up.push_back(&expert.gate_up);
    down.push_back(&expert.down);
  }
  const auto placed_gate_up = placement.linears(gate_up, WeightUse::gated);
  const auto placed_down = placement.linears(down, WeightUse::plain);
  for (size_t e = 0; e < block.experts.size(); ++e)
    moe.experts.push_back({placed_gate_up[e], placed_down[e]});
  moe.shared = place(block.shared.gate_up, block.shared.down, placement);
  moe.activation = {block.activation, block.config.swiglu_limit};
  moe.identity_experts = c.identity_experts;
  return moe;
}

PlacedDecoder place(const ModelConfig& config, const DecoderWeights& weights,
                    std::span<const std::vector<double>> frequencies, const DecoderScales& scales,
                    WeightPlacement& placement) {
  PlacedDecoder out;
  out.embedding = weights.shared_embedding ? *weights.shared_embedding : placement.linear(weights.embedding);
  out.head = weights.shared_head ? *weights.shared_head
             : weights.lm_head   ? placement.linear(*weights.lm_head)
                                 : out.embedding;
  if (weights.draft) out.draft = place(*weights.draft, placement);
  FOVEA_CHECK(frequencies.size() == config.ropes.size());
  for (size_t i = 0; i < frequencies.size(); ++i)
    out.ropes.push_back({placement.vector<double>(frequencies[i]), config.ropes[i].attention_factor,
                         config.ropes[i].interleaved});
  for (const DecoderLayer& layer : weights.layers) {
    PlacedLayer& placed = out.layers.emplace_back();
    placed.attention_input_norm = placement.norm(layer.attention_input_norm);
    placed.attention_output_norm = placement.norm(layer.attention_output_norm);
    if (layer.latent)
      placed.latent = place(*layer.latent, placement);
    else
      placed.attention = place(layer.attention, placement);
    placed.mlp_input_norm = placement.norm(layer.mlp_input_norm);
    placed.mlp_output_norm = placement.norm(layer.mlp_output_norm);
    if (const auto* dense = std::get_if<GatedMlp>(&layer.mlp)) {
      placed.mlp = place(dense->gate_up, dense->down, placement);
      placed.activation.f = dense->activation;
    } else {
      placed.moe = place(std::get<MoeBlock>(layer.mlp), placement);
    }
    if (layer.shortcut) placed.shortcut = place(*layer.shortcut, placement);
  }
  out.final_norm = placement.norm(weights.final_norm);
  out.scales = scales;
  return out;
}

}  // namespace fovea
