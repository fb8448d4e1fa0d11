#include "server/openai/json_writer.h"

#include <charconv>
#include <cmath>

#include "text/utf8.h"

namespace fovea::openai {
namespace {

template <class Number>
void append_decimal(std::string& out, Number value) {
  char buffer[32];
  out.append(buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr);
}

template <class Real>
void append_real(std::string& out, Real value) {
  if (!std::isfinite(value)) {
    out += "null";
    return;
  }
  const size_t begin = out.size();
  append_decimal(out, value);
  if (out.find_first_of(".e", begin) == std::string::npos) out += ".0";
}

void append_escaped(std::string& out, uint8_t c) {
  constexpr char kHex[] = "0123456789abcdef";
  switch (c) {
    case '"': out += "\\\""; return;
    case '\\': out += "\\\\"; return;
    case '\n': out += "\\n"; return;
    case '\r': out += "\\r"; return;
    case '\t': out += "\\t"; return;
    default:
      out += "\\u00";
      out += kHex[c >> 4];
      out += kHex[c & 15];
  }
}

}  // namespace

void append_string(std::string& out, std::string_view text) {
  out += '"';
  size_t good = 0, at = 0;  // [good, at) needs no escape and is not copied yet
  const auto flush = [&] { out.append(text, good, at - good); };
  while (at < text.size()) {
    const auto c = static_cast<uint8_t>(text[at]);
    if (c >= 0x20 && c < 0x7F && c != '"' && c != '\\') {
      ++at;
      continue;
    }
    if (c < 0x80) {
      flush();
      append_escaped(out, c);
      good = ++at;
      continue;
    }
    const text::Utf8Char next = text::decode_utf8(text.substr(at));
    if (next.status != text::Utf8Status::complete) {
      flush();
      out += text::kReplacementUtf8;
      good = at + next.length;
    }
    at += next.length;
  }
  flush();
  out += '"';
}

void append_integer(std::string& out, int64_t value) {
  append_decimal(out, value);
}

void append_float(std::string& out, float value) {
  append_real(out, value);
}

void append_ids(std::string& out, std::span<const int32_t> ids) {
  out += '[';
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i) out += ',';
    append_decimal(out, ids[i]);
  }
  out += ']';
}

void append_json(std::string& out, const text::Json& value) {
  if (const bool* boolean = value.boolean()) {
    out += *boolean ? "true" : "false";
  } else if (const int64_t* integer = value.integer()) {
    append_decimal(out, *integer);
  } else if (const text::Json::LargeInteger* large = value.large_integer()) {
    out += large->digits;
  } else if (const double* real = value.real()) {
    append_real(out, *real);
  } else if (const std::string* string = value.string()) {
    append_string(out, *string);
  } else if (const text::Json::Array* array = value.array()) {
    out += '[';
    for (size_t i = 0; i < array->size(); ++i) {
      if (i) out += ',';
      append_json(out, (*array)[i]);
    }
    out += ']';
  } else if (const text::Json::Object* object = value.object()) {
    out += '{';
    for (size_t i = 0; i < object->size(); ++i) {
      if (i) out += ',';
      append_string(out, (*object)[i].first);
      out += ':';
      append_json(out, (*object)[i].second);
    }
    out += '}';
  } else {
    out += "null";
  }
}

std::string to_text(const text::Json& value) {
  std::string text;
  append_json(text, value);
  return text;
}

}  // namespace fovea::openai
