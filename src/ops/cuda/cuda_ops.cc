#include "ops/cuda/cuda_ops.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/float16.h"
#include "device/cuda/cuda_stream.h"
#include "kernels/cuda/append/append.h"
#include "kernels/cuda/codes/pack_codes.h"
#include "kernels/cuda/linear/linear.h"
#include "kernels/cuda/lora/lora.h"
#include "kernels/cuda/rows/route.h"
#include "kernels/cuda/rows/row_ops.h"
#include "kernels/cuda/sample/sample.h"
#include "ops/cpu_ops.h"
#include "ops/cuda/activate.h"
#include "ops/cuda/cuda_experts.h"
#include "ops/cuda/cuda_indexer.h"
#include "ops/cuda/cuda_params.h"
#include "ops/heads.h"
#include "tensor/buffer.h"

namespace fovea {
namespace {

cuda::LinearParams linear_params(const LinearWeight& w, const Tensor& x, const Tensor& y) {
  cuda::LinearParams p;
  p.dtype = dtype_of(x);
  p.code = code_of(w);
  p.scales = w.scales.as<const float>();
  p.block_scales = w.format.scaled && w.format.block_k != 0;
  p.n = w.n;
  p.k = w.k;
  p.weight = w.data.data;
  p.constant_weight = true;  // pack_rows() and place() are followed by a synchronization
  p.bias = w.bias.as<const float>();
  p.x = x.data;
  p.x_stride = x.stride(0);
  p.rows = x.size(0);
  p.y = y.data;
  p.y_stride = y.stride(0);
  p.y_dtype = dtype_of(y);
  return p;
}

/// Bytes from each matrix to the next; none if they differ, or if launch_head_linear() does not take them.
std::optional<int64_t> distance_of(std::span<const LinearWeight> weights) {
  const auto address = [&](size_t h) { return static_cast<const std::byte*>(weights[h].data.data); };
  const int64_t distance = weights.size() > 1 ? address(1) - address(0) : 0;
  for (size_t h = 0; h < weights.size(); ++h)
    if (address(h) != address(0) + static_cast<int64_t>(h) * distance ||
        code_of(weights[h]) != cuda::WeightCode::none || weights[h].bias)
      return {};
  return distance % 128 == 0 ? std::optional(distance) : std::nullopt;
}

cuda::LoraParams lora_params(const Ops::LoraInput& in) {
  const LoraLayout& layout = *in.step.layout;
  cuda::LoraParams p;
  p.dtype = dtype_of(in.x);
  p.slots = in.step.slots.data;
  p.slot_bytes = layout.slot_bytes();
  p.matrices = layout.table_bytes();
  p.a = in.place.a;
  p.b = in.place.b;
  p.line = in.place.line;
  p.k = in.place.k;
  p.a_stride = in.place.a_stride();
  p.n = in.place.n;
  p.modules = in.place.modules;
  std::ranges::copy(in.place.first_output, p.first_output);
  p.max_rank = layout.max_rank;
  p.order = in.tiles.order.as<const int32_t>();
  p.tiles = in.tiles.tiles.as<const int32_t>();
  p.num_tiles = in.tiles.tiles.size(0);
  p.x = in.x.data;
  p.x_stride = in.x.stride(0);
  p.low = in.low.as<float>();
  p.counters = in.step.counters.as<int32_t>();
  p.early_input = true;
  return p;
}

cuda::AddParams add_params(const Tensor& x, const Tensor& y, float scale) {
  return {x.as<float>(), x.stride(0), y.data, dtype_of(y), y.stride(0), scale, x.size(0), x.size(1)};
}

cuda::Router router_of(MoeRouter router) {
  switch (router) {
    case MoeRouter::softmax_then_top: return cuda::Router::softmax_then_top;
    case MoeRouter::top_then_softmax: return cuda::Router::top_then_softmax;
    case MoeRouter::sigmoid_top: return cuda::Router::sigmoid_top;
    case MoeRouter::sigmoid_then_top: return cuda::Router::sigmoid_then_top;
  }
  FOVEA_CHECK(false);
}

class CudaOps final : public Ops {
 public:
  CudaOps(Device& device, DType activations) : device_(device), act_(activations) {}

  Device& device() const override { return device_; }
  DType activations() const override { return act_; }
  bool needs_wide() const override { return false; }

