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
#include "kernels/cuda/experts/experts.h"
#include "kernels/cuda/index/index.h"
#include "kernels/cuda/linear/linear.h"
#include "kernels/cuda/lora/lora.h"
#include "kernels/cuda/rows/route.h"
#include "kernels/cuda/rows/row_ops.h"
#include "kernels/cuda/sample/sample.h"
#include "ops/cpu_ops.h"
#include "ops/cuda/activate.h"
#include "ops/gpu_indexer.h"
#include "ops/heads.h"
#include "tensor/buffer.h"

namespace fovea {
namespace {

constexpr int64_t kPart = 256;  // bytes: parts of the experts' scratch begin at multiples

DType dtype_of(const Tensor& t) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
    if (element_of(dtype) == t.dtype) return dtype;
  FOVEA_CHECK(false);
}

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// The address of row 0, column `column`, of a matrix.
std::byte* column_of(const Tensor& t, int64_t column) {
  return static_cast<std::byte*>(t.data) + column * static_cast<int64_t>(size_of(t.dtype));
}

cuda::WeightCode code_of(const LinearWeight& w) {
  switch (code_of(w.format.layout)) {
    case WeightCode::none: return cuda::WeightCode::none;
    case WeightCode::mxfp4: return cuda::WeightCode::mxfp4;
    case WeightCode::e4m3: return cuda::WeightCode::e4m3;
  }
  FOVEA_CHECK(false);
}

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

/// The matrices of all experts, which WeightPlacement puts at a constant distance.
cuda::ExpertMatrices matrices_of(std::span<const GatedMlpWeights> experts,
                                 LinearWeight GatedMlpWeights::* which) {
  cuda::ExpertMatrices out;
  const LinearWeight& first = experts.front().*which;
  out.data = first.data.data;
  out.bias = first.bias.as<const float>();
  out.code = code_of(first);
  out.scales = first.scales.as<const float>();
  out.block_scales = first.format.scaled && first.format.block_k != 0;
  if (experts.size() == 1) {
    out.stride = round_up(first.data.elements() * static_cast<int64_t>(size_of(first.data.dtype)), 16);
    return out;
  }
  const auto address = [&](const LinearWeight& w) { return static_cast<const std::byte*>(w.data.data); };
  out.stride = address(experts[1].*which) - address(first);
  const LinearWeight& last = experts.back().*which;
  const auto distance = static_cast<int64_t>(experts.size()) - 1;
  FOVEA_CHECK(out.stride > 0 && address(last) == address(first) + distance * out.stride);
  FOVEA_CHECK(!out.bias || last.bias.as<float>() == out.bias + distance * first.n);
  FOVEA_CHECK(!out.scales || last.scales.as<float>() == out.scales + distance * first.scales.elements());
  return out;
}

cuda::ExpertShape shape_of(const ExpertWeights& weights, int experts_per_token, DType dtype) {
  const GatedMlpWeights& first = weights.experts.front();
  return {dtype, static_cast<int>(weights.experts.size()), experts_per_token, first.down.n, first.down.k};
}

/// The places of a layer's experts that adapters can change; empty: none.
std::span<const std::array<LoraPlace, 2>> expert_places(const ExpertLora* lora) {
  if (lora == nullptr || lora->layout == nullptr || !lora->layout->has_experts(lora->layer)) return {};
  return lora->layout->experts[static_cast<size_t>(lora->layer)];
}

/// Offsets in the scratch of experts(): the kernel's part, then the activation and the output of the shared
/// MLP; for adapters each row's slot, x A^T and shares of the experts' pairs, x A^T and sums of the shared
/// MLP.
struct ExpertScratch {
  int64_t kernel = 0, act = 0, shared = 0, slots = 0, low = 0, shares = 0, shared_low = 0, sums = 0, end = 0;

