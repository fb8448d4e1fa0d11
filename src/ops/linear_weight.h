#pragma once
// The weights of a linear layer as a device stores them. A WeightFormat describes the storage, so that a
// quantised checkpoint is the same model with other formats.
#include <compare>
#include <cstdint>
#include <string>

#include "fovea/result_fwd.h"
#include "tensor/tensor.h"

namespace fovea {

/// Order of the elements of a weight matrix [n, k]; n outputs, k inputs.
enum class WeightLayout : uint8_t {
  rows,    ///< [n, k], row-major
  panels,  ///< the CPU's: panels of 32 outputs, [ceil(n / 32), k, 32] (kernels/cpu/linear.h)
  /// CUDA's, of 16-bit types: [ceil(n / 16), ceil(k / 64)] blocks of 16 outputs x 64 inputs, 2 KiB each: a
  /// row of 128 bytes for each output, in which the 16-byte chunk c of row r lies at chunk c ^ (r % 8). Zeros
  /// pad.
  blocks16,
  /// blocks16 of a gated pair (WeightUse::gated): rows 0 to 7 of panel p are outputs 8p to 8p + 7 of gate,
  /// rows 8 to 15 those of up; ceil(n / 2 / 8) panels.
  gated_blocks16,
  /// CUDA's, of quantised weights in bytes (kernels/cuda/codes/code_layout.h): MXFP4, whose scales are among
  /// the bytes, and e4m3.
  mxfp4_16,
  gated_mxfp4_16,
  e4m3_16,
  gated_e4m3_16,
};

/// Quantised matrices [n, k] as a checkpoint has them. A row of codes is code_row_bytes() long.
enum class WeightCode : uint8_t {
  none,   ///< 16-bit or fp32 values
  mxfp4,  ///< e2m1, value 2 i in the low half of byte i, then for each 32 inputs a scale 2^(byte - 127)
  e4m3,   ///< e4m3 without NaN, with fp32 scales beside it; a row is k bytes
};

/// Bytes of a row of codes with k inputs.
constexpr int64_t code_row_bytes(WeightCode code, int64_t k) {
  return code == WeightCode::mxfp4 ? k / 2 + k / 32 : k;
}

/// A matrix's code, and how many of its weights share a scale, as in WeightFormat: e4m3 has one for each
/// output (1, 0) or for blocks of 128 x 128.
struct WeightCoding {
  WeightCode code = WeightCode::none;
  int block_n = 0, block_k = 0;

  auto operator<=>(const WeightCoding&) const = default;
};

/// A weight is (stored - zero) * scale. A scale, and with zero_points a zero point, is shared by a block of
/// block_n x block_k weights; 0 = the whole dimension. For 32 inputs of one output: block_n = 1,
/// block_k = 32; for each output: 1, 0; for the whole matrix: 0, 0.
struct WeightFormat {
  ElementType stored = ElementType::f32;
  WeightLayout layout = WeightLayout::rows;
  bool scaled = false;  ///< false: the stored values are the weights
  bool zero_points = false;
  int block_n = 0, block_k = 0;

  auto operator<=>(const WeightFormat&) const = default;
};

/// "bfloat16 in panels", "int8 in rows with a scale for 1 x 32 weights".
std::string to_string(const WeightFormat& format);

/// Elements of the data of a matrix [n, k] in this layout, padding included.
int64_t stored_elements(WeightLayout layout, int64_t n, int64_t k);

/// A view, like Tensor. y = x W^T + bias.
struct LinearWeight {
  int64_t n = 0, k = 0;
  WeightFormat format;
  Tensor data;  ///< [n, k], or [stored_elements()] of other layouts than rows; of format.stored
  /// f32 [blocks of n, blocks of k]; empty unless format.scaled. Of e4m3_16 and gated_e4m3_16: [n, 1], or
  /// with block_k = 128 [panels, blocks of k, 2], for outputs 0 to 7 and 8 to 15 of a panel (n is then not
  /// cut into blocks but into halves of panels).
  Tensor scales;
  Tensor zeros;  ///< of format.stored, as scales; empty unless format.zero_points
  Tensor bias;   ///< f32 [n]; empty = none

  bool empty() const { return data.empty(); }
  explicit operator bool() const { return !empty(); }
  /// Blocks along n and along k.
  int64_t blocks_n() const { return blocks(n, format.block_n); }
  int64_t blocks_k() const { return blocks(k, format.block_k); }
  int64_t bytes() const;

 private:
  static int64_t blocks(int64_t size, int block) { return block == 0 ? 1 : (size + block - 1) / block; }
};

/// Checks that the tensors have the types and shapes that the sizes and the format require, all on one
/// device; the error names the first that does not.
Status check(const LinearWeight& weight);

/// The code of a layout's bytes.
WeightCode code_of(WeightLayout layout);
/// Whether gates and ups are interleaved.
bool is_gated(WeightLayout layout);
/// Panels of 16 outputs of a layout for CUDA.
int64_t panels_of(WeightLayout layout, int64_t n);

}  // namespace fovea