  std::vector<std::string> supports(const WeightFormat& format) const override {
    std::vector<std::string> reasons;
    if (code_of(format.layout) != WeightCode::none) {
      if (act_ != DType::bf16)
        reasons.push_back(to_string(format) + " not supported with " + std::string(to_string(act_)) +
                          " activations; bfloat16 is");
      return reasons;
    }
    if (format.stored != element_of(act_))
      reasons.push_back(std::string(to_string(format.stored)) + " weights not supported with " +
                        std::string(to_string(act_)) + " activations");
    const bool rows = format.layout == WeightLayout::rows;
    if (rows != (act_ == DType::f32) || format.layout == WeightLayout::panels)
      reasons.push_back(to_string(format) + " not supported; " +
                        (act_ == DType::f32 ? "rows are" : "blocks of 16 x 64 are"));
    if (format.scaled) reasons.push_back("scaled weights not supported; decode them when they are loaded");
    return reasons;
  }

  std::optional<WeightFormat> packed_format(WeightUse use) const override {
    WeightFormat format;
    format.stored = element_of(act_);
    if (act_ != DType::f32)
      format.layout = use == WeightUse::gated ? WeightLayout::gated_blocks16 : WeightLayout::blocks16;
    return format;
  }

  std::optional<WeightFormat> coded_format(WeightUse use, const WeightCoding& coding) const override {
    if (coding.code == WeightCode::none || act_ != DType::bf16) return std::nullopt;
    const bool gated = use == WeightUse::gated, mxfp4 = coding.code == WeightCode::mxfp4;
    WeightFormat format;
    format.stored = ElementType::u8;
    if (mxfp4) {
      format.layout = gated ? WeightLayout::gated_mxfp4_16 : WeightLayout::mxfp4_16;
      return format;
    }
    format.layout = gated ? WeightLayout::gated_e4m3_16 : WeightLayout::e4m3_16;
    format.scaled = true;
    format.block_n = coding.block_n;
    format.block_k = coding.block_k;
    return format;
  }

  Status pack_rows(const LinearWeight& w, int64_t first, const Tensor& rows, Stream& stream) override {
    const int64_t count = rows.size(0);
    const WeightCode code = code_of(w.format.layout);
    const int64_t width = code == WeightCode::none ? w.k : code_row_bytes(code, w.k);
    FOVEA_CHECK(rows.contiguous() && rows.size(1) == width && rows.dtype == w.format.stored);
    FOVEA_CHECK(first >= 0 && first + count <= w.n);
    if (w.format.layout == WeightLayout::rows) {
      const int64_t row_bytes = w.k * static_cast<int64_t>(size_of(w.format.stored));
      return stream.cuda().copy(static_cast<std::byte*>(w.data.data) + first * row_bytes, rows.data,
                                static_cast<size_t>(count * row_bytes));
    }
    if (!is_gated(w.format.layout)) return pack(w, cuda::PackedPart::plain, first, count, rows, 0, stream);
    const int64_t half = w.n / 2, gates = std::clamp<int64_t>(half - first, 0, count);
    if (gates > 0) FOVEA_RETURN_IF_ERROR(pack(w, cuda::PackedPart::gate, first, gates, rows, 0, stream));
    if (gates == count) return {};
    return pack(w, cuda::PackedPart::up, first + gates - half, count - gates, rows, gates, stream);
  }

  Result<Placed> place(const LinearWeight& host, WeightUse use, Stream& stream) override {
    FOVEA_RETURN_IF_ERROR(check(host));
    LinearWeight w;
    w.n = host.n;
    w.k = host.k;
    w.format = *packed_format(use);
    const int64_t elements = stored_elements(w.format.layout, w.n, w.k);
    const auto data_bytes = static_cast<size_t>(
        round_up(elements * static_cast<int64_t>(size_of(w.format.stored)), kScratchPart));
    const auto bias_bytes = host.bias ? static_cast<size_t>(w.n) * sizeof(float) : 0;
    Placed placed{w, Buffer(device_, data_bytes + bias_bytes)};
    LinearWeight& out = placed.weight;
    out.data = w.format.layout == WeightLayout::rows ? placed.memory.tensor(w.format.stored, {w.n, w.k})
                                                     : placed.memory.tensor(w.format.stored, {elements});
    const std::vector<std::byte> rows = host_rows(host);
    const Buffer there(device_, rows.size());
    Status status = device_.copy_from_host(there.data(), rows.data(), rows.size(), stream);
    if (status) status = pack_rows(out, 0, there.tensor(w.format.stored, {w.n, w.k}), stream);
    if (status && host.bias) {
      out.bias = placed.memory.tensor(ElementType::f32, {w.n}, data_bytes);
      status = copy(host.bias, out.bias, stream);
    }
    const Status done = device_.synchronize(stream);
    FOVEA_RETURN_IF_ERROR(status);
    FOVEA_RETURN_IF_ERROR(done);
    return placed;
  }