  ExpertScratch(const Ops& ops, const ExpertWeights& weights, const cuda::ExpertShape& shape, int64_t rows) {
    kernel = end = cuda::experts_scratch(shape, rows);
    end = round_up(end, kPart);
    const auto take = [&](int64_t& part, int64_t elements, int64_t bytes) {
      part = end;
      end += round_up(elements * bytes, kPart);
    };
    constexpr int64_t kFloat = sizeof(float);
    const bool has_shared = !weights.shared.empty();
    if (has_shared) {
      take(act, rows * act_stride(weights), static_cast<int64_t>(size_of(shape.dtype)));
      take(shared, rows * shape.hidden, kFloat);
    }
    const auto places = expert_places(weights.lora);
    if (places.empty()) return;
    const int64_t rank = weights.lora->layout->max_rank;
    const int64_t pairs = std::min(rows, cuda::kAdapterPassRows) * shape.experts_per_token;
    take(slots, rows, sizeof(int32_t));
    take(low, pairs * 2 * rank, kFloat);
    take(shares, pairs * std::max(2 * shape.intermediate, shape.hidden), kFloat);
    if (!has_shared) return;
    take(shared_low, rows * ops.lora_parts(shape.hidden) * 2 * rank, kFloat);
    take(sums, std::min(rows, weights.lora->block_rows) * ops.lora_columns(weights.shared.gate_up), kFloat);
  }
  static int64_t act_stride(const ExpertWeights& weights) { return round_up(weights.shared.down.k, 8); }
};

/// The adapters' product of the experts at `places`, of which the first is expert 0; `site` 0 is gate_up, 1
/// is down.
cuda::ExpertLoraParams expert_lora_params(const LoraStep& step,
                                          std::span<const std::array<LoraPlace, 2>> places, size_t site) {
  const LoraLayout& layout = *step.layout;
  const LoraPlace& place = places.front()[site];
  cuda::ExpertLoraParams p;
  p.dtype = layout.dtype;
  p.slots = step.slots.data;
  p.slot_bytes = layout.slot_bytes();
  p.matrices = layout.table_bytes();
  p.a = place.a;
  p.b = place.b;
  p.line = place.line;
  if (places.size() > 1) {
    p.stride = places[1][site].a - place.a;
    p.line_stride = places[1][site].line - place.line;
  }
  p.k = place.k;
  p.a_stride = place.a_stride();
  p.n = place.n;
  p.modules = place.modules;
  p.second_output = place.first_output[1];
  p.max_rank = layout.max_rank;
  return p;
}

/// Offsets in the scratch of choose_keys(): the codes of queries, their weights, the scores of a pass.
struct IndexScratch {
  int64_t stride, weights, scores, end;

