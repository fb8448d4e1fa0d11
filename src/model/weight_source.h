#pragma once
// Weight matrices that are described when a model is read and read when it is placed, slice by slice, so that
// no copy of them stays in host memory.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "files/checkpoint.h"
#include "fovea/dtype.h"
#include "fovea/result.h"
#include "kernels/cpu/linear.h"
#include "model/dummy.h"
#include "ops/linear_weight.h"

namespace fovea {

/// A matrix [n, k] by rows. Immutable; any number of threads may read.
class WeightSource {
 public:
  WeightSource(int64_t n, int64_t k, DType dtype) : n_(n), k_(k), dtype_(dtype) {}
  virtual ~WeightSource() = default;
  WeightSource(const WeightSource&) = delete;
  WeightSource& operator=(const WeightSource&) = delete;

  int64_t n() const { return n_; }
  int64_t k() const { return k_; }
  /// The type that holds the matrix as the model has it.
  DType dtype() const { return dtype_; }
  int64_t bytes() const { return n_ * row_bytes(); }
  /// The same of a row: of its codes, if devices keep them.
  int64_t row_bytes() const {
    const WeightCode code = coding().code;
    return code == WeightCode::none ? k_ * static_cast<int64_t>(size_of(dtype_)) : code_row_bytes(code, k_);
  }

  /// Writes rows [first, first + count), row-major, rounded to `to`. Errors: a file that changed or cannot be
  /// read, a value that becomes infinite, a scale that is not valid.
  virtual Status read(int64_t first, int64_t count, DType to, std::byte* out) const = 0;

  /// How the matrix is quantised, if it can be read as codes.
  virtual WeightCoding coding() const { return {}; }
  /// Writes the codes of rows [first, first + count), code_row_bytes() each. Errors as read().
  virtual Status read_codes(int64_t, int64_t, std::byte*) const {
    FOVEA_CHECK(false);  // coding() has no code
  }
  /// e4m3's scales of rows [first, first + count): [count, blocks of k] of coding().
  virtual Status read_scales(int64_t, int64_t, float*) const {
    FOVEA_CHECK(false);  // coding() has no scales
  }

 private:
  int64_t n_, k_;
  DType dtype_;
};

/// What keeps the checkpoint of sources open.
using SourceOwner = std::shared_ptr<const void>;

/// Rows of a checkpoint's tensor of a supported type, as they are stored.
struct StoredRows {
  const CheckpointTensor* tensor = nullptr;
  int64_t first_element = 0, rows = 0;
};
/// Matrices stacked in order.
std::shared_ptr<const WeightSource> stacked_source(std::vector<StoredRows> parts, int64_t k, DType dtype,
                                                   SourceOwner owner);

/// A matrix whose rows are not stored one after the other.
struct StoredMatrix {
  const CheckpointTensor* tensor = nullptr;  ///< of a supported type, or MXFP4's blocks
  const CheckpointTensor* scales = nullptr;  ///< MXFP4's; null = none
  int64_t index = 0;                         ///< of the matrix in the tensor
  int64_t n = 0, k = 0;
  bool transposed = false;   ///< stored as [k, n]; not with MXFP4
  bool interleaved = false;  ///< stored rows 2i and 2i + 1 are rows i and n / 2 + i
};
std::shared_ptr<const WeightSource> reordered_source(const StoredMatrix& matrix, DType dtype,
                                                     SourceOwner owner);

/// Random tensors, stacked in order.
struct DummyRows {
  std::string name;
  int64_t rows = 0;
};
std::shared_ptr<const WeightSource> dummy_source(std::vector<DummyRows> parts, int64_t k,
                                                 std::shared_ptr<const DummyWeights> dummy);
/// The same as MXFP4, of about the same size.
std::shared_ptr<const WeightSource> dummy_mxfp4_source(DummyRows rows, int64_t k,
                                                       std::shared_ptr<const DummyWeights> dummy);

/// A matrix in the host's memory, which must outlive the source.
std::shared_ptr<const WeightSource> packed_source(const PackedView& packed);

/// Rows [first, n) of a matrix.
std::shared_ptr<const WeightSource> rows_from(std::shared_ptr<const WeightSource> source, int64_t first);
/// Rows [first, first + count) of a matrix, or if `transposed` the transpose of them: [k, count].
std::shared_ptr<const WeightSource> cut_source(std::shared_ptr<const WeightSource> source, int64_t first,
                                               int64_t count, bool transposed);
/// A matrix with columns [k / width, width], as a convolution has them, and with [width, k / width] instead.
std::shared_ptr<const WeightSource> taps_first(std::shared_ptr<const WeightSource> source, int64_t width);

/// The error of a value that is infinite in `to`.
Error overflows(const CheckpointTensor& tensor, float value, DType to);
/// The error of MXFP4's scale of block `block`.
Error bad_mxfp4_scale(const CheckpointTensor& scales, int64_t block);
/// The error of MXFP4 values beyond float16.
Error mxfp4_overflows(const CheckpointTensor& blocks);

/// Rounds `count` values of `from` at `values`, of any alignment, to `to`. Returns the first whose finite
/// value becomes infinite, or -1.
int64_t convert_values(const std::byte* values, DType from, int64_t count, DType to, std::byte* out);

}  // namespace fovea