  Status cast(const Tensor& x, const Tensor& y, Stream& stream) override {
    return cuda::launch_cast(
        {x.data, dtype_of(x), x.stride(0), y.data, dtype_of(y), y.stride(0), x.size(0), x.size(1)},
        stream.cuda());
  }

  Status embed(const LinearWeight& table, const Tensor& ids, float scale, const Tensor& y,
               Stream& stream) override {
    cuda::EmbedParams p;
    p.table = table.data.data;
    p.table_dtype = dtype_of(table.data);
    p.layout =
        table.format.layout == WeightLayout::rows ? cuda::TableLayout::rows : cuda::TableLayout::blocks16;
    FOVEA_CHECK(table.format.layout != WeightLayout::gated_blocks16);
    p.table_stride = table.k;
    p.n = table.n;
    p.dim = table.k;
    p.ids = ids.as<const int32_t>();
    p.scale = scale;
    p.y = y.as<float>();
    p.y_stride = y.stride(0);
    p.rows = ids.size(0);
    return cuda::launch_embed(p, stream.cuda());
  }

  Status rope_table(const Tensor& frequencies, double factor, const Tensor& positions, const RopeTable& table,
                    Stream& stream) override {
    return cuda::launch_rope_rows(frequencies.as<const double>(), static_cast<int>(frequencies.size(0)),
                                  factor, positions.as<const int32_t>(), static_cast<int>(positions.size(0)),
                                  table.cos.as<float>(), table.sin.as<float>(), stream.cuda());
  }

  Status norm(const NormWeight& w, const Tensor& x, const Tensor& y, Stream& stream) override {
    return cuda::launch_norm(
        {x.data, dtype_of(x), x.stride(0), w.weight.as<const float>(), w.bias.as<const float>(), w.eps,
         y.data, dtype_of(y), y.stride(0), x.size(0), x.size(1)},
        stream.cuda());
  }

  Status add(const Tensor& x, const Tensor& y, float scale, Stream& stream) override {
    return cuda::launch_add(add_params(x, y, scale), stream.cuda());
  }

  Status add_norm(const Tensor& x, const Tensor& y, float scale, const NormWeight& w, const Tensor& out,
                  Stream& stream) override {
    return cuda::launch_add_norm({add_params(x, y, scale), w.weight.as<const float>(),
                                  w.bias.as<const float>(), w.eps, out.data, dtype_of(out), out.stride(0)},
                                 stream.cuda());
  }

  Status linear(const LinearWeight& w, const Tensor& x, const Tensor& y, Stream& stream) override {
    return cuda::launch_linear(layer_params(w, x, y), stream.cuda());
  }

  Status head_linear(std::span<const LinearWeight> weights, const Tensor& x, const Tensor& y,
                     Stream& stream) override {
    const std::optional<int64_t> distance = distance_of(weights);
    if (act_ == DType::f32 || weights.size() > 65535 || !distance)
      return Ops::head_linear(weights, x, y, stream);
    cuda::HeadLinearParams p;
    p.first = linear_params(weights.front(), head_of(x, 0), head_of(y, 0));
    p.heads = static_cast<int64_t>(weights.size());
    p.weight_head = *distance;
    p.x_head = x.stride(1);
    p.y_head = y.stride(1);
    return cuda::launch_head_linear(p, stream.cuda());
  }

  Status gated_linear(const LinearWeight& gate_up, const GatedActivation& activation, const Tensor& x,
                      const Tensor&, const Tensor& out, Stream& stream) override {
    cuda::LinearParams p = layer_params(gate_up, x, out);
    p.epilogue = cuda::LinearEpilogue::gated;
    p.activation = activation.f;
    p.limit = activation.limit;
    return cuda::launch_linear(p, stream.cuda());
  }

