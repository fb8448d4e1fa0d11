#include "server/http/multipart.h"

#include <algorithm>
#include <cstring>

#include "fovea/result.h"
#include "server/http/head.h"

namespace fovea::http {
namespace {

constexpr size_t kMostBoundary = 70;
constexpr std::string_view kBlank = " \t";

std::string_view stripped(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

bool is_boundary_char(char c) {
  const bool alnum = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  return alnum || std::string_view("'()+_,-./:=? ").find(c) != std::string_view::npos;
}

/// The value of parameter `name` after the first ';' of a header's value; quoted ones without quotes.
/// nullopt = absent; an unterminated quote is the same.
std::optional<std::string> parameter(std::string_view value, std::string_view name) {
  for (size_t at = value.find(';'); at < value.size();) {
    ++at;  // past ';'
    const size_t equals = value.find_first_of("=;", at);
    if (equals == std::string_view::npos) return std::nullopt;
    if (value[equals] == ';') {
      at = equals;
      continue;
    }
    const bool found = equal_ignoring_case(stripped(value.substr(at, equals - at)), name);
    at = value.find_first_not_of(kBlank, equals + 1);
    std::string text;
    if (at < value.size() && value[at] == '"') {
      // Browsers write a quote as %22; others escape it, and leave the backslashes of paths as they are.
      for (++at; at < value.size() && value[at] != '"'; ++at) {
        const bool escapes =
            value[at] == '\\' && at + 1 < value.size() && (value[at + 1] == '"' || value[at + 1] == '\\');
        text += value[escapes ? ++at : at];
      }
      if (at >= value.size()) return std::nullopt;
      at = value.find(';', at + 1);
    } else {
      const size_t end = std::min(value.find(';', std::min(at, value.size())), value.size());
      if (at < end) text = stripped(value.substr(at, end - at));
      at = end;
    }
    if (found) return text;
  }
  return std::nullopt;
}

/// Where `what` begins in `text` from `from` on, or npos; linear time.
size_t find_in(std::string_view text, std::string_view what, size_t from) {
  const void* found = ::memmem(text.data() + from, text.size() - from, what.data(), what.size());
  return found == nullptr ? std::string_view::npos
                          : static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

std::string place(size_t index) {
  return "part " + std::to_string(index + 1) + " of the form ";
}

Status read_head(std::string_view head, size_t index, FormPart& part) {
  bool named = false;
  while (!head.empty()) {
    const size_t end = std::min(head.find("\r\n"), head.size());
    const std::string_view line = head.substr(0, end);
    head.remove_prefix(std::min(end + 2, head.size()));
    const size_t colon = line.find(':');
    const bool plain = std::ranges::all_of(line, [](char c) {
      const auto byte = static_cast<unsigned char>(c);
      return byte == '\t' || (byte >= 0x20 && byte != 0x7F);
    });
    if (colon == std::string_view::npos || colon == 0 || !plain)
      return invalid(place(index) + "has a header that is not \"Name: value\"");
    const std::string_view key = line.substr(0, colon), value = stripped(line.substr(colon + 1));
    if (equal_ignoring_case(key, "content-disposition")) {
      if (named) return invalid(place(index) + "has two Content-Disposition headers; send one");
      const std::string_view kind = stripped(value.substr(0, value.find(';')));
      auto name = parameter(value, "name");
      if (!equal_ignoring_case(kind, "form-data") || !name || name->empty())
        return invalid(place(index) + "has no name; send \"Content-Disposition: form-data; name=...\"");
      part.name = *std::move(name);
      part.filename = parameter(value, "filename");
      named = true;
    } else if (equal_ignoring_case(key, "content-type")) {
      part.content_type = value;
    } else if (equal_ignoring_case(key, "content-transfer-encoding")) {
      if (!std::ranges::any_of(std::initializer_list<std::string_view>{"binary", "8bit", "7bit"},
                               [&](std::string_view plainly) { return equal_ignoring_case(value, plainly); }))
        return invalid(place(index) + "is encoded (Content-Transfer-Encoding); send its bytes as they are");
    }
  }
  if (!named) return invalid(place(index) + "has no name; send \"Content-Disposition: form-data; name=...\"");
  return {};
}

}  // namespace

Result<std::string> form_boundary(std::string_view content_type) {
  if (!equal_ignoring_case(stripped(content_type.substr(0, content_type.find(';'))), "multipart/form-data"))
    return invalid("the body must be a form; send \"Content-Type: multipart/form-data; boundary=...\"");
  auto boundary = parameter(content_type, "boundary");
  if (!boundary)
    return invalid(
        "Content-Type: multipart/form-data has no boundary; let the client's library set this header");
  if (boundary->empty() || boundary->size() > kMostBoundary || boundary->back() == ' ' ||
      !std::ranges::all_of(*boundary, is_boundary_char))
    return invalid("the boundary of multipart/form-data must be 1 to " + std::to_string(kMostBoundary) +
                   " letters, digits and '()+_,-./:=? or inner blanks");
  return *std::move(boundary);
}

Result<std::vector<FormPart>> parse_form(std::string_view body, std::string_view boundary) {
  const std::string line = "\r\n--" + std::string(boundary);  // a delimiter, except the first
  const std::string_view opening = std::string_view(line).substr(2);
  size_t at = body.starts_with(opening) ? opening.size() : find_in(body, line, 0);
  if (at == std::string_view::npos)
    return invalid("the form has no part: the body does not contain the boundary of its Content-Type");
  if (at != opening.size() || !body.starts_with(opening)) at += line.size();
  std::vector<FormPart> parts;
  // `at` follows a delimiter.
  for (;;) {
    const std::string_view rest = body.substr(at);
    if (rest.starts_with("--")) break;  // the last; what follows it is ignored
    const size_t blanks = std::min(rest.find_first_not_of(kBlank), rest.size());
    if (rest.substr(blanks, 2) != "\r\n")
      return invalid(
          "the form ends inside a boundary, or one is not followed by a line end; was it cut off?");
    if (parts.size() == kMostFormParts)
      return invalid("the form has more than the allowed " + std::to_string(kMostFormParts) + " parts");
    at += blanks + 2;
    // The head ends with an empty line, and may be one.
    const std::string_view from_head = body.substr(at, kMostPartHeadBytes + 4);
    const bool no_head = from_head.starts_with("\r\n");
    const size_t head = no_head ? 0 : from_head.find("\r\n\r\n");
    if (head == std::string_view::npos)
      return invalid(place(parts.size()) + "has headers that do not end within " +
                     std::to_string(kMostPartHeadBytes) + " bytes; was it cut off?");
    FormPart part;
    FOVEA_RETURN_IF_ERROR(read_head(from_head.substr(0, head), parts.size(), part));
    // The line end before the delimiter belongs to it: with no data it is the one that ends the head.
    const size_t data = at + head + (no_head ? 2 : 4);
    const size_t end = find_in(body, line, data - 2);
    if (end == std::string_view::npos)
      return invalid(place(parts.size()) + "does not end with the boundary; was it cut off?");
    part.data = end < data ? std::string_view() : body.substr(data, end - data);
    parts.push_back(std::move(part));
    at = end + line.size();
  }
  if (parts.empty()) return invalid("the form has no part; send at least one field");
  return parts;
}

}  // namespace fovea::http
