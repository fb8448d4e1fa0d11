#pragma once
// Weight loading by name and shape, from a checkpoint or as random dummy weights.
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/aligned.h"
#include "files/checkpoint.h"
#include "fovea/dtype.h"
#include "fovea/load_progress.h"
#include "fovea/result.h"
#include "kernels/cpu/linear.h"
#include "model/dummy.h"
#include "model/weight_source.h"

namespace fovea {

class ThreadPool;

/// `value` rounded to `dtype` (to nearest even).
float round_to(float value, DType dtype);

/// A weight matrix: packed for the CPU, or described and not read yet; then only its sizes can be asked.
class WeightMatrix {
 public:
  WeightMatrix() = default;
  WeightMatrix(PackedMatrix packed) : packed_(std::move(packed)) {}
  WeightMatrix(std::shared_ptr<const WeightSource> source) : source_(std::move(source)) {}

  int64_t n() const { return source_ ? source_->n() : packed_.n(); }
  int64_t k() const { return source_ ? source_->k() : packed_.k(); }
  DType storage() const { return source_ ? source_->dtype() : packed_.storage(); }
  int64_t bytes() const { return source_ ? source_->bytes() : packed_.bytes(); }
  /// Null if packed.
  const std::shared_ptr<const WeightSource>& source() const { return source_; }
  PackedView view() const { return packed_.view(); }
  operator PackedView() const { return view(); }
  void unpack_row(int64_t row, float* out) const { packed_.unpack_row(row, out); }

 private:
  PackedMatrix packed_;
  std::shared_ptr<const WeightSource> source_;
};

/// y = x W^T + b; an empty b = none.
struct Linear {
  WeightMatrix weight;
  AlignedArray<float> bias;

  /// x [m, k] and y [m, n], row strides in elements.
  void forward(const float* x, int64_t x_stride, int64_t m, float* y, int64_t y_stride,
               ThreadPool& pool) const {
    linear(weight, x, x_stride, m, y, y_stride, bias.size() ? bias.data() : nullptr, pool);
  }
  int64_t bytes() const { return weight.bytes() + static_cast<int64_t>(bias.size() * sizeof(float)); }
};

/// Reads the weights that a family requests, in one of three modes. `check` verifies names, types and shapes,
/// adds up sizes, and returns empty weights, so nothing is allocated for a checkpoint that does not match its
/// config. `load` allocates and packs; `describe` reads vectors and returns matrices that are not read yet.
/// After the first error all return empty weights; see status().
///
/// Matrices keep the checkpoint's 16-bit form if `dtype` is absent or float32 (exact); otherwise they are
/// rounded once to the 16-bit `dtype`, and a value that becomes infinite is an error. Vectors (norms, biases)
/// are rounded likewise and kept in fp32.
class WeightReader {
 public:
  enum class Mode { check, load, describe };
  struct Part {
    std::string_view name;  ///< "q_proj": tensor PREFIX + name + ".weight", and ".bias" when asked for
    int64_t rows = 0;
    bool bias = true;  ///< false: this part has none although others do
  };
  /// One tensor with the matrices of all experts.
  struct ExpertTensor {
    std::string name;
    int64_t experts = 0, rows = 0, columns = 0;  ///< [experts, rows, columns]
    bool transposed = false;                     ///< stored as [experts, columns, rows]
    bool interleaved = false;  ///< rows 2i and 2i + 1 become rows i and rows / 2 + i, in `bias` too
    bool mxfp4 = false;  ///< NAME_blocks U8 [experts, rows, columns / 32, 16], NAME_scales U8 without the 16
  };

  /// Exactly one of `checkpoint` and `dummy` is given.
  WeightReader(std::shared_ptr<const Checkpoint> checkpoint, std::shared_ptr<const DummyWeights> dummy,
               std::optional<DType> dtype, ThreadPool& pool)
      : checkpoint_(std::move(checkpoint)), dummy_(std::move(dummy)), dtype_(dtype), pool_(pool) {}
  void set_mode(Mode mode) { mode_ = mode; }
  /// Dummy weights of linear layers are e4m3, with scales for blocks or for each output.
  void set_dummy_fp8(bool blocks) { dummy_fp8_ = true, dummy_fp8_blocks_ = blocks; }
  /// Called before each tensor in load mode with the bytes loaded so far and the bytes that check mode
  /// planned.
  void set_progress(LoadProgress progress) { progress_ = std::move(progress); }

