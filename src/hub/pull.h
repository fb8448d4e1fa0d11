#pragma once
// Downloads a model from the hub into the cache that huggingface_hub and the engine read.
#include <cstdint>
#include <functional>
#include <string>

#include "fovea/result_fwd.h"

namespace fovea::hub {

struct PullProgress {
  int64_t bytes = 0, total_bytes = 0;  ///< of the wanted files; what the cache had counts too
  int64_t new_bytes = 0;               ///< since the start
  int files = 0, total_files = 0;
  std::string finished;  ///< the file that has just become whole; "" = none
};

struct PullRequest {
  std::string id = {};                              ///< ORG/NAME
  std::string revision = "main";                    ///< a branch, a tag or a commit
  std::string endpoint = "https://huggingface.co";  ///< without a slash at its end
  std::string token = {};                           ///< "" = none
  std::string cache = {};                           ///< hub_cache_folder()
  bool all = false;                                 ///< every file, not only those that the engine can use
  int jobs = 4;                                     ///< files at a time
  std::function<void(const PullProgress&)> progress = nullptr;  ///< about ten times a second
};

/// Returns the snapshot's folder. Files that are there are not downloaded again, and parts of files are
/// continued, also by a later call. Every new file's digest is checked.
Result<std::string> pull(const PullRequest& request);

}  // namespace fovea::hub
