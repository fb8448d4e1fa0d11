#pragma once
// Adapters of routed experts for cuda_experts: slots on host and device, and their shares in fp64.
#include "kernels/cuda/experts/experts.h"
#include "ops_case.cuh"

namespace fovea::cuda {

/// kSlots adapters of rank kRank on all experts of a layer; the last slot has none on expert 1's down
/// product. Rows have the slots in turn, and none.
struct AdapterSlots {
  static constexpr int kSlots = 2, kRank = 16;
  /// One product: gates and ups are two modules, down is one.
  struct Product {
    int modules;
    int64_t k, n, a_stride, a, b;  // a and b as in ExpertLoraParams
    int line;
  };

  ExpertShape shape;
  Product products[2];
  int64_t stride, matrices, slot_bytes;
  std::vector<float> values;  // [slot, element * rank], rounded to the dtype
  std::vector<float> scales;  // [slot, expert, product, module]
  std::vector<int32_t> slots;
  Device<std::byte> memory;
  Device<int32_t> slot_data;
  mutable Device<float> low, shares;

  /// `number(seed, index)` gives numbers in [-1, 1).
  template <class F>
  AdapterSlots(const ExpertShape& s, int64_t rows, F&& number)
      : shape(s),
        memory(0),
        slot_data(0),
        low(static_cast<size_t>(rows * s.experts_per_token * 2 * kRank)),
        shares(static_cast<size_t>(rows * s.experts_per_token * std::max(2 * s.intermediate, s.hidden))) {
    const auto wide = [](int64_t k) { return (k + 7) / 8 * 8; };
    Product &up = products[0], &down = products[1];
    up = {2, s.hidden, 2 * s.intermediate, wide(s.hidden), 0, 2 * wide(s.hidden), 0};
    down = {1, s.intermediate, s.hidden, wide(s.intermediate), up.b + up.n, 0, 1};
    down.b = down.a + down.a_stride;
    stride = (down.b + down.n + 7) / 8 * 8;
    const int64_t elements = s.num_experts * stride * kRank, size = size_of(s.dtype);
    matrices = (s.num_experts * 2 * 16 + 255) / 256 * 256;
    slot_bytes = matrices + (elements * size + 255) / 256 * 256;
    std::vector<std::byte> bytes(static_cast<size_t>(slot_bytes * kSlots), std::byte{0xff});
    for (int slot = 0; slot < kSlots; ++slot) {
      std::byte* const at = bytes.data() + slot * slot_bytes;
      for (int e = 0; e < s.num_experts; ++e)
        for (const Product& p : products) {
          const bool none = slot == kSlots - 1 && e == 1 && p.modules == 1;
          float line[4] = {none ? 0.0f : 0.5f + 0.25f * static_cast<float>(slot), p.modules == 2 ? 0.75f : 0};
          scales.insert(scales.end(), line, line + 2);
          const int32_t rank = kRank;
          std::memcpy(&line[3], &rank, sizeof rank);
          std::memcpy(at + (e * 2 + p.line) * 16, line, sizeof line);
        }
      for (int64_t i = 0; i < elements; ++i) {
        const int64_t in_expert = i % (stride * kRank) / kRank;
        const bool is_a = in_expert < up.b || (in_expert >= down.a && in_expert < down.b);
        const float reach = is_a ? 2 / std::sqrt(static_cast<float>(s.hidden)) : 0.5f;
        values.push_back(
            rounded_to(s.dtype, reach * number(static_cast<uint64_t>(31 + slot), static_cast<uint64_t>(i))));
        to_bits(s.dtype, values.back(), at + matrices + i * size);
      }
    }
    memory = Device<std::byte>(bytes);
    for (int64_t r = 0; r < rows; ++r)
      slots.push_back(static_cast<int32_t>(r % (kSlots + 1)) - 1);
    slot_data = Device<int32_t>(slots);
  }

  /// For rows [first, ...).
  ExpertAdapters params(int64_t first) const {
    const auto of = [&](const Product& p) {
      ExpertLoraParams out;
      out.dtype = shape.dtype, out.slots = memory.data, out.slot_bytes = slot_bytes, out.matrices = matrices;
      out.a = p.a, out.b = p.b, out.stride = stride, out.line = p.line, out.line_stride = 2;
      out.k = p.k, out.a_stride = p.a_stride, out.n = p.n, out.modules = p.modules;
      out.second_output = shape.intermediate, out.max_rank = kRank, out.slot = slot_data.data + first;
      out.low = low.data, out.shares = shares.data;
      return out;
    };
    return {of(products[0]), of(products[1])};
  }

  /// What a row's adapter adds to an expert's outputs of `input`; product 0 is gates and ups.
  std::vector<double> share(int64_t row, int expert, int product, const float* input) const {
    const Product& p = products[product];
    std::vector<double> out(static_cast<size_t>(p.n), 0.0);
    const int slot = slots[static_cast<size_t>(row)];
    if (slot < 0) return out;
    const float* const base = values.data() + (slot * shape.num_experts + expert) * stride * kRank;
    const float* const scale = scales.data() + ((slot * shape.num_experts + expert) * 2 + product) * 2;
    for (int m = 0; m < p.modules; ++m)
      for (int r = 0; r < kRank && scale[m] != 0; ++r) {
        double sum = 0;
        for (int64_t i = 0; i < p.k; ++i)
          sum += static_cast<double>(input[i]) * base[p.a * kRank + (m * kRank + r) * p.a_stride + i];
        const int64_t begin = m == 0 ? 0 : shape.intermediate, count = p.n / p.modules;
        for (int64_t o = begin; o < begin + count; ++o)
          out[static_cast<size_t>(o)] += sum * scale[m] * base[(p.b + o) * kRank + r];
      }
    return out;
  }
};

}  // namespace fovea::cuda