  /// A tensor [rows, columns].
  WeightMatrix matrix(const std::string& name, int64_t rows, int64_t columns);
  /// Linear layers with the same input stacked into one, in order.
  Linear fused(const std::string& prefix, std::initializer_list<Part> parts, int64_t columns, bool bias);
  /// A one-dimensional convolution PREFIX.weight [rows, channels, width] with PREFIX.bias, as the linear
  /// layer of inputs [channels, width].
  Linear convolution(const std::string& prefix, int64_t rows, int64_t channels, int64_t width);
  /// A part of a tensor: rows [first, first + count), or their transpose.
  struct Cut {
    int64_t first = 0, count = 0;
    bool transposed = false;
  };
  /// Parts of the tensor `name` [rows, columns] as matrices of their own, decoded before they are cut.
  std::vector<Linear> cuts(const std::string& name, int64_t rows, int64_t columns,
                           const std::vector<Cut>& cuts);
  /// A tensor [size], or [1, size] where `row`; dummy values are near `dummy_mean` (1 for factors, 0 for
  /// offsets).
  AlignedArray<float> vector(const std::string& name, int64_t size, float dummy_mean, bool row = false);
  /// The same as it is stored, whatever the model's type is.
  AlignedArray<float> exact_vector(const std::string& name, int64_t size, float dummy_mean);
  /// Expert `index` of a fused tensor; `bias` adds NAME_bias [experts, rows].
  Linear expert(const ExpertTensor& tensor, int64_t index, bool bias);

  /// Whether the checkpoint has this tensor; false for dummy weights.
  bool has(const std::string& name) const { return checkpoint_ && checkpoint_->find(name) != nullptr; }
  /// The first of `candidates` that the checkpoint has; the first of all when it has none.
  std::string first_of(std::initializer_list<std::string> candidates) const;
  /// Suppresses the unused-tensor warning, and the error, for names with this prefix.
  void ignore(std::string prefix) { ignored_.push_back(std::move(prefix)); }
  /// Tensors that nothing has asked for are an error instead of a warning.
  void refuse_unused() { refuses_unused_ = true; }
  bool refuses_unused() const { return refuses_unused_; }

  const Status& status() const { return status_; }
  /// Bytes of the weights requested in check mode.
  int64_t planned_bytes() const { return planned_bytes_; }
  /// Checkpoint tensors not requested in check mode.
  std::vector<std::string_view> unused() const;
  /// Marks tensors that are read elsewhere.
  void mark_used(const std::vector<const CheckpointTensor*>& tensors) {
    used_.insert(used_.end(), tensors.begin(), tensors.end());
  }

 private:
  WeightMatrix stack(const std::vector<std::pair<std::string, int64_t>>& parts, int64_t columns,
                     int64_t width = 0);
  /// The same of e4m3 weights with scales; `codes`: the layer can be read as codes.
  bool is_fp8(const std::vector<std::pair<std::string, int64_t>>& parts, bool linear) const;
  WeightMatrix stack_fp8(const std::vector<std::pair<std::string, int64_t>>& parts, int64_t columns,
                         bool codes);
  std::shared_ptr<const WeightSource> fp8_stack_source(
      const std::vector<std::pair<std::string, int64_t>>& parts, int64_t columns, bool codes);
  /// The source of one tensor, decoded; null in check mode and after an error.
  std::shared_ptr<const WeightSource> decoded(const std::string& name, int64_t rows, int64_t columns);
  WeightMatrix read_all(std::shared_ptr<const WeightSource> source, DType storage);
  std::shared_ptr<const WeightSource> describe(const std::vector<std::pair<std::string, int64_t>>& parts,
                                               const std::vector<const CheckpointTensor*>& tensors,
                                               int64_t columns, DType storage) const;
  DType stored_as(const std::vector<const CheckpointTensor*>& tensors) const;
  /// `type` empty: any that read_float supports.
  const CheckpointTensor* require(const std::string& name, std::initializer_list<int64_t> shape,
                                  std::string_view type = {});
  /// Elements [first, first + count) of the tensor, or all.
  bool fits(const CheckpointTensor& tensor, DType to, int64_t first = 0, int64_t count = -1);
  /// `as` absent: in the model's type.
  AlignedArray<float> values(const CheckpointTensor& tensor, int64_t first, int64_t count,
                             std::optional<DType> as = {});
  AlignedArray<float> read_vector(const std::string& name, int64_t size, float dummy_mean, bool row,
                                  std::optional<DType> to);
  WeightMatrix expert_matrix(const ExpertTensor& tensor, int64_t index);
  WeightMatrix mxfp4_matrix(const ExpertTensor& tensor, int64_t index);
  WeightMatrix dummy_mxfp4(const ExpertTensor& tensor, int64_t index);
  AlignedArray<float> expert_bias(const ExpertTensor& tensor, int64_t index);
  /// True in check mode (adds `bytes` to the plan, nothing is read); else adds them to the progress.
  bool only_planned(int64_t bytes);
  void pack_dummy(PackedMatrix& out, int64_t first, int64_t rows, const std::string& name);
  void fail(Error error) {
    if (status_) status_ = std::move(error);
  }

  std::shared_ptr<const Checkpoint> checkpoint_;
  std::shared_ptr<const DummyWeights> dummy_;
  std::optional<DType> dtype_;
  ThreadPool& pool_;
  bool dummy_fp8_ = false, dummy_fp8_blocks_ = false, refuses_unused_ = false;
  Mode mode_ = Mode::check;
  Status status_;
  int64_t planned_bytes_ = 0, loaded_bytes_ = 0;
  LoadProgress progress_;
  std::vector<const CheckpointTensor*> used_;
  std::vector<std::string> ignored_;
};

}  // namespace fovea
