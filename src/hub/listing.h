#pragma once
// What the hub says of a repository's files, and where they are in the cache.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/result_fwd.h"

namespace fovea::hub {

struct RemoteFile {
  std::string path;    ///< below the repository's root
  int64_t size = 0;    ///< bytes
  std::string digest;  ///< in hexadecimal: its name in the cache
  bool git = false;    ///< the digest is git's of a blob (SHA-1), not a SHA-256
};

struct Listing {
  std::string commit;
  std::vector<RemoteFile> files;  ///< by path
};

/// Parses the answer of api/models/ORG/NAME/revision/REVISION?blobs=true. Names that would leave the folder
/// are errors.
Result<Listing> parse_listing(std::string_view json);
/// Whether the engine can use a file: weights in safetensors, configuration, tokenizer, chat templates.
bool is_wanted(std::string_view path);
/// `text` for a URL's path.
std::string url_path(std::string_view text);

/// HUB/models--ORG--NAME
std::string repository_folder(const std::string& hub, const std::string& id);
/// The target of the link at snapshots/COMMIT/PATH.
std::string link_target(const RemoteFile& file);

}  // namespace fovea::hub
