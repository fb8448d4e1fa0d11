#pragma once
// Writes safetensors for tests: well-formed ones from tensors, and any bytes from a header and data.
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/float16.h"
#include "fovea/dtype.h"

namespace fovea::test {

/// 8 bytes of `length` (the header's own unless given), the header, the data.
inline std::string raw_safetensors(std::string_view header, std::string_view data, uint64_t length) {
  std::string out;
  for (int i = 0; i < 8; ++i)
    out += static_cast<char>(length >> (8 * i) & 0xff);
  return out.append(header).append(data);
}
inline std::string raw_safetensors(std::string_view header, std::string_view data = "") {
  return raw_safetensors(header, data, header.size());
}

/// `values` in `dtype`, rounded to nearest even, little-endian.
inline std::string encode(const std::vector<float>& values, DType dtype) {
  std::string out(values.size() * size_of(dtype), '\0');
  for (size_t i = 0; i < values.size(); ++i) {
    const uint16_t half = dtype == DType::f16 ? float_to_fp16(values[i]) : float_to_bf16(values[i]);
    if (dtype == DType::f32) {
      std::memcpy(out.data() + 4 * i, &values[i], 4);
    } else {
      std::memcpy(out.data() + 2 * i, &half, 2);
    }
  }
  return out;
}

class SafetensorsWriter {
 public:
  /// Names are written unescaped: no quotes, no backslashes.
  void add(const std::string& name, const std::string& type, const std::vector<int64_t>& shape,
           const std::string& bytes) {
    const char* separator = header_.empty() ? "" : ",";
    header_.append(separator).append("\"").append(name).append("\":{\"dtype\":\"").append(type);
    header_.append("\",\"shape\":[");
    for (size_t i = 0; i < shape.size(); ++i)
      header_.append(i ? "," : "").append(std::to_string(shape[i]));
    header_.append("],\"data_offsets\":[").append(std::to_string(data_.size())).append(",");
    header_.append(std::to_string(data_.size() + bytes.size())).append("]}");
    data_ += bytes;
  }
  void add(const std::string& name, const std::vector<int64_t>& shape, const std::vector<float>& values,
           DType dtype) {
    add(name,
        dtype == DType::f32   ? "F32"
        : dtype == DType::f16 ? "F16"
                              : "BF16",
        shape, encode(values, dtype));
  }
  bool empty() const { return header_.empty(); }
  /// The whole file; `padding` spaces end the header, so that data can be made unaligned.
  std::string bytes(int padding = 0) const {
    return raw_safetensors("{" + header_ + "}" + std::string(static_cast<size_t>(padding), ' '), data_);
  }

 private:
  std::string header_, data_;
};

}  // namespace fovea::test
