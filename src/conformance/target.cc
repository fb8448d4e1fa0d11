#include "conformance/target.h"

#include <algorithm>
#include <cstring>

#include "base/float16.h"
#include "fovea/result.h"

namespace fovea::conformance {
namespace {

constexpr int kGuardRows = 2;
constexpr size_t kGuardBytes = 256;  // after the workspace

float get(const std::byte* data, DType dtype, int64_t index) {
  if (dtype == DType::f32) {
    float value;
    std::memcpy(&value, data + index * 4, 4);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, data + index * 2, 2);
  return dtype == DType::f16 ? fp16_to_float(bits) : bf16_to_float(bits);
}

bool is_poison(const std::byte* first, size_t bytes) {
  return std::all_of(first, first + bytes, [](std::byte b) { return b == std::byte{kPoison}; });
}

/// Whether everything before the first row and after row `rows` is still poison.
bool guarded(const std::byte* data, size_t bytes, size_t row_bytes, int64_t rows) {
  const size_t end = (static_cast<size_t>(rows) + kGuardRows) * row_bytes;
  return is_poison(data, kGuardRows * row_bytes) && is_poison(data + end, bytes - end);
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

}  // namespace

bool Output::operator==(const Output& other) const {
  return error == other.error && same_bits(o, other.o) && same_bits(lse, other.lse);
}

Result<Target> Target::create(const AttentionSpec& spec, int64_t rows, int row_padding, bool want_lse,
                              DeviceSession& session) {
  Target t;
  t.dtype_ = spec.dtype;
  t.rows_ = rows;
  t.heads_ = spec.num_heads;
  t.width_ = t.heads_ * spec.v_head_dim;
  t.padding_ = row_padding;
  t.want_lse_ = want_lse;
  t.row_bytes_ = static_cast<size_t>(t.width_ + row_padding) * size_of(spec.dtype);
  t.lse_row_ = static_cast<size_t>(t.heads_) * sizeof(float);
  FOVEA_TRY(o, session.room(t.o_bytes()));
  FOVEA_TRY(lse, session.room(t.lse_bytes()));
  t.o_ = o;
  t.lse_ = lse;
  return t;
}

size_t Target::o_bytes() const {
  return static_cast<size_t>(rows_ + int64_t{2} * kGuardRows) * row_bytes_;
}

size_t Target::lse_bytes() const {
  return static_cast<size_t>(rows_ + int64_t{2} * kGuardRows) * lse_row_;
}

void Target::put_into(AttentionArgs& args) const {
  args.out = o_ + kGuardRows * row_bytes_;
  args.out_row_stride = width_ + padding_;
  args.lse = want_lse_ ? reinterpret_cast<float*>(lse_ + kGuardRows * lse_row_) : nullptr;
}

Status Target::poison(DeviceSession& session) const {
  const std::vector<uint8_t> bytes(std::max(o_bytes(), lse_bytes()), kPoison);
  FOVEA_RETURN_IF_ERROR(session.write(o_, bytes.data(), o_bytes()));
  return session.write(lse_, bytes.data(), lse_bytes());
}

Result<Target::Bytes> Target::fetch(DeviceSession& session) const {
  FOVEA_TRY(o, session.get(o_, o_bytes()));
  FOVEA_TRY(lse, session.get(lse_, lse_bytes()));
  return Bytes{o, lse};
}

Output Target::read(const Bytes& bytes, int64_t rows) const {
  Output out;
  if (!guarded(bytes.o, o_bytes(), row_bytes_, rows)) out.error = "wrote outside the output's rows";
  if (!guarded(bytes.lse, lse_bytes(), lse_row_, rows)) out.error = "wrote outside the LSE's rows";
  out.o.reserve(static_cast<size_t>(rows * width_));
  for (int64_t row = 0; row < rows; ++row) {
    const std::byte* data = bytes.o + (row + kGuardRows) * row_bytes_;
    for (int64_t e = 0; e < width_; ++e)
      out.o.push_back(get(data, dtype_, e));
    if (!is_poison(data + width_ * size_of(dtype_), padding_ * size_of(dtype_)))
      out.error = "wrote between the output's rows";
  }
  const std::byte* lse = bytes.lse + kGuardRows * lse_row_;
  if (want_lse_) {
    out.lse.resize(static_cast<size_t>(rows * heads_));
    if (rows > 0) std::memcpy(out.lse.data(), lse, rows * lse_row_);
  } else if (!is_poison(lse, rows * lse_row_)) {
    out.error = "wrote an LSE that was not wanted";
  }
  return out;
}

Result<Scratch> Scratch::create(size_t bytes, DeviceSession& session) {
  Scratch s;
  FOVEA_TRY(data, session.room(bytes + kGuardBytes));
  s.data_ = data;
  s.bytes_ = bytes;
  return s;
}

Result<const std::byte*> Scratch::fetch(DeviceSession& session) const {
  return session.get(data_ + bytes_, kGuardBytes);
}

bool Scratch::intact(const std::byte* fetched) {
  return is_poison(fetched, kGuardBytes);
}

}  // namespace fovea::conformance
