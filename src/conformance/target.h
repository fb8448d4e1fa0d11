#pragma once
// The outputs of a backend, and the memory that it writes.
#include <string>
#include <vector>

#include "conformance/machine.h"
#include "fovea/attention_step.h"
#include "fovea/backend_info.h"

namespace fovea::conformance {

/// The outputs of one layer.
struct Output {
  std::string error;       ///< why there is no output, or which guard was overwritten
  std::vector<float> o;    ///< [Tq, Hq, Dv] widened
  std::vector<float> lse;  ///< [Tq, Hq]
  // naive() only: how far rounding scores to fp32 may move O [Tq, Hq, Dv] and the LSE [Tq, Hq].
  std::vector<float> o_noise, lse_noise;
  std::vector<float> o_rounding;               ///< naive() only: how far other roundings may move its own O
  std::vector<KernelName> launched;            ///< by the plan's forwards up to this layer's
  bool operator==(const Output& other) const;  ///< bit for bit; ignores `launched`
};

/// The output memory of a layer, with poison inside and around.
class Target {
 public:
  Target() = default;
  static Result<Target> create(const AttentionSpec& spec, int64_t rows, int row_padding, bool want_lse,
                               DeviceSession& session);

  void put_into(AttentionArgs& args) const;
  /// Restores the initial poison.
  Status poison(DeviceSession& session) const;

  /// The current contents; may be read after DeviceSession::finish().
  struct Bytes {
    const std::byte *o, *lse;
  };
  Result<Bytes> fetch(DeviceSession& session) const;
  /// The output of a step with the first `rows` rows; the other rows are checked as guards.
  Output read(const Bytes& bytes, int64_t rows) const;
  Output read(const Bytes& bytes) const { return read(bytes, rows_); }

 private:
  size_t o_bytes() const;
  size_t lse_bytes() const;

  DType dtype_ = DType::f32;
  int64_t rows_ = 0, heads_ = 0, width_ = 0;
  int padding_ = 0;
  bool want_lse_ = true;
  size_t row_bytes_ = 0, lse_row_ = 0;
  std::byte *o_ = nullptr, *lse_ = nullptr;  // device memory
};

/// Workspace of a backend, with poison after it.
class Scratch {
 public:
  static Result<Scratch> create(size_t bytes, DeviceSession& session);
  Workspace workspace() const { return {data_, bytes_}; }
  Result<const std::byte*> fetch(DeviceSession& session) const;
  static bool intact(const std::byte* fetched);

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace fovea::conformance
