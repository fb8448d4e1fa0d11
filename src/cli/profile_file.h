#pragma once
// --profile FILE: a trace of a command.
#include <memory>
#include <string>

#include "cli/options.h"
#include "profile/session.h"

namespace fovea::cli {

class ProfileFile {
 public:
  /// Begins, if the flags ask for it. Call it before the engine is created.
  static Result<ProfileFile> start(const ModelFlags& flags, const std::string& command);

  /// Writes the file and says on standard error what it has. `status` of the command, or the error of the
  /// file.
  Status finish(Status status);

 private:
  std::string path_, command_;
  std::unique_ptr<profile::Session> session_;
};

/// Writes a recording to `path`, with a line on standard error.
Status write_profile(const std::string& path, const profile::Recording& recording,
                     const std::string& command);

}  // namespace fovea::cli
