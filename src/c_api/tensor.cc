#include "c_api/tensor.h"

#include <algorithm>
#include <utility>

#include "fovea/result.h"

namespace fovea::c_api {
namespace {

struct ElementRow {
  Element element;
  std::string_view name;
  uint8_t code, bits;
};
constexpr ElementRow kElements[] = {
    {Element::f32, "float32", FOVEA_FLOAT, 32},
    {Element::f16, "float16", FOVEA_FLOAT, 16},
    {Element::bf16, "bfloat16", FOVEA_BFLOAT, 16},
    {Element::e4m3, "float8_e4m3fn", FOVEA_FLOAT8_E4M3FN, 8},
    {Element::e5m2, "float8_e5m2", FOVEA_FLOAT8_E5M2, 8},
    {Element::u8, "uint8", FOVEA_UINT, 8},
    {Element::i8, "int8", FOVEA_INT, 8},
    {Element::i32, "int32", FOVEA_INT, 32},
    {Element::i64, "int64", FOVEA_INT, 64},
};

std::string text_of(fovea_dtype dtype) {
  const Element element = element_of(dtype);
  if (element != Element::other) return std::string(to_string(element));
  return "DLPack code " + std::to_string(dtype.code) + " of " + std::to_string(dtype.bits) + " bits and " +
         std::to_string(dtype.lanes) + " lanes";
}

std::string names_of(std::initializer_list<Element> elements) {
  std::string out;
  for (const Element element : elements)
    out.append(out.empty()                        ? ""
               : element == *(elements.end() - 1) ? " or "
                                                  : ", ")
        .append(to_string(element));
  return out;
}

/// "[Tq = 4, Hq = 8, page]"
std::string text_of(std::initializer_list<Dim> dims) {
  std::string out = "[";
  for (const Dim& dim : dims) {
    if (out.size() > 1) out += ", ";
    out += dim.name;
    if (dim.size != Dim::kAny) out.append(dim.name.empty() ? "" : " = ").append(std::to_string(dim.size));
  }
  return out + "]";
}

/// Whether the dense size and the offset past the last element, in bytes, fit into 64 bits.
bool extent_fits(const Tensor& t) {
  int64_t last = 1;
  for (int i = 0; i < t.ndim; ++i) {
    int64_t far = 0;
    if (t.size(i) == 0) return true;
    if (__builtin_mul_overflow(t.size(i) - 1, t.step(i), &far) || __builtin_add_overflow(last, far, &last))
      return false;
  }
  int64_t elements = 1, bytes = 0;
  for (int i = 0; i < t.ndim; ++i)
    if (__builtin_mul_overflow(elements, t.size(i), &elements)) return false;
  const auto item = static_cast<int64_t>(size_of(t.element));
  return !__builtin_mul_overflow(elements, item, &bytes) && !__builtin_mul_overflow(last, item, &bytes);
}

/// The number of trailing dimensions that are dense.
int dense_dims(const Tensor& t) {
  int64_t dense = 1;
  for (int i = t.ndim - 1; i >= 0; --i) {
    if (t.step(i) != dense) return t.ndim - 1 - i;
    dense *= std::max<int64_t>(t.size(i), 1);
  }
  return t.ndim;
}

Status check_packing(const Tensor& t, std::string_view name, Packing packing) {
  if (t.count() == 0) return {};
  const int dense = dense_dims(t);
  const auto refuse = [&](const char* needed) {
    return invalid(std::string(name) + " has strides " + shape_text(t.stride.data(), t.ndim) + " for shape " +
                   shape_text(t.shape.data(), t.ndim) + "; " + needed + ": make it contiguous");
  };
  switch (packing) {
    case Packing::contiguous:
      if (dense < t.ndim) return refuse("it must be dense");
      break;
    case Packing::rows:
      if (dense < t.ndim - 1) return refuse("only its first dimension may have a stride of its own");
      break;
    case Packing::last:
      if (dense < 1 && t.ndim > 0) return refuse("its last dimension must be dense");
      break;
    case Packing::strided: break;
  }
  return {};
}

}  // namespace

std::string_view to_string(Element element) {
  for (const ElementRow& row : kElements)
    if (row.element == element) return row.name;
  return "?";
}

size_t size_of(Element element) {
  for (const ElementRow& row : kElements)
    if (row.element == element) return row.bits / 8u;
  return 1;
}

Element element_of(fovea_dtype dtype) {
  for (const ElementRow& row : kElements)
    if (row.code == dtype.code && row.bits == dtype.bits && dtype.lanes == 1) return row.element;
  return Element::other;
}

std::string to_string(fovea_device device) {
  switch (device.type) {
    case FOVEA_CPU: return "cpu";
    case FOVEA_CUDA: return "cuda:" + std::to_string(device.id);
    case FOVEA_CUDA_HOST: return "pinned host memory";
    default: return "DLPack device type " + std::to_string(device.type);
  }
}

std::string shape_text(const int64_t* shape, int ndim) {
  std::string out = "[";
  for (int i = 0; i < ndim; ++i)
    out.append(i == 0 ? "" : ", ").append(std::to_string(shape[i]));
  return out + "]";
}

Status check_written(const Tensor& t, std::string_view name) {
  if (t.count() == 0) return {};
  std::array<std::pair<int64_t, int64_t>, kMaxDims> dims = {};  // stride, size; unused ones have size 1
  for (int i = 0; i < kMaxDims; ++i)
    dims[static_cast<size_t>(i)] =
        i < t.ndim ? std::pair(t.step(i), t.size(i)) : std::pair<int64_t, int64_t>(0, 1);
  std::sort(dims.begin(), dims.end());
  int64_t extent = 1;  // in elements, spanned by the dimensions so far
  for (const auto& [stride, size] : dims) {
    if (size == 1) continue;
    if (stride < extent)
      return invalid(
          std::string(name) + " has strides " + shape_text(t.stride.data(), t.ndim) + " for shape " +
          shape_text(t.shape.data(), t.ndim) +
          "; it is written to, and its elements overlap: pass memory of its own, not an expanded view");
    extent += (size - 1) * stride;  // does not overflow: extent_fits()
  }
  return {};
}

int64_t Tensor::count() const {
  int64_t count = 1;
  for (int i = 0; i < ndim; ++i)
    count *= size(i);
  return count;
}

Result<Tensor> Arguments::read(const fovea_tensor* given, std::string_view name,
                               std::initializer_list<Element> elements) const {
  const std::string n(name);
  if (given == nullptr) return invalid(n + " is null; it is needed");
  if (given->ndim < 0 || given->ndim > kMaxDims)
    return invalid(n + " has " + std::to_string(given->ndim) + " dimensions; 0 to " +
                   std::to_string(kMaxDims) + " are possible");
  if (given->ndim > 0 && given->shape == nullptr) return invalid(n + " has no shape; its pointer is null");
  const bool here = on_cpu() ? given->device.type == FOVEA_CPU || given->device.type == FOVEA_CUDA_HOST
                             : given->device.type == FOVEA_CUDA && given->device.id == device_.id;
  if (!here)
    return invalid(n + " is on " + to_string(given->device) + "; it must be on " + to_string(device_));
  Tensor t;
  t.element = element_of(given->dtype);
  if (std::find(elements.begin(), elements.end(), t.element) == elements.end())
    return invalid(n + " has dtype " + text_of(given->dtype) + "; it must be " + names_of(elements));
  t.ndim = given->ndim;
  int64_t dense = 1;
  for (int i = t.ndim - 1; i >= 0; --i) {
    const auto at = static_cast<size_t>(i);
    t.shape[at] = given->shape[i];
    if (t.shape[at] < 0)
      return invalid(n + " has shape " + shape_text(given->shape, t.ndim) + "; sizes must not be negative");
    t.stride[at] = given->strides == nullptr || t.shape[at] <= 1 ? dense : given->strides[i];
    if (given->strides != nullptr && t.stride[at] < 0)
      return invalid(n + " has strides " + shape_text(given->strides, t.ndim) +
                     "; they must not be negative");
    if (__builtin_mul_overflow(dense, std::max<int64_t>(t.shape[at], 1), &dense))
      return invalid(n + " has shape " + shape_text(given->shape, t.ndim) + ", which exceeds 64-bit sizes");
  }
  if (!extent_fits(t))
    return invalid(n + " has strides " + shape_text(t.stride.data(), t.ndim) + " for shape " +
                   shape_text(t.shape.data(), t.ndim) + ", which exceeds 64-bit sizes");
  if (given->data == nullptr && t.count() > 0)
    return invalid(n + " has a null pointer for shape " + shape_text(given->shape, t.ndim));
  if (given->data != nullptr) t.data = static_cast<std::byte*>(given->data) + given->byte_offset;
  return t;
}

Result<Tensor> Arguments::take(const fovea_tensor* given, const Wanted& wanted) const {
  FOVEA_TRY(t, read(given, wanted.name, wanted.elements));
  const std::string n(wanted.name);
  const auto shape_error = [&] {
    return invalid(n + " has shape " + shape_text(t.shape.data(), t.ndim) + "; it must be " +
                   text_of(wanted.dims));
  };
  if (t.ndim != static_cast<int>(wanted.dims.size())) return shape_error();
  int i = 0;
  for (const Dim& dim : wanted.dims)
    if (const int64_t size = t.size(i++); dim.size != Dim::kAny && size != dim.size) return shape_error();
  FOVEA_RETURN_IF_ERROR(check_packing(t, wanted.name, wanted.packing));
  const size_t alignment = std::max(wanted.alignment, size_of(t.element));
  if (const auto address = reinterpret_cast<uintptr_t>(t.data); address % alignment != 0)
    return invalid(n + " begins at an address that is " + std::to_string(address % alignment) +
                   " past a multiple of " + std::to_string(alignment) + " bytes; it must be aligned to them");
  return t;
}

Result<Tensor> Arguments::take_any(const fovea_tensor* given, std::string_view name,
                                   std::initializer_list<Element> elements, int least_dims, int most_dims,
                                   std::string_view describe, Packing packing) const {
  FOVEA_TRY(t, read(given, name, elements));
  if (t.ndim < least_dims || t.ndim > most_dims)
    return invalid(std::string(name) + " has shape " + shape_text(t.shape.data(), t.ndim) + "; it must be " +
                   std::string(describe));
  FOVEA_RETURN_IF_ERROR(check_packing(t, name, packing));
  if (reinterpret_cast<uintptr_t>(t.data) % size_of(t.element) != 0)
    return invalid(std::string(name) + " begins at an address that is not a multiple of its elements' " +
                   std::to_string(size_of(t.element)) + " bytes");
  return t;
}

}  // namespace fovea::c_api
