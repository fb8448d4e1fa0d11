#pragma once
// Which other backend would serve where one is refused: the last words of a fix.
#include <optional>
#include <string>

#include "attention/scene.h"
#include "attention/validate.h"

namespace fovea {

class Alternatives {
 public:
  Alternatives(const Scene& scene, Phase phase) : scene_(scene), phase_(phase) {}

  /// `finding` of `refused`, with a fix that names a backend and the flag that takes it where one helps.
  Reason with_fix(const BackendInfo& refused, Finding finding);

 private:
  struct Places {
    const BackendInfo* here = nullptr;         ///< serves on this device
    const BackendInfo* here_nearly = nullptr;  ///< built, and flags remove all that is against it
    std::string nearly_with;                   ///< those flags
    const BackendInfo* here_absent = nullptr;  ///< would, if this build had its kernels
    std::string elsewhere;                     ///< "CPU_ATTN serves it on cpu"
    std::string elsewhere_absent;
  };
  const Places& places();
  Places look_around(const Scene& scene) const;
  std::string flag(const BackendInfo& row, bool of_phase) const;
  std::string instead(const BackendInfo& refused, bool of_phase);

  Scene scene_;
  Phase phase_;
  std::optional<Places> places_;
};

}  // namespace fovea
