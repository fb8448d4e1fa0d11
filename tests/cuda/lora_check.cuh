#pragma once
// LoRA adapters on the device against their definition in fp64; a row's bits alone and in any company; times.
#include <algorithm>
#include <numeric>
#include <string_view>

#include "base/float8.h"
#include "kernels/cuda/codes/pack_codes.h"
#include "kernels/cuda/linear/linear.h"
#include "kernels/cuda/lora/lora.h"
#include "ops_case.cuh"

namespace fovea::cuda {

/// Adapters of one layer in slots, and rows that use them.
struct LoraCase {
  DType dtype = DType::bf16;
  int64_t k = 0;
  std::vector<int64_t> outputs;  ///< of each module
  std::vector<int> ranks;        ///< of each slot, multiples of 8
  int64_t rows = 0;
  bool lacks = false;  ///< odd slots lack the last module

  int modules() const { return static_cast<int>(outputs.size()); }
  int64_t n() const { return std::accumulate(outputs.begin(), outputs.end(), int64_t{0}); }
  int most() const { return *std::max_element(ranks.begin(), ranks.end()) + 8; }
  std::string name() const {
    return "lora of " + std::to_string(rows) + " x " + std::to_string(k) + " to " + std::to_string(n()) +
           ", " + std::to_string(modules()) + " modules, " + std::to_string(ranks.size()) + " slots, " +
           name_of(dtype);
  }
};

/// Slots in memory, with their values.
class LoraMemory {
 public:
  static constexpr int64_t kTable = 256, kBefore = 5;  // elements of another layer, for each rank
  static constexpr int kLine = 3;

  explicit LoraMemory(const LoraCase& c) : c_(c) {
    a_stride_ = (c.k + 7) / 8 * 8;
    const auto word = static_cast<int64_t>(size_of(c.dtype));
    slot_bytes_ = kTable + (kBefore + c.modules() * a_stride_ + c.n()) * c.most() * word;
    std::vector<std::byte> bytes(static_cast<size_t>(slot_bytes_) * c.ranks.size(), std::byte{0xff});
    for (size_t s = 0; s < c.ranks.size(); ++s)
      fill(s, bytes.data() + static_cast<size_t>(slot_bytes_) * s);
    memory_ = Device<std::byte>(bytes);
  }

  LoraParams params() const {
    LoraParams p;
    p.dtype = c_.dtype;
    p.slots = memory_.data;
    p.slot_bytes = slot_bytes_;
    p.matrices = kTable;
    p.a = kBefore;
    p.b = kBefore + c_.modules() * a_stride_;
    p.line = kLine;
    p.k = c_.k;
    p.a_stride = a_stride_;
    p.n = c_.n();
    p.modules = c_.modules();
    for (int m = 0; m < p.modules; ++m)
      p.first_output[m + 1] = p.first_output[m] + c_.outputs[static_cast<size_t>(m)];
    p.max_rank = c_.most();
    return p;
  }

  /// x A^T of all modules' ranks.
  std::vector<double> low(int slot, const float* x) const {
    if (slot < 0) return {};
    const std::vector<float>& a = a_[static_cast<size_t>(slot)];
    std::vector<double> out(a.size() / static_cast<size_t>(c_.k));
    for (size_t r = 0; r < out.size(); ++r)
      for (int64_t i = 0; i < c_.k; ++i)
        out[r] += double{x[i]} * double{a[r * static_cast<size_t>(c_.k) + static_cast<size_t>(i)]};
    return out;
  }
  /// What the adapter of a slot adds to an output. `skip`: a defect, ranks left out.
  double share(int slot, const std::vector<double>& low, int64_t output, int skip = 0) const {
    if (slot < 0) return 0;
    const auto s = static_cast<size_t>(slot);
    size_t m = 0;
    int64_t first = 0;
    while (output >= first + c_.outputs[m])
      first += c_.outputs[m++];
    const double scale = scale_of(slot, static_cast<int>(m));
    if (scale == 0) return 0;
    const auto rank = static_cast<size_t>(c_.ranks[s]);
    double sum = 0;
    for (size_t r = 0; r < rank - static_cast<size_t>(skip); ++r)
      sum += scale * low[m * rank + r] * double{b_[s][static_cast<size_t>(output) * rank + r]};
    return sum;
  }

