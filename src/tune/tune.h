#pragma once
// Measures alternatives of kernels that give the same bits, on this device, for a model's shapes.
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "model/config.h"
#include "tune/tune_file.h"

namespace fovea::tune {

/// The weights of a linear layer: `gated` as GatedMlpWeights::gate_up, n its gates and ups.
struct LinearShape {
  int64_t n = 0, k = 0;
  bool gated = false;
  bool logits = false;
  std::vector<std::string> names;  ///< of the model's layers with this shape
};

/// The distinct linear layers of a decoder, largest first; not those of experts.
std::vector<LinearShape> linear_shapes(const ModelConfig& config);

/// Rows that are measured, ascending: up to `most`. A choice serves those above the number before.
std::vector<int64_t> measured_rows(int64_t most);

/// Plans that differ from plan_wgmma()'s own and from each other, as choices for `rows` rows.
std::vector<cuda::LinearChoice> alternatives(const LinearShape& shape, int64_t rows, int multiprocessors);

struct TuneOptions {
  int device = 0;
  DType dtype = DType::bf16;
  int64_t most_rows = 8192;
  double least_gain = 0.015;  ///< a choice must be faster by this share of the usual one's time
  /// Called for each shape and number of rows that was measured; null = not.
  std::function<void(const LinearShape&, int64_t rows, int alternatives, const TunedLinear& best)> report;
};

/// This device's key. Error: no such GPU, or a build without CUDA.
Result<TuneKey> key_of_device(int device);

/// The choices that are faster than the usual ones. Every alternative's output is compared with the usual
/// one's: a byte that differs is an error, which is a defect of the program. Errors: no such GPU, one without
/// alternatives (compute capability other than 9.0), memory.
Result<std::vector<TunedLinear>> measure(std::span<const LinearShape> shapes, const TuneOptions& options);

}  // namespace fovea::tune
