#pragma once
// e4m3 matrices of a checkpoint with their scales.
#include <memory>
#include <vector>

#include "model/weight_source.h"

namespace fovea {

/// Rows of one tensor: e4m3 with scales, or of a supported type without.
struct Fp8Part {
  const CheckpointTensor* tensor = nullptr;
  const CheckpointTensor* scales = nullptr;  ///< null: not quantised
  int64_t rows = 0;
};

/// The tensor with the scales of e4m3 weights `name` ("... .weight"): weight_scale or weight_scale_inv beside
/// it; its shape has one number, or as many as outputs, or as blocks of 128 x 128. All are finite and not
/// negative. Errors name the tensor.
Result<const CheckpointTensor*> find_fp8_scales(const Checkpoint& checkpoint, const std::string& name,
                                                int64_t rows, int64_t columns);

/// Matrices stacked in order. It can be read as codes if `codes`, and all parts are quantised with scales by
/// blocks, or none is by blocks.
std::shared_ptr<const WeightSource> fp8_source(std::vector<Fp8Part> parts, int64_t k, DType dtype, bool codes,
                                               SourceOwner owner);

/// Random e4m3 matrices with a scale for each output, or for blocks; stacked in order.
std::shared_ptr<const WeightSource> dummy_fp8_source(std::vector<DummyRows> parts, int64_t k, bool blocks,
                                                     const std::shared_ptr<const DummyWeights>& dummy);

}  // namespace fovea