 private:
  float scale_of(int slot, int module) const {
    return c_.lacks && slot % 2 == 1 && module + 1 == c_.modules() ? 0.0f
                                                                   : 0.75f + static_cast<float>(module);
  }
  void fill(size_t slot, std::byte* at) {
    const int rank = c_.ranks[slot];
    const auto word = static_cast<int64_t>(size_of(c_.dtype));
    std::vector<float>&a = a_.emplace_back(), &b = b_.emplace_back();
    float scale[3] = {};
    for (int m = 0; m < c_.modules(); ++m)
      scale[m] = scale_of(static_cast<int>(slot), m);
    std::memcpy(at + 16 * kLine, scale, sizeof scale);
    std::memcpy(at + 16 * kLine + 12, &rank, sizeof rank);
    std::byte* to = at + kTable + kBefore * rank * word;
    for (int64_t row = 0; row < c_.modules() * rank; ++row)
      for (int64_t i = 0; i < a_stride_; ++i, to += word) {
        const float value = rounded_to(c_.dtype, gaussian(10 + slot, static_cast<uint64_t>(row * c_.k + i)) /
                                                     std::sqrt(static_cast<float>(c_.k)));
        to_bits(c_.dtype, i < c_.k ? value : 0.0f, to);
        if (i < c_.k) a.push_back(value);
      }
    for (int64_t i = 0; i < c_.n() * rank; ++i, to += word) {
      b.push_back(rounded_to(
          c_.dtype, gaussian(90 + slot, static_cast<uint64_t>(i)) / std::sqrt(static_cast<float>(rank))));
      to_bits(c_.dtype, b.back(), to);
    }
  }

  LoraCase c_;
  int64_t a_stride_ = 0, slot_bytes_ = 0;
  Device<std::byte> memory_{0};
  std::vector<std::vector<float>> a_, b_;  // of each slot
};

/// Rows by slot, in tiles of at most `height`.
struct LoraRows {
  std::vector<int> slots;
  Device<int32_t> order, tiles;
  int64_t count = 0;

