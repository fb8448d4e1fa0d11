#pragma once
// What a backend writes, and where.
#include <string>
#include <vector>

#include "conformance/machine.h"
#include "fovea/attention_backend.h"

namespace fovea::conformance {

/// What a backend wrote.
struct Output {
  std::string error;       ///< why there is none, or which guard was overwritten
  std::vector<float> o;    ///< [Tq, Hq, Dv] widened
  std::vector<float> lse;  ///< [Tq, Hq]
  // Of naive() only: how far rounding scores to fp32 may move O [Tq, Hq, Dv] and the LSE [Tq, Hq].
  std::vector<float> o_noise, lse_noise;
  std::vector<float> o_rounding;               ///< and how far its other roundings may move naive()'s own O
  std::vector<KernelName> launched;            ///< by the plan's forwards up to this layer's
  bool operator==(const Output& other) const;  ///< bit for bit; whichever kernels
};

/// Where a layer writes, with poison inside and around.
class Target {
 public:
  Target() = default;
  static Result<Target> create(const AttentionSpec& spec, int64_t rows, int row_padding, bool want_lse,
                               DeviceSession& session);

  void put_into(AttentionArgs& args) const;
  /// As it was in the beginning.
  Status poison(DeviceSession& session) const;

  /// What it holds by now; to be read after DeviceSession::finish().
  struct Bytes {
    const std::byte *o, *lse;
  };
  Result<Bytes> fetch(DeviceSession& session) const;
  /// Of a step that had the first `rows` rows: the others are guards, too.
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
  std::byte *o_ = nullptr, *lse_ = nullptr;  // of the device
};

/// Scratch of a backend, and poison after it.
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
