#include "compat/pages/embedded.h"

#include "base/check.h"
#include "base/embedded_file.h"

namespace fovea::docs {

std::span<const EmbeddedFile> embedded_files();

std::string_view embedded_text(std::string_view name) {
  for (const EmbeddedFile& file : embedded_files())
    if (file.name == name) return file.text;
  FOVEA_CHECK(false && "no such text is embedded");
  return {};
}

}  // namespace fovea::docs