  IndexScratch(int64_t heads, int64_t dim, int64_t rows, int64_t max_keys)
      : stride(round_up(std::max<int64_t>(max_keys, 1), 4)) {
    weights = round_up(rows * heads * dim, kPart);
    scores = weights + round_up(rows * heads * static_cast<int64_t>(sizeof(float)), kPart);
    end = scores + cuda::index_pass_rows(rows, stride) * stride * static_cast<int64_t>(sizeof(float));
  }
};

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
    const auto data_bytes =
        static_cast<size_t>(round_up(elements * static_cast<int64_t>(size_of(w.format.stored)), kPart));
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
    return IndexScratch(heads, dim, max_rows, max_keys).end + kPart;  // as expert_scratch()
  }

  Status choose_keys(const IndexInput& in, const Tensor& chosen, Stream& stream) override {
    const int64_t rows = in.q.size(0), heads = in.q.size(1), dim = in.q.size(2);
    if (rows == 0) return {};
    static_assert(cuda::kIndexDim == kGpuIndexDim && cuda::kMostIndexHeads == kGpuIndexHeads);
    if (dim != cuda::kIndexDim || heads > cuda::kMostIndexHeads)
      return unsupported("an indexer of " + std::to_string(heads) + " heads of " + std::to_string(dim) +
                         " elements; on a GPU up to " + std::to_string(cuda::kMostIndexHeads) + " of " +
                         std::to_string(cuda::kIndexDim) + " are supported");
    FOVEA_CHECK(in.q.stride(1) == dim && chosen.contiguous());
    FOVEA_RETURN_IF_ERROR(norm(in.norm, in.key, in.key, stream));
    const bool codes = in.keys.dtype == KvCacheDType::fp8_e4m3;
    const IndexScratch parts(heads, dim, rows, in.max_keys);
    const auto begin = reinterpret_cast<uintptr_t>(in.scratch.data);
    auto* const memory =
        static_cast<std::byte*>(in.scratch.data) + (kPart - static_cast<int64_t>(begin % kPart)) % kPart;
    cuda::IndexRows p;
    p.tokens = static_cast<int>(rows);
    p.heads = static_cast<int>(heads);
    p.dtype = act_;
    p.q = in.q.data;
    p.q_row_stride = in.q.stride(0);
    p.key = in.key.data;
    p.key_row_stride = in.key.stride(0);
    p.weights = in.weights.data;
    p.weights_row_stride = in.weights.stride(0);
    p.scale = in.scale;
    p.cos = in.rope.cos.as<const float>();
    p.sin = in.rope.sin.as<const float>();
    p.pairs = static_cast<int>(in.rope.cos.size(1));
    p.interleaved = in.rope.interleaved;
    p.keys = in.keys;
    p.slots = in.slots.as<const int64_t>();
    p.num_slots = in.keys.num_pages * in.keys.page_size;
    if (codes) p.codes = reinterpret_cast<uint8_t*>(memory);
    p.weights_out = reinterpret_cast<float*>(memory + parts.weights);
    FOVEA_RETURN_IF_ERROR(cuda::launch_index_rows(p, stream.cuda()));
    cuda::IndexQueries q;
    q.heads = p.heads;
    q.topk = static_cast<int>(chosen.size(1));
    q.dtype = act_;
    q.q_row_stride = codes ? heads * dim : in.q.stride(0);
    q.keys = in.keys;
    q.batch = *in.batch;
    q.max_keys = in.max_keys;
    const int64_t pass = cuda::index_pass_rows(rows, parts.stride);
    auto* const scores = reinterpret_cast<float*>(memory + parts.scores);
    for (int64_t first = 0; first < rows; first += pass) {
      q.first = static_cast<int>(first);
      q.rows = static_cast<int>(std::min(pass, rows - first));
      q.q = codes ? static_cast<const void*>(p.codes + first * heads * dim)
                  : column_of(in.q, first * in.q.stride(0));
      q.weights = p.weights_out + first * heads;
      FOVEA_RETURN_IF_ERROR(cuda::launch_index_scores(q, scores, parts.stride, stream.cuda()));
      FOVEA_RETURN_IF_ERROR(cuda::launch_choose_largest(
          q, scores, parts.stride, chosen.as<int32_t>() + first * chosen.size(1), stream.cuda()));
    }
    return {};
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
    const int64_t rows = x.size(0);
    if (rows == 0) return {};
    cuda::ExpertsParams p;
    p.shape = shape_of(weights, static_cast<int>(routing.experts.size(1)), act_);
    const ExpertScratch parts(*this, weights, p.shape, rows);
    const auto begin = reinterpret_cast<uintptr_t>(scratch.data);
    auto* memory =
        static_cast<std::byte*>(scratch.data) + (kPart - static_cast<int64_t>(begin % kPart)) % kPart;
    p.rows = rows;
    p.x = x.data;
    p.x_stride = x.stride(0);
    p.experts = routing.experts.as<const int32_t>();
    p.weights = routing.weights.as<const float>();
    p.gate_up = matrices_of(weights.experts, &GatedMlpWeights::gate_up);
    p.down = matrices_of(weights.experts, &GatedMlpWeights::down);
    p.f = weights.activation.f;
    p.limit = weights.activation.limit;
    p.scales_input = weights.scales_input;
    cuda::ExpertAdapters adapters;
    const auto places = expert_places(weights.lora);
    const LoraStep* const step = places.empty() ? nullptr : weights.lora->step;
    if (step != nullptr) {
      const LoraTiles& tiles = weights.lora->logit_rows ? step->logit_rows : step->rows;
      auto* const slots = reinterpret_cast<int32_t*>(memory + parts.slots);
      FOVEA_RETURN_IF_ERROR(cuda::launch_row_slots(tiles.order.as<const int32_t>(),
                                                   tiles.tiles.as<const int32_t>(), tiles.tiles.size(0),
                                                   slots, stream.cuda()));
      const auto routed = places.first(weights.experts.size());
      adapters = {expert_lora_params(*step, routed, 0), expert_lora_params(*step, routed, 1)};
      for (cuda::ExpertLoraParams* product : {&adapters.gate_up, &adapters.down}) {
        product->slot = slots;
        product->low = reinterpret_cast<float*>(memory + parts.low);
        product->shares = reinterpret_cast<float*>(memory + parts.shares);
      }
      p.adapters = &adapters;
    }
    if (!weights.shared.empty()) {
      FOVEA_RETURN_IF_ERROR(step != nullptr
                                ? adapted_shared_mlp(weights, x, parts, memory, stream)
                                : shared_mlp(weights, x, memory + parts.act, memory + parts.shared, stream));
      p.shared = memory + parts.shared;
      p.shared_stride = p.shape.hidden;
    }
    p.out = out.data;
    p.out_dtype = dtype_of(out);
    p.out_stride = out.stride(0);
    p.scratch = memory;
    p.scratch_bytes = parts.kernel;
    return cuda::launch_experts(p, stream.cuda());
  }

  int64_t expert_scratch(const ExpertWeights& weights, int experts_per_token,
                         int64_t max_rows) const override {
    const ExpertScratch parts(*this, weights, shape_of(weights, experts_per_token, act_), max_rows);
    return parts.end + kPart;  // its memory is aligned to Device::kAlignment only
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

  Status shared_mlp(const ExpertWeights& weights, const Tensor& x, std::byte* act, std::byte* out,
                    Stream& stream) {
    const GatedMlpWeights& mlp = weights.shared;
    const Tensor between =
        Tensor::dense(act, device_, element_of(act_), {x.size(0), ExpertScratch::act_stride(weights)})
            .slice(1, 0, mlp.down.k);
    FOVEA_RETURN_IF_ERROR(gated_linear(mlp.gate_up, weights.activation, x, {}, between, stream));
    return linear(mlp.down, between, Tensor::dense(out, device_, ElementType::f32, {x.size(0), mlp.down.n}),
                  stream);
  }

  /// The shared MLP in a step with adapters, whose slots are known.
  Status adapted_shared_mlp(const ExpertWeights& weights, const Tensor& x, const ExpertScratch& parts,
                            std::byte* memory, Stream& stream) {
    const GatedMlpWeights& mlp = weights.shared;
    const ExpertLora& lora = *weights.lora;
    const LoraTiles& tiles = lora.logit_rows ? lora.step->logit_rows : lora.step->rows;
    const auto places = expert_places(&lora).last(1);
    const int64_t rows = x.size(0);
    const Tensor between = Tensor::dense(memory + parts.act, device_, element_of(act_),
                                         {rows, ExpertScratch::act_stride(weights)})
                               .slice(1, 0, mlp.down.k);
    const auto floats = [&](int64_t at, int64_t n, int64_t columns) {
      return Tensor::dense(memory + at, device_, ElementType::f32, {n, columns});
    };
    const Tensor sums = floats(parts.sums, std::min(rows, lora.block_rows), lora_columns(mlp.gate_up));
    const Tensor low = floats(parts.shared_low, rows, lora_parts(mlp.gate_up.k) * 2 * lora.layout->max_rank);
    FOVEA_RETURN_IF_ERROR(gated_linear_lora(mlp.gate_up, weights.activation,
                                            {*lora.step, places.front()[0], tiles, x, low}, sums, between,
                                            stream));
    const Tensor out = floats(parts.shared, rows, mlp.down.n);
    FOVEA_RETURN_IF_ERROR(linear(mlp.down, between, out, stream));
    cuda::ExpertLoraParams p = expert_lora_params(*lora.step, places, 1);
    p.slot = reinterpret_cast<const int32_t*>(memory + parts.slots);
    p.rows = rows;
    p.x = between.data;
    p.x_stride = between.stride(0);
    p.low = low.as<float>();
    p.shares = out.as<float>();
    p.adds = true;
    return cuda::launch_expert_lora(p, stream.cuda());
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
