#include "files/safetensors.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/printable.h"
#include "fovea/result.h"

namespace fovea {
namespace {

using Json = nlohmann::json;

constexpr StoredType kTypes[] = {
    {"F32", 32},    {"F16", 16},        {"BF16", 16},       {"F64", 64},    {"F8_E4M3", 8}, {"F8_E5M2", 8},
    {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F4", 4},
    {"I64", 64},    {"I32", 32},        {"I16", 16},        {"I8", 8},      {"U64", 64},    {"U32", 32},
    {"U16", 16},    {"U8", 8},          {"BOOL", 8},        {"C64", 64}};

const StoredType* find_type(std::string_view name) {
  const auto it = std::ranges::find(kTypes, name, &StoredType::name);
  return it == std::end(kTypes) ? nullptr : it;
}

/// Collects the header's entries as the parser meets them. Rejects everything except {name: {dtype, shape,
/// data_offsets}, "__metadata__": {string: string}}, so that nesting and memory are bounded by what the
/// format allows.
class HeaderReader final : public nlohmann::json_sax<Json> {
 public:
  std::vector<SafetensorsEntry> entries;
  std::vector<std::string> metadata_keys;
  std::string problem;  ///< why reading stopped

  bool null() override { return fail("null"); }
  bool boolean(bool) override { return fail("a boolean"); }
  bool number_integer(number_integer_t) override { return fail("a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    return fail("a number that is not an unsigned 64-bit integer");
  }
  bool binary(binary_t&) override { return fail("binary data"); }
  bool number_unsigned(number_unsigned_t value) override {
    if (at_ != At::array) return fail("a number");
    auto& list = field_ == Field::shape ? entries.back().shape : offsets_;
    const size_t limit = field_ == Field::shape ? kMaxTensorRank : 2;
    if (list.size() == limit)
      return stop((field_ == Field::shape ? "its shape has more than " : "its data_offsets have more than ") +
                  std::to_string(limit) + " numbers");
    list.push_back(value);
    return true;
  }
  bool string(string_t& value) override {
    if (at_ == At::metadata) return true;
    if (at_ != At::entry || field_ != Field::dtype) return fail("a string");
    const StoredType* type = find_type(value);
    if (!type) return stop("its dtype \"" + printable(value) + "\" is unknown to the safetensors format");
    entries.back().type = *type;
    return true;
  }
  bool start_object(size_t) override {
    if (at_ == At::start) return go(At::top);
    if (at_ != At::top) return fail("an object");
    return go(in_metadata_ ? At::metadata : At::entry);
  }
  bool key(string_t& name) override {
    if (at_ == At::metadata) {
      metadata_keys.push_back(std::move(name));
      return true;
    }
    if (at_ == At::entry) return start_field(name);
    in_metadata_ = name == "__metadata__";
    if (in_metadata_) {
      if (seen_metadata_) return stop("\"__metadata__\" appears twice");
      seen_metadata_ = true;
      return true;
    }
    if (entries.size() == kMaxSafetensorsEntries)
      return stop("more than " + std::to_string(kMaxSafetensorsEntries) + " tensors");
    entries.emplace_back().name = std::move(name);
    fields_ = 0;
    offsets_.clear();
    return true;
  }
  bool end_object() override {
    if (at_ == At::top) return go(At::start);
    if (at_ == At::entry) {
      if (fields_ != 7) return stop("it needs dtype, shape and data_offsets");
      if (offsets_.size() != 2) return stop("its data_offsets must be two numbers, [begin, end]");
      entries.back().begin = offsets_[0];
      entries.back().end = offsets_[1];
    }
    return go(At::top);
  }
  bool start_array(size_t) override {
    if (at_ != At::entry || (field_ != Field::shape && field_ != Field::offsets)) return fail("an array");
    return go(At::array);
  }
  bool end_array() override { return go(At::entry); }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    problem = "the header is not valid JSON at its byte " + std::to_string(position);
    return false;
  }

 private:
  enum class At { start, top, entry, metadata, array };
  enum class Field { dtype = 1, shape = 2, offsets = 4 };  // bits of fields_

  bool go(At at) {
    at_ = at;
    return true;
  }
  bool stop(std::string why) {
    problem = std::move(why);
    if ((at_ == At::entry || at_ == At::array) && !entries.empty())
      problem = "tensor \"" + printable(entries.back().name) + "\": " + problem;
    return false;
  }
  bool fail(const char* what) {
    return stop(std::string("the header holds ") + what + " at a place where the format has none");
  }
  bool start_field(const std::string& name) {
    if (name == "dtype")
      field_ = Field::dtype;
    else if (name == "shape")
      field_ = Field::shape;
    else if (name == "data_offsets")
      field_ = Field::offsets;
    else
      return stop("unknown key \"" + printable(name) + "\"; allowed are dtype, shape, data_offsets");
    const int bit = static_cast<int>(field_);
    if (fields_ & bit) return stop("\"" + name + "\" appears twice");
    fields_ |= bit;
    return true;
  }

  At at_ = At::start;
  Field field_ = Field::dtype;
  int fields_ = 0;
  bool in_metadata_ = false, seen_metadata_ = false;
  std::vector<uint64_t> offsets_;
};

/// Bytes of a tensor; nullopt when they overflow or end inside a byte.
std::optional<uint64_t> tensor_bytes(const SafetensorsEntry& entry) {
  uint64_t bits = static_cast<uint64_t>(entry.type.bits), count = 1;
  for (const uint64_t dim : entry.shape)
    if (__builtin_mul_overflow(count, dim, &count)) return std::nullopt;
  if (__builtin_mul_overflow(count, bits, &bits) || bits % 8 != 0) return std::nullopt;
  return bits / 8;
}

/// The tensors must tile [0, data_bytes) without gaps or overlaps, each with the length given by its shape.
std::string check_layout(const std::vector<SafetensorsEntry>& entries, uint64_t data_bytes) {
  std::vector<const SafetensorsEntry*> order;
  order.reserve(entries.size());
  for (const auto& entry : entries)
    order.push_back(&entry);
  std::ranges::sort(order, [](const auto* a, const auto* b) {
    return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
  });
  uint64_t position = 0;
  for (const auto* entry : order) {
    const std::string who = "tensor \"" + printable(entry->name) + "\": ";
    const std::string range =
        "data_offsets [" + std::to_string(entry->begin) + ", " + std::to_string(entry->end) + "]";
    if (entry->end < entry->begin) return who + range + " end before they begin";
    if (entry->begin < position) return who + range + " overlap another tensor";
    if (entry->begin > position)
      return who + range + " leave a hole; the tensor before ends at " + std::to_string(position);
    const auto bytes = tensor_bytes(*entry);
    if (!bytes)
      return who + "shape " + shape_string(entry->shape) + " of " + std::string(entry->type.name) +
             " overflows or isn't whole bytes";
    if (*bytes != entry->end - entry->begin)
      return who + range + " disagree with shape " + shape_string(entry->shape) + " of " +
             std::string(entry->type.name) + ", which is " + std::to_string(*bytes) + " bytes";
    position = entry->end;
  }
  if (position > data_bytes)
    return "the file is cut short: its tensors need " + std::to_string(position) +
           " bytes of data, there are " + std::to_string(data_bytes) + "; copy or download it again";
  if (position < data_bytes)
    return std::to_string(data_bytes - position) + " bytes after the last tensor belong to no tensor";
  return "";
}

template <class Range>
const std::string* find_duplicate(const Range& sorted, auto key) {
  const auto it = std::ranges::adjacent_find(sorted, {}, key);
  return it == std::ranges::end(sorted) ? nullptr : &std::invoke(key, *it);
}

}  // namespace

std::optional<DType> StoredType::dtype() const {
  if (name == "F32") return DType::f32;
  if (name == "F16") return DType::f16;
  if (name == "BF16") return DType::bf16;
  return std::nullopt;
}

std::string shape_string(std::span<const uint64_t> shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i)
    text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

Result<std::vector<SafetensorsEntry>> parse_safetensors(std::span<const std::byte> file,
                                                        const std::string& path) {
  const auto bad = [&](const std::string& why) {
    return invalid(path + ": not a valid safetensors file: " + why);
  };
  if (file.size() < 8)
    return bad("it has " + std::to_string(file.size()) + " bytes, shorter than the 8 of the header's length");
  uint64_t length = 0;
  for (size_t i = 8; i-- > 0;)
    length = length << 8 | static_cast<uint64_t>(file[i]);
  if (length > kMaxSafetensorsHeader)
    return bad("the header would be " + std::to_string(length) + " bytes; at most " +
               std::to_string(kMaxSafetensorsHeader) + " are allowed");
  if (length > file.size() - 8)
    return bad("the header of " + std::to_string(length) + " bytes ends after the file's " +
               std::to_string(file.size()) + "; copy or download it again");
  const char* header = reinterpret_cast<const char*>(file.data()) + 8;
  if (length == 0 || header[0] != '{') return bad("the header doesn't begin with '{'");
  // The parser treats NUL as end of input, so anything after one would escape the checks.
  if (std::memchr(header, 0, length)) return bad("the header holds a NUL byte");

  HeaderReader reader;
  if (!Json::sax_parse(header, header + length, &reader)) return bad(reader.problem);
  auto& entries = reader.entries;
  std::ranges::sort(entries, {}, &SafetensorsEntry::name);
  std::ranges::sort(reader.metadata_keys);
  if (const auto* name = find_duplicate(entries, &SafetensorsEntry::name))
    return bad("tensor \"" + printable(*name) + "\" appears twice");
  if (const auto* name = find_duplicate(reader.metadata_keys, std::identity{}))
    return bad("__metadata__ has the key \"" + printable(*name) + "\" twice");
  if (const std::string why = check_layout(entries, file.size() - 8 - length); !why.empty()) return bad(why);
  for (auto& entry : entries) {
    entry.begin += 8 + length;
    entry.end += 8 + length;
  }
  return std::move(entries);
}

}  // namespace fovea
