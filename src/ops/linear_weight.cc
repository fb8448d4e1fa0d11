#include "ops/linear_weight.h"

namespace fovea {
namespace {

constexpr int64_t kPanel = 32;

int64_t bytes_of(const Tensor& t) {
  return t.elements() * static_cast<int64_t>(size_of(t.dtype));
}

Error wrong(const char* name, const Tensor& given, const std::string& wanted) {
  return invalid(std::string("the ") + name + " of a linear layer are " + given.describe() +
                 "; its format needs " + wanted);
}

std::string shape_text(ElementType type, int64_t rows, int64_t columns) {
  return std::string(to_string(type)) + " [" + std::to_string(rows) + ", " + std::to_string(columns) + "]";
}

Status check_blocks(const LinearWeight& w, const char* name, const Tensor& t, ElementType type, bool wanted) {
  if (!wanted) return t ? Status(wrong(name, t, "none")) : Status();
  if (t.dtype == type && t.has_shape({w.blocks_n(), w.blocks_k()}) && t.contiguous() &&
      t.device == w.data.device)
    return {};
  return wrong(name, t, shape_text(type, w.blocks_n(), w.blocks_k()));
}

}  // namespace

std::string to_string(const WeightFormat& f) {
  std::string text =
      std::string(to_string(f.stored)) + (f.layout == WeightLayout::rows ? " in rows" : " in panels");
  if (!f.scaled) return text;
  const auto size = [](int block) { return block == 0 ? std::string("all") : std::to_string(block); };
  return text + " with a scale" + (f.zero_points ? " and a zero point" : "") + " for " + size(f.block_n) +
         " x " + size(f.block_k) + " weights";
}

int64_t LinearWeight::bytes() const {
  return bytes_of(data) + bytes_of(scales) + bytes_of(zeros) + bytes_of(bias);
}

Status check(const LinearWeight& w) {
  const bool panels = w.format.layout == WeightLayout::panels;
  const int64_t padded = (w.n + kPanel - 1) / kPanel * kPanel;
  const bool shaped = panels ? w.data.has_shape({padded * w.k}) : w.data.has_shape({w.n, w.k});
  if (!shaped || w.data.dtype != w.format.stored || !w.data.contiguous())
    return wrong("weights", w.data,
                 panels ? std::string(to_string(w.format.stored)) + " [" + std::to_string(padded * w.k) + "]"
                        : shape_text(w.format.stored, w.n, w.k));
  if (w.format.zero_points && !w.format.scaled)
    return invalid("a linear layer's format has zero points without scales; set scaled, with scales of 1");
  FOVEA_RETURN_IF_ERROR(check_blocks(w, "scales", w.scales, ElementType::f32, w.format.scaled));
  FOVEA_RETURN_IF_ERROR(check_blocks(w, "zero points", w.zeros, w.format.stored, w.format.zero_points));
  if (w.bias && (w.bias.dtype != ElementType::f32 || !w.bias.has_shape({w.n}) || !w.bias.contiguous() ||
                 w.bias.device != w.data.device))
    return wrong("biases", w.bias, "float32 [" + std::to_string(w.n) + "]");
  return {};
}

}  // namespace fovea