  bool supports_lora() const override { return true; }
  int64_t lora_parts(int64_t k) const override { return cuda::lora_parts(act_, k); }
  int64_t lora_columns(const LinearWeight& gate_up) const override {
    return gate_up.format.layout == WeightLayout::rows
               ? gate_up.n
               : cuda::packed_panels(gate_up.n, /*gated=*/true) * cuda::kPanelRows;
  }

  Status linear_lora(const LinearWeight& w, const LoraInput& in, const Tensor& y, Stream& stream) override {
    cuda::LinearParams p = linear_params(w, in.x, y);
    p.late_dependents = true;
    FOVEA_RETURN_IF_ERROR(cuda::launch_linear(p, stream.cuda()));
    return cuda::launch_lora(lora_params(in), y.data, y.stride(0), stream.cuda());
  }

  Status gated_linear_lora(const LinearWeight& gate_up, const GatedActivation& activation,
                           const LoraInput& in, const Tensor& wide, const Tensor& out,
                           Stream& stream) override {
    const cuda::LoraParams p = lora_params(in);
    cuda::LoraGatedParams gated;
    gated.wide = wide.as<const float>();
    gated.wide_stride = wide.stride(0);
    gated.interleaved = gate_up.format.layout != WeightLayout::rows;
    gated.layer = linear_params(gate_up, in.x, out);
    gated.layer.epilogue = cuda::LinearEpilogue::gated;
    gated.layer.activation = activation.f;
    gated.layer.limit = activation.limit;
    if (gated.layer.block_scales) gated.layer.scales = nullptr;  // the sums have them
    for (size_t block = 0; block + 1 < in.tiles.of_block.size(); ++block) {
      const int64_t first = static_cast<int64_t>(block) * in.step.block_rows;
      const int64_t rows = std::min(in.x.size(0) - first, wide.size(0));
      // The sums of all outputs, in the order of the packed weight, without what follows them.
      cuda::LinearParams sums = linear_params(gate_up, in.x.slice(0, first, rows), wide.first_rows(rows));
      sums.n = wide.size(1);
      sums.bias = nullptr;
      sums.late_dependents = true;
      if (!sums.block_scales) sums.scales = nullptr;
      FOVEA_RETURN_IF_ERROR(cuda::launch_linear(sums, stream.cuda()));
      gated.first_row = first;
      gated.first_tile = in.tiles.of_block[block];
      gated.num_tiles = in.tiles.of_block[block + 1] - gated.first_tile;
      FOVEA_RETURN_IF_ERROR(cuda::launch_lora_gated(p, gated, stream.cuda()));
    }
    return {};
  }

  Status activate(Activation f, const Tensor& x, Stream& stream) override {
    return cuda::launch_activate({x.data, dtype_of(x), x.stride(0), x.size(0), x.size(1), f}, stream.cuda());
  }

  Status norm_rope_append(const AttentionInput& in, Stream& stream) override {
    cuda::NormRopeAppendParams p;
    AppendParams& a = p.append;
    a.tokens = static_cast<int>(in.qkv.size(0));
    a.num_heads = in.heads;
    a.num_kv_heads = in.kv_heads;
    a.head_dim = a.v_head_dim = in.head_dim;
    a.dtype = act_;
    const int64_t q_width = int64_t{in.heads} * in.head_dim, kv_width = int64_t{in.kv_heads} * in.head_dim;
    a.k = column_of(in.qkv, q_width);
    a.v = column_of(in.qkv, q_width + kv_width);
    a.q_row_stride = a.k_row_stride = a.v_row_stride = a.q_out_row_stride = in.qkv.stride(0);
    if (in.q_norm || in.rope || in.temperature_scale != 0) a.q = a.q_out = in.qkv.data;
    if (in.q_norm) {
      a.q_norm = {in.q_norm.weight.as<const float>(), in.q_norm.eps};
      a.k_norm = {in.k_norm.weight.as<const float>(), in.k_norm.eps};
      p.norm_over_heads = in.q_norm.weight.size(0) != in.head_dim || in.k_norm.weight.size(0) != in.head_dim;
      p.norm_after_rope = in.norm_after_rope;
    }
    if (in.rope) {
      a.rope.dim = static_cast<int>(2 * in.rope.cos.size(1));
      a.rope.interleaved = in.rope.interleaved;
      a.rope.cos = in.rope.cos.as<const float>();
      a.rope.sin = in.rope.sin.as<const float>();
      a.rope.rows = in.rope.cos.size(0);
    }
    a.kv = in.kv;
    a.slots = in.slots.as<const int64_t>();
    a.num_slots = in.kv.num_pages * in.kv.page_size;
    p.temperature_scale = in.temperature_scale;
    p.temperature_floor = in.temperature_floor;
    p.positions = in.positions.as<const int32_t>();
    return cuda::launch_norm_rope_append(p, stream.cuda());
  }