  explicit LoraRows(std::vector<int> of_rows, int height = kLoraRows)
      : slots(std::move(of_rows)), order(0), tiles(0) {
    std::vector<int32_t> rows(slots.size()), list;
    std::iota(rows.begin(), rows.end(), 0);
    const auto slot = [&](size_t at) { return slots[static_cast<size_t>(rows[at])]; };
    std::stable_sort(rows.begin(), rows.end(), [&](int a, int b) {
      return slots[static_cast<size_t>(a)] < slots[static_cast<size_t>(b)];
    });
    for (size_t at = 0, end = 0; at < rows.size(); at = end) {
      while (end < rows.size() && end < at + static_cast<size_t>(height) && slot(end) == slot(at))
        ++end;
      for (const int32_t v : {slot(at), static_cast<int32_t>(at), static_cast<int32_t>(end - at), 0})
        list.push_back(v);
    }
    list.insert(list.end(), {2, 0, 0, 0, -1, 0, 0, 0});  // without rows
    count = static_cast<int64_t>(list.size()) / 4;
    order = Device<int32_t>(rows), tiles = Device<int32_t>(list);
  }
};

inline std::vector<int> slots_of_rows(const LoraCase& c) {
  std::vector<int> slots;
  for (int64_t r = 0; r < c.rows; ++r)
    slots.push_back(static_cast<int>((r * 7 + r / 5) % (static_cast<int64_t>(c.ranks.size()) + 1)) - 1);
  return slots;
}

inline constexpr int64_t kNanRow = 3;

inline Matrix lora_input(const LoraCase& c) {
  // Rows begin at multiples of 16 bytes, and what lies between them is poisoned.
  return Matrix::make(c.dtype, c.rows, c.k, (c.k + 7) / 8 * 8 - c.k + 8, [&](int64_t i, int64_t j) {
    return i == kNanRow ? kNan : gaussian(5, static_cast<uint64_t>(i * c.k + j));
  });
}

inline LoraParams with_rows(LoraParams p, const LoraRows& rows, const void* x, int64_t x_stride,
                            const Device<float>& low, bool early_input = false) {
  static const Device<int32_t> counters{std::vector<int32_t>(1 << 14)};
  expect(rows.count * 2 <= 1 << 14, "counters of tiles");
  p.counters = counters.data;
  p.early_input = early_input;
  p.order = rows.order.data;
  p.tiles = rows.tiles.data;
  p.num_tiles = rows.count;
  p.x = x;
  p.x_stride = x_stride;
  p.low = low.data;
  return p;
}

inline size_t low_size(const LoraCase& c) {
  return static_cast<size_t>(c.rows * lora_parts(c.dtype, c.k) * c.modules() * c.most());
}

inline void check_lora(const LoraCase& c) {
  const LoraMemory memory(c);
  const std::vector<int> slots = slots_of_rows(c);
  const LoraRows rows(slots);
  const Matrix x = lora_input(c);
  const auto make_y = [&] { return Matrix::random(c.dtype, c.rows, c.n(), c.n() % 2 == 0 ? 6 : 3, 8); };
  const Matrix y = make_y(), before = make_y();
  const Device<float> low(low_size(c));
  const auto run = [&](const LoraRows& of, const Matrix& to) {
    const LoraParams p = with_rows(memory.params(), of, x.data(), x.stride, low);
    LAUNCH(launch_lora(p, to.data(), to.stride, stream()));
  };
  run(rows, y);
  const auto in = x.values(""), old = before.values(""), got = y.values(c.name());
  const auto want = [&](int skip) {
    std::vector<double> out(old.begin(), old.end());
    for (int64_t r = 0; r < c.rows; ++r) {
      const int slot = slots[static_cast<size_t>(r)];
      const auto sums = memory.low(slot, in.data() + r * c.k);
      for (int64_t o = 0; o < c.n(); ++o)
        out[static_cast<size_t>(r * c.n() + o)] += memory.share(slot, sums, o, skip);
    }
    return out;
  };
  expect(close(got, want(0), c.dtype, c.n(), 2e-6), c.name());
  expect(!close(got, want(1), c.dtype, c.n(), 2e-6), c.name() + ": a lost rank passed");
  for (int64_t r = 0; r < c.rows; ++r)
    if (slots[static_cast<size_t>(r)] < 0)
      expect(y.row_bytes(r) == before.row_bytes(r), c.name() + ": a row without adapter has changed");
  // In tiles of one row, and with few rows at a time.
  const Matrix single = make_y();
  run(LoraRows(slots, 1), single);
  expect(single.memory.host() == y.memory.host(), c.name() + ": bits depend on tiles");
  for (const int64_t r : {int64_t{0}, c.rows / 2, c.rows - 1}) {
    const LoraRows alone({slots[static_cast<size_t>(r)]});
    const Matrix one = make_y();
    const LoraParams p = with_rows(memory.params(), alone, x.row(r), x.stride, low);
    LAUNCH(launch_lora(p, one.row(r), one.stride, stream()));
    expect(one.row_bytes(r) == y.row_bytes(r), c.name() + ": a row's bits differ alone");
  }
}

/// Weights of a gated layer, packed where the type is not fp32.
struct GatedWeights {
  enum class Form { stored, e4m3, e4m3_blocks };  ///< e4m3: with scales of outputs, or of 1 x 128 weights

  std::vector<double> values;  ///< [n, k]
  Device<std::byte> memory{0};
  Device<float> scales{0};

