#include "ops/linear_weight.h"

#include "fovea/result.h"

namespace fovea {
namespace {

constexpr int64_t kPanel = 32;

const char* layout_text(WeightLayout layout) {
  switch (layout) {
    case WeightLayout::rows: return " in rows";
    case WeightLayout::panels: return " in panels";
    case WeightLayout::blocks16: return " in blocks of 16 x 64";
    case WeightLayout::gated_blocks16: return " in gated blocks of 16 x 64";
    case WeightLayout::mxfp4_16: return " of MXFP4";
    case WeightLayout::gated_mxfp4_16: return " of gated MXFP4";
    case WeightLayout::e4m3_16: return " of e4m3";
    case WeightLayout::gated_e4m3_16: return " of gated e4m3";
  }
  return "";
}

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

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
  std::string text = std::string(to_string(f.stored)) + layout_text(f.layout);
  if (!f.scaled) return text;
  const auto size = [](int block) { return block == 0 ? std::string("all") : std::to_string(block); };
  return text + " with a scale" + (f.zero_points ? " and a zero point" : "") + " for " + size(f.block_n) +
         " x " + size(f.block_k) + " weights";
}

int64_t stored_elements(WeightLayout layout, int64_t n, int64_t k) {
  constexpr int64_t kPanelRows = 16, kInputs = 64;
  const int64_t blocks = panels_of(layout, n) * ((k + kInputs - 1) / kInputs);
  switch (layout) {
    case WeightLayout::rows: return n * k;
    case WeightLayout::panels: return round_up(n, kPanel) * k;
    case WeightLayout::blocks16:
    case WeightLayout::gated_blocks16:
    case WeightLayout::e4m3_16:
    case WeightLayout::gated_e4m3_16: return blocks * kPanelRows * kInputs;
    case WeightLayout::mxfp4_16:
    case WeightLayout::gated_mxfp4_16: return blocks * (kPanelRows * kInputs / 2 + kPanelRows * kInputs / 32);
  }
  return 0;
}

WeightCode code_of(WeightLayout layout) {
  switch (layout) {
    case WeightLayout::mxfp4_16:
    case WeightLayout::gated_mxfp4_16: return WeightCode::mxfp4;
    case WeightLayout::e4m3_16:
    case WeightLayout::gated_e4m3_16: return WeightCode::e4m3;
    default: return WeightCode::none;
  }
}

bool is_gated(WeightLayout layout) {
  return layout == WeightLayout::gated_blocks16 || layout == WeightLayout::gated_mxfp4_16 ||
         layout == WeightLayout::gated_e4m3_16;
}

int64_t panels_of(WeightLayout layout, int64_t n) {
  return is_gated(layout) ? (n / 2 + 7) / 8 : (n + 15) / 16;
}

int64_t LinearWeight::bytes() const {
  return bytes_of(data) + bytes_of(scales) + bytes_of(zeros) + bytes_of(bias);
}

Status check(const LinearWeight& w) {
  const bool rows = w.format.layout == WeightLayout::rows;
  const int64_t elements = stored_elements(w.format.layout, w.n, w.k);
  const bool shaped = rows ? w.data.has_shape({w.n, w.k}) : w.data.has_shape({elements});
  if (!shaped || w.data.dtype != w.format.stored || !w.data.contiguous())
    return wrong("weights", w.data,
                 rows ? shape_text(w.format.stored, w.n, w.k)
                      : std::string(to_string(w.format.stored)) + " [" + std::to_string(elements) + "]");
  const bool blocks =
      w.format.layout == WeightLayout::blocks16 || w.format.layout == WeightLayout::gated_blocks16;
  if (blocks && (size_of(w.format.stored) != 2 || w.format.scaled))
    return invalid("a linear layer's format is " + to_string(w.format) +
                   "; blocks hold float16 or bfloat16 without scales");
  const WeightCode code = code_of(w.format.layout);
  if (code != WeightCode::none &&
      (w.format.stored != ElementType::u8 || w.format.scaled != (code == WeightCode::e4m3)))
    return invalid("a linear layer's format is " + to_string(w.format) +
                   "; codes are stored as uint8, e4m3 with scales and MXFP4 without");
  if (is_gated(w.format.layout) && w.n % 2 != 0)
    return invalid("a gated linear layer has " + std::to_string(w.n) + " outputs; it needs an even number");
  if (w.format.zero_points && !w.format.scaled)
    return invalid("a linear layer's format has zero points without scales; set scaled, with scales of 1");
  if (code == WeightCode::e4m3 && w.format.block_k != 0) {
    const bool fits = w.format.block_k == 128 && w.scales.dtype == ElementType::f32 &&
                      w.scales.has_shape({panels_of(w.format.layout, w.n), w.blocks_k(), 2}) &&
                      w.scales.contiguous() && w.scales.device == w.data.device;
    if (!fits)
      return wrong("scales", w.scales,
                   "float32 [" + std::to_string(panels_of(w.format.layout, w.n)) + ", " +
                       std::to_string((w.k + 127) / 128) + ", 2], for blocks of 128 inputs");
  } else {
    FOVEA_RETURN_IF_ERROR(check_blocks(w, "scales", w.scales, ElementType::f32, w.format.scaled));
  }
  FOVEA_RETURN_IF_ERROR(check_blocks(w, "zero points", w.zeros, w.format.stored, w.format.zero_points));
  if (w.bias && (w.bias.dtype != ElementType::f32 || !w.bias.has_shape({w.n}) || !w.bias.contiguous() ||
                 w.bias.device != w.data.device))
    return wrong("biases", w.bias, "float32 [" + std::to_string(w.n) + "]");
  return {};
}

}  // namespace fovea