  Status latent_append(const LatentInput& in, Stream& stream) override {
    cuda::LatentAppendParams p;
    p.tokens = static_cast<int>(in.q.size(0));
    p.heads = static_cast<int>(in.q.size(1));
    p.rank = static_cast<int>(in.norm.weight.size(0));
    p.rope = static_cast<int>(2 * in.rope.cos.size(1));
    p.dtype = act_;
    const Tensor q = in.q.slice(2, in.q.size(2) - p.rope, p.rope);
    const Tensor q_out = in.absorbed.slice(2, p.rank, p.rope);
    p.q = q.data;
    p.q_row_stride = q.stride(0);
    p.q_head_stride = q.stride(1);
    p.q_out = q_out.data;
    p.q_out_row_stride = q_out.stride(0);
    p.q_out_head_stride = q_out.stride(1);
    p.record = in.record.data;
    p.record_row_stride = in.record.stride(0);
    p.norm = {in.norm.weight.as<const float>(), in.norm.eps};
    p.cos = in.rope.cos.as<const float>();
    p.sin = in.rope.sin.as<const float>();
    p.interleaved = in.rope.interleaved;
    p.kv = in.kv;
    p.slots = in.slots.as<const int64_t>();
    p.num_slots = in.kv.num_pages * in.kv.page_size;
    return cuda::launch_latent_append(p, stream.cuda());
  }

  int64_t index_scratch(int64_t heads, int64_t dim, int64_t max_rows, int64_t max_keys) const override {
    return cuda_index_scratch(heads, dim, max_rows, max_keys);
  }

  Status choose_keys(const IndexInput& in, const Tensor& chosen, Stream& stream) override {
    return cuda_choose_keys(*this, in, chosen, stream);
  }

  Status gather_rows(const Tensor& x, const Tensor& ids, const Tensor& y, Stream& stream) override {
    return cuda::launch_gather_dense_rows(
        {x.data, x.stride(0), x.size(0), static_cast<int>(size_of(x.dtype)), ids.as<const int32_t>(), y.data,
         y.stride(0), ids.size(0), x.size(1)},
        stream.cuda());
  }

  Status logits(const LinearWeight& head, const Tensor& x, const LogitRule& rule, const Tensor& logits,
                Stream& stream) override {
    cuda::LinearParams p = layer_params(head, x, logits);
    p.epilogue = cuda::LinearEpilogue::logits;
    p.scale = rule.scale;
    p.softcap = rule.softcap;
    return cuda::launch_linear(p, stream.cuda());
  }

  Status sample(const Tensor& logits, int64_t vocab, const SampleRows& rows, const Tensor& tokens,
                Stream& stream) override {
    cuda::DrawArgs a;
    a.logits = logits.as<const float>();
    a.row_stride = logits.stride(0);
    a.vocab = static_cast<int32_t>(vocab);
    a.rows = static_cast<int32_t>(logits.size(0));
    a.slot = rows.slot.as<const int32_t>();
    a.temperature = rows.temperature.as<const float>();
    a.top_p = rows.top_p.as<const float>();
    a.min_p = rows.min_p.as<const float>();
    a.top_k = rows.top_k.as<const int32_t>();
    a.seed = rows.seed.as<const int64_t>();
    a.position = rows.position.as<const int64_t>();
    a.tokens = tokens.as<int32_t>();
    const int64_t bytes = cuda::sample_scratch_bytes(a.rows, a.vocab, stream.cuda());
    if (bytes > static_cast<int64_t>(draw_scratch_.size())) {
      // Devices without distributed shared memory; grows in the first steps only. What was queued may still
      // use the old memory.
      FOVEA_RETURN_IF_ERROR(device_.synchronize(stream));
      draw_scratch_ = Buffer(device_, static_cast<size_t>(bytes));
    }
    a.scratch = draw_scratch_.data();
    return cuda::launch_draw(a, stream.cuda());
  }

