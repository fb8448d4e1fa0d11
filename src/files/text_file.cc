#include "files/text_file.h"

#include "files/mapped_file.h"
#include "fovea/result.h"

namespace fovea {

Result<std::string> read_text_file(const std::string& path, size_t limit) {
  FOVEA_TRY(file, MappedFile::open(path));
  const auto bytes = file.bytes();
  if (bytes.size() > limit)
    return invalid(path + ": " + std::to_string(bytes.size()) + " bytes; at most " + std::to_string(limit) +
                   " are read from such a file");
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

}  // namespace fovea