  GatedWeights(const LoraCase& c, Form form) {
    const int64_t n = c.n(), half = n / 2;
    if (form == Form::stored) {
      const Matrix w = Matrix::random(c.dtype, n, c.k, 0, 21, 1 / std::sqrt(static_cast<float>(c.k)));
      const auto floats = w.values("");
      values.assign(floats.begin(), floats.end());
      memory = Device<std::byte>(
          static_cast<size_t>(c.dtype == DType::f32 ? n * c.k * 4 : packed_bytes(n, c.k, true)));
      if (c.dtype == DType::f32)
        CUDA_CHECK(cudaMemcpy(memory.data, w.data(), memory.bytes(), cudaMemcpyDeviceToDevice));
      else
        for (const PackedPart part : {PackedPart::gate, PackedPart::up}) {
          PackParams p;
          p.n = n, p.k = c.k, p.src = part == PackedPart::gate ? w.data() : w.row(half),
          p.src_stride = w.stride;
          p.part = part, p.rows = half, p.dst = memory.data;
          LAUNCH(launch_pack(p, stream()));
        }
      return;
    }
    std::vector<uint8_t> codes(static_cast<size_t>(n * c.k));
    for (size_t i = 0; i < codes.size(); ++i) {
      const auto bits = static_cast<uint32_t>(i * 2654435761u) >> 8;
      codes[i] = static_cast<uint8_t>((bits & 0x80) | (bits >> 9) % 0x48);
      values.push_back(e4m3_to_float(codes[i]));
    }
    const bool blocks = form == Form::e4m3_blocks;
    const int64_t of_row = blocks ? (c.k + 127) / 128 : 1;
    std::vector<float> factors(static_cast<size_t>(blocks ? packed_panels(n, true) * of_row * 2 : n), 1.0f);
    for (int64_t o = 0; o < n; ++o)
      for (int64_t i = 0; i < of_row; ++i) {
        const int64_t row = o % half;  // of a panel's outputs 0 to 7, gates, and 8 to 15, ups
        const int64_t at = blocks ? (row / 8 * of_row + i) * 2 + o / half : o;
        const float factor = (1 + 0.1f * static_cast<float>(at % 7)) / std::sqrt(static_cast<float>(c.k));
        factors[static_cast<size_t>(at)] = factor;
        for (int64_t k = i * 128; k < (blocks ? std::min(c.k, i * 128 + 128) : c.k); ++k)
          values[static_cast<size_t>(o * c.k + k)] *= factor;
      }
    scales = Device<float>(factors);
    const Device<uint8_t> there(codes);
    memory = Device<std::byte>(static_cast<size_t>(code_bytes(WeightCode::e4m3, n, c.k, true)));
    for (const PackedPart part : {PackedPart::gate, PackedPart::up}) {
      PackCodesParams p;
      p.n = n, p.k = c.k, p.src = there.data + (part == PackedPart::gate ? 0 : half * c.k);
      p.part = part, p.rows = half, p.dst = memory.data;
      LAUNCH(launch_pack_codes(p, stream()));
    }
    CUDA_CHECK(cudaDeviceSynchronize());
  }
};

/// A gated layer with adapters: `c` has the outputs of gates and ups, in one module or two.
inline void check_lora_gated(const LoraCase& c, bool bias,
                             GatedWeights::Form form = GatedWeights::Form::stored) {
  const bool coded = form != GatedWeights::Form::stored, blocks = form == GatedWeights::Form::e4m3_blocks;
  const std::string name = "gated " + c.name() + (blocks ? ", e4m3 in blocks" : coded ? ", e4m3" : "");
  const bool packs = c.dtype != DType::f32;
  const int64_t n = c.n(), columns = n / 2;
  const LoraMemory memory(c);
  const std::vector<int> slots = slots_of_rows(c);
  const LoraRows rows(slots);
  const Matrix x = lora_input(c);
  const GatedWeights weights(c, form);
  const Matrix b = Matrix::random(DType::f32, 1, n, 0, 22);
  const Matrix fused(c.dtype, c.rows, columns, 6), y(c.dtype, c.rows, columns, 6);
  LinearParams layer;
  layer.dtype = layer.y_dtype = c.dtype;
  layer.n = n, layer.k = c.k;
  layer.weight = weights.memory.data;
  if (coded) layer.code = WeightCode::e4m3, layer.scales = weights.scales.data, layer.block_scales = blocks;
  layer.bias = bias ? static_cast<const float*>(b.data()) : nullptr;
  layer.x = x.data(), layer.x_stride = x.stride, layer.rows = c.rows;
  layer.y = fused.data(), layer.y_stride = fused.stride;
  layer.epilogue = LinearEpilogue::gated;
  LAUNCH(launch_linear(layer, stream()));

  const int64_t wide_columns = packs ? packed_panels(n, true) * kPanelRows : n;
  const Matrix wide(DType::f32, c.rows, wide_columns, 0);
  LinearParams sums = layer;
  sums.n = wide_columns, sums.bias = nullptr, sums.epilogue = LinearEpilogue::store;
  if (!blocks) sums.scales = nullptr;
  sums.y = wide.data(), sums.y_stride = wide.stride, sums.y_dtype = DType::f32;
  LAUNCH(launch_linear(sums, stream()));
  const Device<float> low(low_size(c));
  const LoraParams p = with_rows(memory.params(), rows, x.data(), x.stride, low);
  LoraGatedParams gated;
  gated.wide = static_cast<const float*>(wide.data()), gated.wide_stride = wide.stride;
  gated.interleaved = packs;
  gated.layer = layer;
  gated.layer.y = y.data();
  if (blocks) gated.layer.scales = nullptr;
  for (int64_t first = 0; first < rows.count; first += 3) {  // in several launches
    gated.first_tile = first, gated.num_tiles = std::min<int64_t>(3, rows.count - first);
    LAUNCH(launch_lora_gated(p, gated, stream()));
  }
  const auto in = x.values(""), more = b.values(""), got = y.values(name);
  const auto want = [&](int skip) {
    std::vector<double> out(static_cast<size_t>(c.rows * columns));
    for (int64_t r = 0; r < c.rows; ++r) {
      const float* row = in.data() + r * c.k;
      const int slot = slots[static_cast<size_t>(r)];
      const auto shares = memory.low(slot, row);
      const auto value = [&](int64_t o) {
        double sum = bias ? double{more[static_cast<size_t>(o)]} : 0.0;
        for (int64_t i = 0; i < c.k; ++i)
          sum += double{row[i]} * weights.values[static_cast<size_t>(o * c.k + i)];
        return sum + memory.share(slot, shares, o, skip);
      };
      for (int64_t o = 0; o < columns; ++o) {
        const double gate = value(o), up = value(columns + o);
        out[static_cast<size_t>(r * columns + o)] = gate / (1 + std::exp(-gate)) * up;
      }
    }
    return out;
  };
  expect(close(got, want(0), c.dtype, columns, 4e-6), name);
  expect(!close(got, want(1), c.dtype, columns, 4e-6), name + ": a lost rank passed");
  for (int64_t r = 0; r < c.rows; ++r)
    if (r != kNanRow)
      expect((y.row_bytes(r) == fused.row_bytes(r)) == (slots[static_cast<size_t>(r)] < 0),
             name + ": row " + std::to_string(r) + " against the fused layer");
}

inline void check_loras() {
  for (const DType dtype : kTypes) {
    check_lora({dtype, 64, {40, 24, 24}, {16, 8, 24}, 50, true});
    check_lora({dtype, 1000, {300}, {8}, 5, false});
    check_lora({dtype, 2055, {33, 7}, {64, 8}, 17, true});
    check_lora({dtype, 3072, {512, 128, 128}, {16, 32, 8, 16}, 40, true});
    check_lora({dtype, 130, {520}, {512, 256}, 9, false});
    check_lora_gated({dtype, 96, {44, 44}, {16, 8, 24}, 50, true}, true);
    check_lora_gated({dtype, 1100, {400, 400}, {8, 64}, 20, false}, false);
    check_lora_gated({dtype, 200, {1024}, {24, 16}, 33, false}, false);
  }
  for (const auto form : {GatedWeights::Form::e4m3, GatedWeights::Form::e4m3_blocks}) {
    check_lora_gated({DType::bf16, 320, {136, 136}, {16, 8}, 20, true}, true, form);
    check_lora_gated({DType::bf16, 512, {640, 640}, {8, 24}, 70, false}, false, form);
  }
}

/// A packed weight of 16-bit zeros or ones: only for times.
inline Device<std::byte> weight_bytes(int64_t n, int64_t k, bool gated) {
  Device<std::byte> memory(static_cast<size_t>(packed_bytes(n, k, gated)));
  CUDA_CHECK(cudaMemset(memory.data, 0, memory.bytes()));
  return memory;
}

/// Microseconds of the layers of Llama-3.1-8B, and what adapters add to them. A row's turn has 5 layers, so
/// that weights come from memory.
inline void bench_loras() {
  struct Site {
    const char* name;
    int64_t k;
    std::vector<int64_t> outputs;
  };
  constexpr int kLayers = 5;
  const Site sites[] = {{"qkv", 4096, {4096, 1024, 1024}},
                        {"o", 4096, {4096}},
                        {"gated", 4096, {14336, 14336}},
                        {"down", 14336, {4096}}};
  for (const int rank : {16, 64})
    for (const auto& [rows, adapters] :
         {std::pair<int64_t, int>{1, 1}, {32, 1}, {32, 8}, {256, 8}, {2048, 1}, {2048, 8}})
      for (const Site& site : sites) {
        const bool gated = std::string_view(site.name) == "gated";
        LoraCase c{DType::bf16, site.k, site.outputs, std::vector<int>(8, rank), rows, false};
        const LoraMemory memory(c);
        std::vector<int> slots;
        for (int64_t r = 0; r < rows; ++r)
          slots.push_back(static_cast<int>(r % adapters));
        const LoraRows of(slots), none(std::vector<int>(static_cast<size_t>(rows), -1));
        const Matrix x = Matrix::random(c.dtype, rows, c.k, 0, 1), y(c.dtype, rows, c.n(), 0),
                     wide(DType::f32, gated ? rows : 1, c.n(), 0);
        const Device<float> low(low_size(c));
        std::vector<Device<std::byte>> weights;
        for (int i = 0; i < kLayers; ++i)
          weights.push_back(weight_bytes(c.n(), c.k, gated));
        const auto layer_of = [&](int i, bool late) {
          LinearParams layer;
          layer.dtype = layer.y_dtype = c.dtype;
          layer.n = c.n(), layer.k = c.k;
          layer.weight = weights[static_cast<size_t>(i)].data;
          layer.constant_weight = true, layer.late_dependents = late;
          layer.x = x.data(), layer.x_stride = x.stride, layer.rows = rows;
          layer.y = y.data(), layer.y_stride = y.stride;
          layer.epilogue = gated ? LinearEpilogue::gated : LinearEpilogue::store;
          return layer;
        };
        const auto time = [&](const LoraRows* list) {
          return microseconds([&](CudaStream& s) {
                   for (int i = 0; i < kLayers; ++i) {
                     LinearParams layer = layer_of(i, list != nullptr);
                     if (list == nullptr) {
                       LAUNCH(launch_linear(layer, s));
                       continue;
                     }
                     const LoraParams p = with_rows(memory.params(), *list, x.data(), x.stride, low, true);
                     if (!gated) {
                       LAUNCH(launch_linear(layer, s));
                       LAUNCH(launch_lora(p, y.data(), y.stride, s));
                       continue;
                     }
                     LoraGatedParams g;
                     g.wide = static_cast<const float*>(wide.data()), g.wide_stride = wide.stride;
                     g.num_tiles = list->count;
                     g.layer = layer;
                     layer.epilogue = LinearEpilogue::store;
                     layer.y = wide.data(), layer.y_stride = wide.stride, layer.y_dtype = DType::f32;
                     LAUNCH(launch_linear(layer, s));
                     LAUNCH(launch_lora_gated(p, g, s));
                   }
                 }) /
                 kLayers;
        };
        const double plain = time(nullptr), with = time(&of), without = time(&none);
        std::printf(
            "lora rank %2d, %4lld rows, %d adapters, %-5s: layer %6.2f us, adapters %+6.2f us, none used "
            "%+6.2f us\n",
            rank, static_cast<long long>(rows), adapters, site.name, plain, with - plain, without - plain);
      }
}

}  // namespace fovea::cuda
