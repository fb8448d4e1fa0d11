#pragma once
// multipart/form-data bodies (RFC 7578, RFC 2046): what HTML forms and uploads of files send.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/result_fwd.h"

namespace fovea::http {

struct FormPart {
  std::string name;                     ///< of the field
  std::optional<std::string> filename;  ///< a file's, as the client wrote it; nullopt = a plain field
  std::string content_type;             ///< "" = not given
  std::string_view data;                ///< in the body
};

inline constexpr size_t kMostFormParts = 64;
inline constexpr size_t kMostPartHeadBytes = 4 << 10;  ///< headers of one part

/// The boundary parameter of a Content-Type "multipart/form-data; boundary=...". Errors: another type, no
/// boundary, one that the RFC does not allow.
Result<std::string> form_boundary(std::string_view content_type);

/// The parts in order; they are views of `body`, which must outlive them. Errors: no parts, more than
/// kMostFormParts, a part that is cut off or has no name, headers that are too long or not headers, an
/// encoded part. Takes time linear in the body's size.
Result<std::vector<FormPart>> parse_form(std::string_view body, std::string_view boundary);

}  // namespace fovea::http
