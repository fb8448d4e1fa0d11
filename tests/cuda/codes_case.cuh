#pragma once
// Quantised matrices for the device programs: random codes and scales, packed on the device, and their
// values.
#include <numeric>

#include "kernels/cuda/codes/pack_codes.h"
#include "kernels/cuda/experts/experts.h"
#include "ops_case.cuh"

namespace fovea::cuda {

enum class CodeScales { none, outputs, blocks };

inline float e4m3_value(uint8_t code) {
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  const float size = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                   : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  return code & 0x80 ? -size : size;
}
inline float e2m1_value(unsigned code) {
  constexpr float kValues[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  return code & 8 ? -kValues[code & 7] : kValues[code & 7];
}

/// Matrices [count, n, k] of one layer's experts, or of a layer.
struct CodedMatrices {
  WeightCode code;
  CodeScales scales;
  int64_t count, n, k, stride;
  bool gated;
  std::vector<float> values;  ///< with the scales of sums, which fp32 holds nearly
  Device<std::byte> data;
  Device<float> scale_data;

  std::string name() const {
    return std::string(code == WeightCode::mxfp4 ? "mxfp4" : "e4m3") +
           (scales == CodeScales::outputs  ? " with scales of outputs"
            : scales == CodeScales::blocks ? " with scales of blocks"
                                           : "");
  }
  ExpertMatrices matrices() const {
    ExpertMatrices m;
    m.data = data.data, m.stride = stride, m.code = code;
    if (scales != CodeScales::none) m.scales = scale_data.data;
    m.block_scales = scales == CodeScales::blocks;
    return m;
  }

  CodedMatrices(WeightCode weight_code, CodeScales by, int64_t matrices, int64_t outputs, int64_t inputs,
                bool is_gated, uint64_t seed)
      : code(weight_code),
        scales(by),
        count(matrices),
        n(outputs),
        k(inputs),
        stride(code_bytes(code, n, k, is_gated) + 48),
        gated(is_gated),
        values(static_cast<size_t>(count * n * k)),
        data(static_cast<size_t>(count * stride)),
        scale_data(size_t{0}) {
    const int64_t row_bytes = code_row_bytes(code, k), panels = packed_panels(n, gated),
                  pairs = (k + 127) / 128;
    uint64_t state = seed * 0x9e3779b97f4a7c15ull + 1;
    const auto random = [&] {
      state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
      return static_cast<uint32_t>((state * 0x2545f4914f6cdd1dull) >> 40);
    };
    // Sums of about 1, whatever k.
    const int scale_exponent = static_cast<int>(std::lround(-0.5 * std::log2(static_cast<double>(k)))) - 1;
    std::vector<float> factors(static_cast<size_t>(scales == CodeScales::outputs  ? count * n
                                                   : scales == CodeScales::blocks ? count * panels * pairs * 2
                                                                                  : 0));
    for (float& f : factors)
      f = std::ldexp(1.0f + static_cast<float>(random() % 1000) / 1000.0f, scale_exponent - 6);
    for (int64_t m = 0; m < count; ++m) {
      std::vector<uint8_t> rows(static_cast<size_t>(n * row_bytes));
      for (int64_t r = 0; r < n; ++r) {
        uint8_t* row = rows.data() + r * row_bytes;
        float* value = values.data() + (m * n + r) * k;
        if (code == WeightCode::mxfp4)
          for (int64_t b = 0; b < k / 32; ++b)  // some blocks are far below or above the others
            row[k / 2 + b] =
                static_cast<uint8_t>(random() % 50 == 0     ? random() % 30
                                     : random() % 2000 == 0 ? 128 + random() % 4
                                                            : 127 + scale_exponent - random() % 4);
        for (int64_t i = 0; i < k; ++i) {
          if (code == WeightCode::mxfp4) {
            const unsigned c = random() % 16;
            row[i / 2] = static_cast<uint8_t>(row[i / 2] | c << (i % 2 * 4));
            value[i] = std::ldexp(e2m1_value(c), row[k / 2 + i / 32] - 127);
          } else {
            uint8_t c = static_cast<uint8_t>(random());
            if ((c & 0x7f) > 0x60 && random() % 64 != 0) c &= 0xdf;  // large values are rare
            if ((c & 0x7f) == 0x7f) c &= 0xf0;                       // no NaN
            row[i] = c;
            const bool is_up = gated && r >= n / 2;
            const int64_t packed = packed_row(!gated  ? PackedPart::plain
                                              : is_up ? PackedPart::up
                                                      : PackedPart::gate,
                                              is_up ? r - n / 2 : r);
            const float f = scales == CodeScales::outputs ? factors[static_cast<size_t>(m * n + r)]
                            : scales == CodeScales::blocks
                                ? factors[static_cast<size_t>(
                                      ((m * panels + packed / 16) * pairs + i / 128) * 2 + packed % 16 / 8)]
                                : 1.0f;
            value[i] = e4m3_value(c) * f;
          }
        }
      }
      pack(rows, m);
    }
    if (!factors.empty()) scale_data = Device<float>(factors);
  }

 private:
  /// In slices, the last rows first.
  void pack(const std::vector<uint8_t>& rows, int64_t m) {
    const Device<uint8_t> there(rows);
    PackCodesParams p;
    p.code = code, p.n = n, p.k = k, p.dst = data.data + m * stride;
    const int64_t row_bytes = code_row_bytes(code, k), part_rows = gated ? n / 2 : n;
    for (int part = 0; part < (gated ? 2 : 1); ++part) {
      p.part = !gated ? PackedPart::plain : part == 0 ? PackedPart::gate : PackedPart::up;
      const int64_t cut = part_rows * 2 / 3;
      for (const bool last : {true, false}) {
        p.first_row = last ? cut : 0, p.rows = last ? part_rows - cut : cut;
        p.src = there.data + (part * part_rows + p.first_row) * row_bytes;
        LAUNCH(launch_pack_codes(p, stream()));
      }
    }
    CUDA_CHECK(cudaDeviceSynchronize());
  }
};

}  // namespace fovea::cuda
