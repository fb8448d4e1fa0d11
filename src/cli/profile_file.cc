#include "cli/profile_file.h"

#include <cstdio>

#include "profile/chrome_trace.h"

namespace fovea::cli {

Result<ProfileFile> ProfileFile::start(const ModelFlags& flags, const std::string& command) {
  ProfileFile out;
  if (flags.profile.empty()) return out;
  out.path_ = flags.profile;
  out.command_ = command;
  // Opened now: a wrong path must not show when all is done.
  FOVEA_RETURN_IF_ERROR(profile::write_chrome_trace(flags.profile, {}, {}));
  FOVEA_TRY(device, read_device(flags.device));
  profile::Session::Options options;
  options.device = device.info.kind == DeviceKind::cuda;
  FOVEA_TRY(session, profile::Session::start(options));
  FOVEA_RETURN_IF_ERROR(session->record_device(true));
  if (session->device_times() == profile::DeviceTimes::events)
    std::fprintf(stderr, "profile: times of the GPU by events, decode steps without graphs: %s\n",
                 session->without_cupti().c_str());
  out.session_ = std::move(session);
  return out;
}

Status ProfileFile::finish(Status status) {
  if (!session_) return status;
  (void)session_->record_device(false);
  const profile::Recording recording = session_->recording();
  session_.reset();
  const Status written = write_profile(path_, recording, command_);
  return status ? written : status;
}

Status write_profile(const std::string& path, const profile::Recording& recording,
                     const std::string& command) {
  FOVEA_RETURN_IF_ERROR(profile::write_chrome_trace(
      path, recording, {{"program", "fovea " FOVEA_VERSION}, {"command", command}}));
  std::fprintf(
      stderr, "profile: %s has %zu ranges of threads, %zu kernels and copies of %zu steps%s\n", path.c_str(),
      recording.ranges.size(), recording.device.size(), recording.steps.size(),
      recording.dropped > 0
          ? (", the newest; " + std::to_string(recording.dropped) + " older records were dropped").c_str()
          : "");
  return {};
}

}  // namespace fovea::cli