  Status take_tokens(const Tensor& tokens, const Tensor& slot, const Tensor& ids, Stream& stream) override {
    return cuda::launch_take_tokens({tokens.as<const int32_t>(), tokens.size(0), slot.as<const int32_t>(),
                                     ids.as<int32_t>(), ids.size(0)},
                                    stream.cuda());
  }

  Status route(const RouteRule& rule, const Tensor& logits, const Routing& routing, Stream& stream) override {
    cuda::RouteParams p;
    p.router = router_of(rule.router);
    p.renormalize = rule.renormalize;
    p.logits = logits.as<const float>();
    p.logits_stride = logits.stride(0);
    p.num_experts = rule.num_experts;
    p.experts_per_token = rule.experts_per_token;
    p.experts = routing.experts.as<int32_t>();
    p.weights = routing.weights.as<float>();
    p.rows = logits.size(0);
    p.bias = rule.bias.as<const float>();
    p.scale = rule.scale;
    p.groups = rule.groups;
    p.top_groups = rule.top_groups;
    p.group_best = rule.group_best;
    return cuda::launch_route(p, stream.cuda());
  }

  Status experts(const ExpertWeights& weights, const Tensor& x, const Routing& routing, const Tensor& scratch,
                 const Tensor& out, Stream& stream) override {
    return cuda_experts(*this, weights, x, routing, scratch, out, stream);
  }

  int64_t expert_scratch(const ExpertWeights& weights, int experts_per_token,
                         int64_t max_rows) const override {
    return cuda_expert_scratch(*this, weights, experts_per_token, max_rows);
  }

 private:
  /// The bytes of a weight that each CTA reads while small kernels in front of the layer run, for up to
  /// kEarlyRows rows. Of more rows, no gain was measured.
  static constexpr int64_t kEarlyBytes = 144 << 10, kEarlyRows = 16;

  /// linear_params(), with limited early_bytes for few rows, unless a linear layer in front makes x.
  cuda::LinearParams layer_params(const LinearWeight& w, const Tensor& x, const Tensor& y) {
    cuda::LinearParams p = linear_params(w, x, y);
    if (x.data != last_output_ && p.rows <= kEarlyRows) p.early_bytes = kEarlyBytes;
    last_output_ = y.data;
    return p;
  }

  static Status pack(const LinearWeight& w, cuda::PackedPart part, int64_t first, int64_t count,
                     const Tensor& rows, int64_t first_of_rows, Stream& stream) {
    if (code_of(w) != cuda::WeightCode::none)
      return cuda::launch_pack_codes({code_of(w), w.n, w.k, column_of(rows, first_of_rows * rows.size(1)),
                                      part, first, count, w.data.data},
                                     stream.cuda());
    cuda::PackParams p;
    p.n = w.n;
    p.k = w.k;
    p.src = column_of(rows, first_of_rows * w.k);
    p.src_stride = w.k;
    p.part = part;
    p.first_row = first;
    p.rows = count;
    p.dst = w.data.data;
    return cuda::launch_pack(p, stream.cuda());
  }

  /// A packed weight of the host as rows of the activations' type.
  std::vector<std::byte> host_rows(const LinearWeight& host) const {
    const PackedView packed = packed_view(host);
    const auto word = static_cast<int64_t>(size_of(act_));
    std::vector<std::byte> out(static_cast<size_t>(host.n * host.k * word));
    std::vector<float> row(static_cast<size_t>(host.k));
    for (int64_t r = 0; r < host.n; ++r) {
      packed.unpack_row(r, row.data());
      std::byte* to = out.data() + r * host.k * word;
      if (act_ == DType::f32)
        std::ranges::copy(row, reinterpret_cast<float*>(to));
      else
        std::ranges::transform(row, reinterpret_cast<uint16_t*>(to), [&](float v) {
          return act_ == DType::f16 ? float_to_fp16(v) : float_to_bf16(v);
        });
    }
    return out;
  }

  Device& device_;
  DType act_;
  const void* last_output_ = nullptr;  ///< of a linear layer
  Buffer draw_scratch_;
};

}  // namespace

Result<std::unique_ptr<Ops>> make_cuda_ops(Device& device, DType activations) {
  if (device.kind() != DeviceKind::cuda)
    return invalid("operations on CUDA for the device " + std::string(device.name()) +
                   "; a CUDA device is allowed");
  return std::unique_ptr<Ops>(std::make_unique<CudaOps>(device, activations));
}

}  // namespace fovea
